"""What ``recipe.report`` prints and draws, one module for each of its subcommands."""
