"""Plots of the toy results."""

from pathlib import Path

import matplotlib.pyplot as plt

from examples.toys.credit import CreditResult
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
    axes.set_ylabel("updates until solved (log scale)")
    axes.margins(y=0.1)
    axes.set_title(title, fontsize=10)
    axes.grid(axis="y", alpha=0.3)
    axes.legend(frameon=False, fontsize=8, ncols=5, loc="upper center", bbox_to_anchor=(0.5, -0.1))
    save(figure, path, dpi=90)


def draw_protection(results: list[ProtectionResult], title: str, path: Path) -> None:
    """Gain of the new skill over forgetting, one row per problem and one column per noise level."""
    problems = list(dict.fromkeys(row.problem for row in results))
    cosines = list(dict.fromkeys(row.cosine for row in results))
    figure, grid = plt.subplots(
        len(problems), len(cosines), figsize=(3 * len(cosines), 3 * len(problems)), layout="constrained",
        sharex="row", sharey="row", squeeze=False,
    )  # fmt: skip
    for problem, row_of_axes in zip(problems, grid, strict=True):
        for cosine, axes in zip(cosines, row_of_axes, strict=True):
            _draw_methods(axes, [row for row in results if (row.problem, row.cosine) == (problem, cosine)])
            axes.set_title(f"{problem}, cosine {cosine:g}", fontsize=9)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=8)
    for axes in grid[-1]:
        axes.set_xlabel("mean forgetting", fontsize=9)
    figure.supylabel("gain of the new skill", fontsize=9)
    figure.suptitle(title, fontsize=10)
    save(figure, path, dpi=90)


def _draw_methods(axes: plt.Axes, rows: list[ProtectionResult]) -> None:
    for row in rows:
        colour, mark = _METHOD_MARKS[row.method]
        if row.method == "none":
            axes.plot(*zip(*row.path, strict=True), color=colour, linewidth=1, label="none, stopped early")
        if row.epsilon > 0:
            continue
        axes.errorbar(
            row.forgetting.estimate, row.gain.estimate, xerr=_errors([row.forgetting]), yerr=_errors([row.gain]),
            color=colour, marker=mark, markersize=5, linewidth=1, linestyle="", label=row.method,
        )  # fmt: skip
    curve = sorted((row.epsilon, row.forgetting.estimate, row.gain.estimate) for row in rows if row.method == "qp")
    if len(curve) > 1:
        _, forgetting, gain = zip(*curve, strict=True)
        axes.plot(forgetting, gain, color="tab:blue", marker=".", linestyle="--", linewidth=1, label="qp over epsilon")
    axes.grid(alpha=0.3)


def _errors(intervals: list[Interval]) -> list[list[float]]:
    """Lengths of the error bars below and above the estimates."""
    return [list(lengths) for lengths in zip(*(interval.bars for interval in intervals), strict=True)]
