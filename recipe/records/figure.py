"""Figures drawn without a display, saved as PNG and SVG, and tables in Markdown or on a console."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
from rich.console import Console

WIDTH_OF_FILES = 160


def table_console(stderr: bool = False) -> Console:
    """A console for tables; without a terminal, rich assumes 80 columns, which would wrap their cells."""
    terminal = (sys.stderr if stderr else sys.stdout).isatty()
    return Console(stderr=stderr, width=None if terminal else WIDTH_OF_FILES)


def markdown_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table with its first column aligned left, the others right."""
    lines = [headers, *rows]
    head, *body = (f"| {' | '.join(cells)} |" for cells in lines)
    return "\n".join([head, "|---|" + "---:|" * (len(headers) - 1), *body])


matplotlib.use("Agg")

__all__ = ["MARKERS", "plt", "save"]

# The same data give the same bytes: ids from a fixed salt, no date. Text stays text, so that it can be searched.
matplotlib.rcParams.update({"svg.hashsalt": "skillcredit", "svg.fonttype": "none"})

MARKERS = "os^Dv<>PX*hpd8"  # shapes that differ without colour


def save(figure: plt.Figure, path: Path, dpi: int = 130) -> Path:
    """Write the PNG and an SVG next to it, each atomically (readers never see a partial file); close the figure."""
    for file, metadata in ((path, {}), (path.with_suffix(".svg"), {"Date": None})):
        partial = file.with_name(f".{file.name}")
        figure.savefig(partial, dpi=dpi, format=file.suffix[1:], metadata=metadata)
        partial.replace(file)
    plt.close(figure)
    return path
