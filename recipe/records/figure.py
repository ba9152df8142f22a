"""Figures without a screen, saved as PNG and, sharp at any size, as SVG."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

__all__ = ["MARKERS", "plt", "save"]

# Equal data give the same bytes: ids from a fixed salt, no date. Text stays text, so that it can be searched.
matplotlib.rcParams.update({"svg.hashsalt": "skillcredit", "svg.fonttype": "none"})

MARKERS = "os^Dv<>PX*hpd8"  # shapes that differ without colour


def save(figure: plt.Figure, path: Path, dpi: int = 130) -> Path:
    """Write the PNG and an SVG beside it, each in one piece (a reader never sees half of it), and close the figure."""
    for place, metadata in ((path, {}), (path.with_suffix(".svg"), {"Date": None})):
        partial = place.with_name(f".{place.name}")
        figure.savefig(partial, dpi=dpi, format=place.suffix[1:], metadata=metadata)
        partial.replace(place)
    plt.close(figure)
    return path
