"""Sources of tasks: one module a data set, each a command."""
