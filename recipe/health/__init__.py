"""A run's health by its records: `rules` with their ranges, the record that they read, and alerts."""
