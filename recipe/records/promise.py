"""What a run promised its protected skills, and what it kept: levels, anchors, slack and multipliers.

Read from the metrics ``actor/projection/*``. J is a constraint's level (`workers.safety.levels`), in nats per answer or
in reward; a line is what was promised: its anchor - epsilon.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import MaxNLocator

from recipe.records.pictures import save
from recipe.records.run_directory import PROJECTION
from workers.choices import OF_GAIN
from workers.safety.levels import ROUNDING
from workers.skill_metrics import Array

# Rows of the picture: their label, and each curve's metric, name in the legend and look.
_PANELS = (
    (
        "J",
        (
            ("level", "J before the update", {"color": "C0"}),
            ("verified_level", "J after it", {"color": "C0", "marker": ".", "linestyle": ""}),
            ("anchor", "anchor", {"color": "black", "linestyle": "--"}),
            ("line", "line", {"color": "C3", "linestyle": ":"}),
        ),
    ),
    ("slack", (("slack", "slack", {"color": "C2"}),)),
    ("multiplier", (("multiplier", "multiplier", {"color": "C1"}),)),
)


@dataclass(frozen=True)
class Promise:
    """Verified optimiser steps of a run: their number, how many were corrected, shrunk and undone, and how many of the
    recorded levels of a skill ended below its line, of how many (an update's lowest). lowest: the least J - line;
    infinite without any. kept: mean share that verification left of an update's last step; NaN if not recorded.
    without: how often an update had a constraint without an anchor, to which nothing is promised."""

    verified: int
    shrunk: int
    undone: int
    levels: int
    below: int
    lowest: float
    corrected: int = 0
    kept: float = math.nan
    without: int = 0


def constraint_names(rows: Sequence[Mapping[str, float]]) -> list[str]:
    """Names of the constraints that have an anchor, in their first order."""
    prefix = f"{PROJECTION}/anchor/"
    return list(dict.fromkeys(key.removeprefix(prefix) for row in rows for key in row if key.startswith(prefix)))


def promise(rows: Sequence[Mapping[str, float]]) -> Promise | None:
    """The promise of a run with these metrics, a row per update; None if it verified no step."""
    verified, corrected, shrunk, undone = (
        int(sum(value for row in rows if math.isfinite(value := row.get(f"{PROJECTION}/{name}_steps", 0.0))))
        for name in ("verified", "corrected", "shrunk", "undone")
    )
    if not verified:
        return None
    margins = [
        _margin(row, name)
        for name in constraint_names(rows)
        for row in rows
        if {f"{PROJECTION}/line/{name}", f"{PROJECTION}/verified_level/{name}"} <= row.keys()
    ]
    # A level that is no number is below every line.
    below = sum(not margin >= -ROUNDING for margin in margins)
    without = sum(not _has_anchor(row, name) for row in rows for name in _constrained(row))
    verifying = [row for row in rows if row.get(f"{PROJECTION}/verified_steps", 0.0) > 0]
    kept = [value for row in verifying if math.isfinite(value := row.get(f"{PROJECTION}/kept_share", math.nan))]
    return Promise(
        verified,
        shrunk,
        undone,
        len(margins),
        below,
        min(margins, default=float("inf")),
        corrected,
        sum(kept) / len(kept) if kept else math.nan,
        without,
    )


def _constrained(row: Mapping[str, float]) -> list[str]:
    """Names of the constraints of an update."""
    prefix = f"{PROJECTION}/unprotected/"
    return [key.removeprefix(prefix) for key in row if key.startswith(prefix)]


def _has_anchor(row: Mapping[str, float], name: str) -> bool:
    """Rollouts have an anchor, but no line: they are not verified."""
    return any(f"{PROJECTION}/{kind}/{name}" in row for kind in ("line", "anchor"))


def _margin(row: Mapping[str, float], name: str) -> float:
    """The least J - line of an update's steps; that of the last one where only it was recorded."""
    last = row[f"{PROJECTION}/verified_level/{name}"] - row[f"{PROJECTION}/line/{name}"]
    return row.get(f"{PROJECTION}/verified_margin/{name}", last)


def draw_promise(rows: Sequence[Mapping[str, float]], path: Path) -> Path | None:
    """Draw J with its anchor and line, the slack, and the multiplier of each constraint over a run's updates.

    A column per constraint, with gaps where it is not protected. Returns None, and draws nothing, without anchors.
    """
    names = constraint_names(rows)
    if not names:
        return None
    steps = np.array([row["step"] for row in rows])
    size = (2.0 + 2.6 * len(names), 1.6 + 1.7 * len(_PANELS))
    figure, grid = plt.subplots(
        len(_PANELS), len(names), figsize=size, sharex=True, sharey="row", squeeze=False, layout="constrained"
    )
    for (label, curves), axes_of_row in zip(_PANELS, grid, strict=True):
        for name, axes in zip(names, axes_of_row, strict=True):
            for metric, legend, look in curves:
                axes.plot(steps, _values(rows, metric, name), linewidth=1.3, markersize=5, label=legend, **look)
            axes.grid(alpha=0.3)
            axes.set_xlim(steps.min() - 0.5, steps.max() + 0.5)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes_of_row[0].set_ylabel(label)
    for metric, axes_of_row in zip(("slack", "multiplier"), grid[1:], strict=True):
        gains = [_values(rows, metric, name + OF_GAIN) for name in names]
        for values, axes in zip(gains, axes_of_row, strict=True):
            axes.plot(steps, values, linewidth=1.3, linestyle="--", label="of the gain asked for")
        if np.isfinite(gains).any():
            axes_of_row[0].legend(fontsize=7, frameon=False)
    for axes in grid[1]:
        axes.axhline(0, color="black", linewidth=0.8)
    for name, axes in zip(names, grid[0], strict=True):
        axes.set_title(name, fontsize=10)
    figure.supxlabel("policy updates", fontsize=9)
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False)
    return save(figure, path)


def _values(rows: Sequence[Mapping[str, float]], metric: str, name: str) -> Array:
    return np.array([row.get(f"{PROJECTION}/{metric}/{name}", np.nan) for row in rows])
