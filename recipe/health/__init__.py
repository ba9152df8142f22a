"""What a run's records say about its health: `rules` with their healthy ranges, and the record that they read."""
