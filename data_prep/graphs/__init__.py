"""Graph tasks with proven optima."""
