"""Plots of the toy results."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

from examples.toys.credit import CreditResult, CreditRun
from examples.toys.grid_study import MAIN_ARMS, GridResult
from examples.toys.projection import ProtectionResult
from recipe.records.intervals import Interval
from recipe.records.pictures import save

_ARM_COLOURS = {
    "GRPO": "tab:gray",
    "credit": "tab:blue",
    "shuffled credit": "tab:orange",
    "inverted credit": "tab:red",
    "GRPO, twice the rate": "lightgray",
}
_HATCHES = ("", "//", "xx", "..", "--")  # per arm, so that bars differ without colour
_METHOD_MARKS = {
    "none": ("tab:gray", "o"),
    "pcgrad": ("tab:orange", "s"),
    "sequential_margin": ("tab:green", "^"),
    "qp": ("tab:blue", "D"),
}
# What a gain and a forgetting measure: a skill's value is 1 - |A theta - y|^2 / |y|^2 or its expected reward.
_UNITS = {
    "quadratic": ("fall in relative squared error", "rise in relative squared error"),
    "tabular": ("rise in expected reward", "fall in expected reward"),
}


def draw_credit(results: list[CreditResult], title: str, path: Path) -> None:
    """Bars of mean steps to solve with their 95% intervals, one group per problem."""
    problems = list(dict.fromkeys(row.problem for row in results))
    figure, axes = plt.subplots(figsize=(9, 4.2), layout="constrained")
    for index, ((arm, colour), hatch) in enumerate(zip(_ARM_COLOURS.items(), _HATCHES, strict=True)):
        rows = [row for row in results if row.arm == arm]
        places = [problems.index(row.problem) + 0.16 * (index - 2) for row in rows]
        heights = [row.steps.estimate for row in rows]
        errors = _errors([row.steps for row in rows])
        bars = axes.bar(
            places, heights, 0.15, yerr=errors, color=colour, hatch=hatch, edgecolor="white", label=arm,
            error_kw={"linewidth": 1},
        )  # fmt: skip
        axes.bar_label(bars, fmt="%.3g", fontsize=7, padding=2)
    axes.set_yscale("log")
    axes.set_xticks(range(len(problems)), problems)
    axes.set_ylabel(f"updates to an expected reward of {CreditRun.solved:g} (log scale)")
    axes.margins(y=0.1)
    axes.set_title(title, fontsize=10)
    axes.grid(axis="y", alpha=0.3)
    axes.legend(frameon=False, fontsize=8, ncols=5, loc="upper center", bbox_to_anchor=(0.5, -0.1))
    save(figure, path)


def draw_grid(results: Sequence[GridResult], path: Path) -> None:
    """Mean updates of the main arms, with intervals: a row of points per setting."""
    settings = list(dict.fromkeys(row.setting for row in results))
    figure, axes = plt.subplots(figsize=(9, 0.42 * len(settings) + 1.6), layout="constrained")
    for index, (arm, mark) in enumerate(zip(MAIN_ARMS, "os^vPDX*<", strict=True)):
        rows = [row for row in results if row.arm == arm.name]
        places = [settings.index(row.setting) + 0.08 * (index - 4) for row in rows]
        axes.errorbar(
            [row.updates.estimate for row in rows], places, xerr=_errors([row.updates for row in rows]), marker=mark,
            markersize=5, markerfacecolor="none", linestyle="", linewidth=1, label=arm.name,
        )  # fmt: skip
    axes.set_yticks(range(len(settings)), settings, fontsize=8)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("updates to an expected accuracy of 0.8 (log scale), mean and 95% interval over seeds")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    save(figure, path)


def draw_protection(results: list[ProtectionResult], title: str, path: Path) -> None:
    """Gain of the new skill over mean forgetting of the protected ones: a row per problem, a column per noise level."""
    problems = list(dict.fromkeys(row.problem for row in results))
    cosines = list(dict.fromkeys(row.cosine for row in results))
    figure, grid = plt.subplots(
        len(problems), len(cosines), figsize=(3 * len(cosines), 3.3 * len(problems)), layout="constrained",
        sharex="row", sharey="row", squeeze=False,
    )  # fmt: skip
    for problem, row_of_axes in zip(problems, grid, strict=True):
        gain, forgetting = _UNITS[problem]
        for cosine, axes in zip(cosines, row_of_axes, strict=True):
            _draw_methods(axes, [row for row in results if (row.problem, row.cosine) == (problem, cosine)])
            axes.set_title(f"{problem}, {'exact gradients' if cosine == 1 else f'cosine {cosine:g}'}", fontsize=9)
            axes.set_xlabel(f"mean forgetting\n({forgetting})", fontsize=9)
        row_of_axes[0].set_ylabel(f"gain of the new skill\n({gain})", fontsize=9)
    entries = {label: mark for axes in grid[0] for mark, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    columns = min(len(entries), 2 * len(cosines))
    figure.legend(
        entries.values(), entries.keys(), loc="outside lower center", ncols=columns, frameon=False, fontsize=8
    )
    figure.suptitle(title, fontsize=10)
    save(figure, path)


def _draw_methods(axes: plt.Axes, rows: list[ProtectionResult]) -> None:
    for row in rows:
        colour, mark = _METHOD_MARKS[row.method]
        if row.method == "none":
            axes.plot(*zip(*row.path, strict=True), color=colour, linewidth=1, label="none, stopped early")
        if row.epsilon == 0:
            _draw_points(axes, [row], color=colour, marker=mark, markersize=7, linestyle="", label=row.method)
    curve = sorted((row for row in rows if row.epsilon > 0), key=lambda row: row.epsilon)
    if curve:
        label = f"qp, epsilon up to {curve[-1].epsilon:g}"
        _draw_points(axes, curve, color="tab:purple", marker="v", markersize=6, linestyle="--", label=label)
    axes.axvline(0, color="black", linewidth=0.6)
    axes.grid(alpha=0.3)


def _draw_points(axes: plt.Axes, rows: list[ProtectionResult], **style: Any) -> None:
    """Hollow marks, so that methods with the same result stay visible, with the intervals of both means."""
    axes.errorbar(
        [row.forgetting.estimate for row in rows],
        [row.gain.estimate for row in rows],
        xerr=_errors([row.forgetting for row in rows]),
        yerr=_errors([row.gain for row in rows]),
        markerfacecolor="none", linewidth=1, elinewidth=0.8, capsize=2, **style,
    )  # fmt: skip


def _errors(intervals: list[Interval]) -> list[list[float]]:
    """Lengths of the error bars below and above the estimates."""
    return [list(lengths) for lengths in zip(*(interval.bars for interval in intervals), strict=True)]
