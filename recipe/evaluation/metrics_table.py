"""Table of an evaluation's results: rates of each data set with their intervals."""

from typing import Any

from rich.table import Table

from recipe.records.intervals import Interval

Metrics = dict[str, dict[str, Any]]


def table(metrics: Metrics) -> Table:
    """One row per data set: rates in percent, the first ones with their 95% intervals."""
    passes = sorted({name for found in metrics.values() for name in found if name.startswith(("pass@", "solved@"))})
    passes += ["recovery_rate"] if any(found.get("recovery_rate") for found in metrics.values()) else []
    headers = ["data set", "problems", "accepted@1", *passes, "pass ratio", "ran", "cut", "tokens"]
    result = Table(*headers, title="percent, mean over problems [95% bootstrap interval]")
    for column in result.columns[2 : 3 + len(passes)]:
        column.no_wrap = True
    for dataset, found in metrics.items():
        cells = [rate_text(found.get(name)) for name in ("accepted@1", *passes)]
        cells += [rate_text(found[name]).split()[0] for name in ("pass_ratio", "exec_success_rate")]
        cut = found.get("cut_share")
        cells.append("-" if cut is None else f"{100 * cut:.1f}")
        tokens = found["generated_tokens"]["mean"]
        result.add_row(dataset, str(found["problems"]), *cells, "-" if tokens is None else f"{tokens:.0f}")
    return result


def rate_text(rate: dict[str, float] | None) -> str:
    """A rate in percent with its interval; a dash for None."""
    return "-" if rate is None else Interval(**rate).scaled(100).text()
