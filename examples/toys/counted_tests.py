"""Which tests should a credit count? `python -m examples.toys tests`: credit by deletion in the settings of the grid.

All tests, those that tell siblings apart, or those that a deletion can tell about (`lines.deletion_credits`), compared
with siblings, as by default, and within the response. Also a problem whose first line every test needs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from examples.toys.grid import GridArm, GridRun, GridSetting
from examples.toys.grid_study import MODERATE, GridResult, at_best_rate
from examples.toys.lines import COUNTED_TESTS, PROBLEMS, SHARED

SETTINGS = tuple(GridSetting(problem, partial=False) for problem in (*PROBLEMS, SHARED))
ARMS = tuple(
    GridArm("redistribute", normalization, "delete", gate=True, counted=counted)
    for normalization in ("siblings", "signed")
    for counted in COUNTED_TESTS
)


def study(run: GridRun) -> Iterator[GridResult]:
    """Every arm in every setting."""
    for setting in SETTINGS:
        for arm in ARMS:
            yield at_best_rate(setting, arm, run)


def table(results: Sequence[GridResult]) -> str:
    """A row per arm, a column per setting: mean updates with interval at the best rate; at the moderate one."""
    settings, arms = (list(dict.fromkeys(getattr(row, name) for row in results)) for name in ("setting", "arm"))
    found = {(row.arm, row.setting): row for row in results}
    lines = [f"| arm: at its best rate; at {MODERATE:g} | {' | '.join(settings)} |", f"|---|{'---:|' * len(settings)}"]
    for arm in arms:
        rows = [found[arm, setting] for setting in settings]
        cells = [f"{row.updates.text()}; {row.moderate.text()}" for row in rows]
        lines.append(f"| {' | '.join([arm, *cells])} |")
    return "\n".join(lines)


def record(run: GridRun, results: Sequence[GridResult]) -> dict[str, Any]:
    """The run and its results as JSON, without the values of each seed."""
    rows = [{name: value for name, value in asdict(row).items() if not name.endswith("_values")} for row in results]
    return {"run": asdict(run), "results": rows}
