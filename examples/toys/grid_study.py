"""The grid of `python -m examples.toys grid`: every arm in every setting at its best rate, as one table.

An arm's rate is the best of `RATES` in that setting, by the mean on a fifth of the seeds; the others are reported.
The best rate of a table of logits may solve a problem in one or two updates, larger than any that a network bears, so
all arms are also compared at one moderate rate.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from examples.toys.grid import GridArm, GridRun, GridSetting, updates_to_solve
from examples.toys.lines import INTERVENTIONS, PROBLEMS
from recipe.records.intervals import Interval, bootstrap_interval
from workers.choices import MAPPINGS, Normalization

RATES = (0.2, 0.4, 0.8, 1.6, 3.2)
MODERATE = 0.4
_TUNING = 5  # one seed of so many chooses the rate

GRPO, PARTIAL = GridArm(), GridArm(partial=True)
BEST = GridArm("redistribute", "siblings", "both", gate=True)
COMPARED: tuple[Normalization, ...] = ("signed", "siblings")
_FACTORS = product(MAPPINGS, COMPARED, INTERVENTIONS, (False, True))
ARMS = (GRPO, PARTIAL, replace(BEST, shuffled=True), *(GridArm(*factors) for factors in _FACTORS))
# Where there are many samples: GRPO, the controls, credit within the response, and siblings by intervention.
MAIN_ARMS = (
    GRPO, PARTIAL, replace(BEST, shuffled=True), GridArm("add"), GridArm("add", gate=True),
    *(replace(BEST, intervention=intervention) for intervention in INTERVENTIONS),
)  # fmt: skip

SETTINGS = tuple(GridSetting(problem, partial) for problem, partial in product(PROBLEMS, (False, True)))
_LONG = [problem for problem in PROBLEMS if problem.lines == 16]
LARGE_SETTINGS = (
    GridSetting(_LONG[0], partial=False, prompts=16, group=8, shared=False),
    *(GridSetting(problem, False, *size) for problem, size in product(_LONG, ((2, 16), (16, 4), (16, 16)))),
)


@dataclass(frozen=True)
class GridResult:
    """Updates of one arm in one setting at its best rate: their mean and the share of unsolved runs.

    moderate: the mean at the moderate rate. best_values, moderate_values: updates of each reported seed.
    """

    setting: str
    arm: str
    rate: float
    updates: Interval
    unsolved: float
    moderate: Interval
    best_values: tuple[float, ...]
    moderate_values: tuple[float, ...]


def study(run: GridRun, kept: Path) -> Iterator[GridResult]:
    """All arms in the small settings, the main arms in the large ones.

    kept: file of finished results, one JSON per line; those of the same run are read, new ones are added.
    """
    done = {(row.setting, row.arm): row for row in _read(kept, run)}
    others = [arm for arm in ARMS if arm not in MAIN_ARMS]
    long_first = sorted(SETTINGS, key=lambda setting: -setting.problem.lines)
    for setting, arm in (
        *product(long_first, MAIN_ARMS), *product(long_first, others), *product(LARGE_SETTINGS, MAIN_ARMS)
    ):  # fmt: skip
        if (setting.name, arm.name) in done:
            yield done[setting.name, arm.name]
            continue
        row = at_best_rate(setting, arm, run)
        kept.parent.mkdir(parents=True, exist_ok=True)
        with kept.open("a") as file:
            file.write(json.dumps({"run": asdict(run), "row": asdict(row)}) + "\n")
        yield row


def _read(kept: Path, run: GridRun) -> Iterator[GridResult]:
    for line in kept.read_text().splitlines() if kept.exists() else ():
        found = json.loads(line)
        if found["run"] == asdict(run):
            row = found["row"]
            intervals = {name: Interval(**row[name]) for name in ("updates", "moderate")}
            values = {name: tuple(row[name]) for name in ("best_values", "moderate_values")}
            yield GridResult(**(row | intervals | values))


def at_best_rate(setting: GridSetting, arm: GridArm, run: GridRun) -> GridResult:
    """The arm's result on four fifths of the seeds, at the rate that is best on the others."""
    tuning = max(run.seeds // _TUNING, 1)
    other = replace(run, seeds=tuning, seed=run.seed + 1_000_003)
    rate = min(RATES, key=lambda rate: float(updates_to_solve(setting, arm, rate, other).mean()))
    reported = replace(run, seeds=max(run.seeds - tuning, 2))
    best, moderate = (updates_to_solve(setting, arm, one, reported) for one in (rate, MODERATE))
    return GridResult(
        setting.name, arm.name, rate, bootstrap_interval(best), float((best > run.limit).mean()),
        bootstrap_interval(moderate), tuple(best.tolist()), tuple(moderate.tolist()),
    )  # fmt: skip


def ratios(results: Sequence[GridResult], moderate: bool = False) -> dict[str, Interval]:
    """Updates of each arm over GRPO's: geometric mean over the small settings, bootstrap over seeds, the best first.

    moderate: at the moderate rate instead of the best.
    """
    values = {
        (row.arm, row.setting): np.asarray(row.moderate_values if moderate else row.best_values) for row in results
    }
    settings = [setting.name for setting in SETTINGS if (GRPO.name, setting.name) in values]
    seeds = len(results[0].best_values)
    draws = np.random.default_rng(0).integers(0, seeds, (1000, seeds))
    draws[0] = np.arange(seeds)

    def log_means(arm: str) -> NDArray[np.float64]:
        logs = [np.log(np.maximum(values[arm, setting][draws].mean(1), 1.0)) for setting in settings]
        found: NDArray[np.float64] = np.mean(logs, axis=0)
        return found

    intervals = {}
    for arm in dict.fromkeys(row.arm for row in results):
        if any((arm, setting) not in values for setting in settings):
            continue  # not yet in each of them
        ratio = np.exp(log_means(arm) - log_means(GRPO.name))
        low, high = np.quantile(ratio[1:], [0.025, 0.975])
        intervals[arm] = Interval(float(ratio[0]), float(low), float(high))
    return dict(sorted(intervals.items(), key=lambda item: item[1].estimate))


def table(results: Sequence[GridResult]) -> str:
    """A row per arm, a column per setting: mean updates with interval; the share of unsolved runs if there are any."""
    settings = [setting.name for setting in (*SETTINGS, *LARGE_SETTINGS)]
    cells = {(row.arm, row.setting): _cell(row) for row in results}
    at_moderate = ratios(results, moderate=True)
    means = {(row.arm, row.setting): max(row.updates.estimate, 1.0) for row in results}
    head = ["arm", "times GRPO", "in the worst setting", f"times GRPO at rate {MODERATE:g}", *settings]
    lines = [f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 1)}"]
    for arm, ratio in ratios(results).items():
        found = [cells.get((arm, setting), "") for setting in settings]
        compared = [means[arm, name] / means[GRPO.name, name] for name in settings if (arm, name) in means]
        lines.append(
            f"| {' | '.join([arm, ratio.text(2), f'{max(compared):.2f}', at_moderate[arm].text(2), *found])} |"
        )
    return "\n".join(lines)


def record(run: GridRun, results: Sequence[GridResult]) -> dict[str, Any]:
    """The run, the ratios and the results without the values of each seed, as JSON."""
    shown = [{name: value for name, value in asdict(row).items() if not name.endswith("_values")} for row in results]
    found = {
        name: {arm: asdict(ratio) for arm, ratio in ratios(results, moderate).items()}
        for name, moderate in (("best", False), ("moderate", True))
    }
    return {"run": asdict(run), "ratios": found, "results": shown}


def _cell(row: GridResult) -> str:
    return row.updates.text() + (f" ({100 * row.unsolved:.0f}% unsolved)" if row.unsolved else "")
