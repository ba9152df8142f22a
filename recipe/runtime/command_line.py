"""How this process was started, for usage texts and for the command that resumes a run."""

import sys
from pathlib import Path

CONSOLE = "skillcredit"  # [project.scripts] in pyproject.toml


def started_as() -> str:
    """What stands before the name of a command: ``skillcredit`` or ``python -m recipe``."""
    return CONSOLE if Path(*sys.orig_argv[1:2]).name == CONSOLE else "python -m recipe"


def program(command: str) -> str:
    """The command as the user can type it again: ``skillcredit NAME`` or ``python -m recipe.NAME``."""
    return f"{CONSOLE} {command}" if started_as() == CONSOLE else f"python -m recipe.{command}"
