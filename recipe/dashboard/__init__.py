"""The command `python -m recipe.dashboard`."""
