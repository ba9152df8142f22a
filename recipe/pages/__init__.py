"""The page of a run: one HTML file that shows curves, samples and findings without a network."""
