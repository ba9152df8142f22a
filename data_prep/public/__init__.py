"""Public sets with tests, graphs or databases each in its own format."""
