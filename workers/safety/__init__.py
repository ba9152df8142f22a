"""Protection over a whole run: levels and anchors, verified steps, other metrics and noise, controls."""
