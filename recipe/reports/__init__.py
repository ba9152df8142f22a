"""Subcommands of ``recipe.report``, one module each."""
