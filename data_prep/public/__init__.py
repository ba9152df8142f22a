"""Public sets with tests, graphs or databases in a form of their own."""
