"""Where commands print their tables: as wide as the terminal, and wide enough in a file or a pipe."""

import sys

from rich.console import Console

WIDTH_OF_FILES = 160


def table_console(stderr: bool = False) -> Console:
    """A console for tables; rich takes 80 columns where there is no terminal and would fold their cells."""
    terminal = (sys.stderr if stderr else sys.stdout).isatty()
    return Console(stderr=stderr, width=None if terminal else WIDTH_OF_FILES)
