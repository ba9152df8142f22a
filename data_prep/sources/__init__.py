"""Sources of tasks: one module per data set, each a command."""
