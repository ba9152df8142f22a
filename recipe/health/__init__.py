"""What a run's records say about its health: `rules` with their ranges, the record that they read, and alerts."""
