"""How a user started this process, for usage texts and for the command that resumes a run."""

import sys
from pathlib import Path

CONSOLE = "skillcredit"  # [project.scripts] in pyproject.toml


def program(command: str) -> str:
    """The command as the user can type it again: ``skillcredit NAME`` or ``python -m recipe.NAME``."""
    by_console = Path(*sys.orig_argv[1:2]).name == CONSOLE
    return f"{CONSOLE} {command}" if by_console else f"python -m recipe.{command}"
