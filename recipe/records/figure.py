"""Figures without a screen, and how they are saved."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

__all__ = ["plt", "save"]


def save(figure: plt.Figure, path: Path, dpi: int = 130) -> Path:
    """Write a PNG in one piece (a reader never sees half of it) and close the figure."""
    partial = path.with_name(f".{path.name}")
    figure.savefig(partial, dpi=dpi, format="png")
    plt.close(figure)
    partial.replace(path)
    return path
