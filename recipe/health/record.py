"""A run as the rules of health read it: series of metrics, events, configuration."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from omegaconf import DictConfig, OmegaConf

from recipe.records.run_directory import STEP_TIME, RunDirectory

LAST = 5
"""Steps at either end of a series that a rule averages: one step's samples are too few."""


@dataclass(frozen=True)
class Record:
    """Metrics (a row per step), events and configuration of one run.

    now: the time (seconds since the epoch) from which the age of the last record counts.
    """

    rows: Sequence[Mapping[str, float]]
    events: Sequence[Mapping[str, Any]]
    config: DictConfig
    now: float

    @classmethod
    def of(cls, run: RunDirectory, now: float) -> "Record":
        """The records of a run directory, read at time `now`."""
        return cls(run.metrics(), run.events(), run.read_config(), now)

    def values(self, metric: str) -> list[float]:
        """The metric at each step that has it as a finite number, in order."""
        return [value for _, value in self.steps_where(metric)]

    def steps_where(self, metric: str) -> list[tuple[int, float]]:
        """(step, value) at each step that has the metric as a finite number."""
        return [(int(row["step"]), row[metric]) for row in self.rows if metric in row and math.isfinite(row[metric])]

    def first(self, metric: str) -> float | None:
        """Mean over the first steps that have the metric; None without any."""
        values = self.values(metric)
        return fmean(values[:LAST]) if values else None

    def last(self, metric: str) -> float | None:
        """Mean over the last steps that have the metric; None without any."""
        values = self.values(metric)
        return fmean(values[-LAST:]) if values else None

    def last_share(self, metric: str) -> float:
        """Mean over the last steps with samples of a share that is written only in steps where it is not 0."""
        shares = [row.get(metric, 0.0) for row in self.rows if "reward/acc" in row][-LAST:]
        return fmean(shares) if shares else 0.0

    def named(self, prefix: str) -> list[str]:
        """What follows the prefix in the names of metrics, sorted."""
        return named(self.rows, prefix)

    def setting(self, key: str, default: Any = None) -> Any:
        """A key of the configuration; the default where it is missing."""
        return OmegaConf.select(self.config, key, default=default)

    @property
    def updates(self) -> int:
        """The last step with metrics; 0 before the first."""
        return int(self.rows[-1]["step"]) if self.rows else 0

    @property
    def step_seconds(self) -> float | None:
        """Median seconds of a step; None before the first."""
        values = self.values(STEP_TIME)
        return median(values) if values else None


def longest_quiet(step_seconds: float | None) -> float:
    """Seconds without an event after which a run is no longer under way. step_seconds: of a step, None before one."""
    return max(600.0, 5 * (step_seconds or 0.0))


def clocks_differ(quiet: float) -> str:
    """What to report of a last event that lies ahead of this machine's clock; empty if it does not.

    quiet: seconds since that event, by this clock. Until this clock has passed it, a killed run looks alive.
    """
    ahead = -quiet / 60
    return (
        f"its last event is {ahead:.0f} minutes ahead of this machine's clock: the clocks differ" if ahead > 1 else ""
    )


def fall_from_peak(rows: Sequence[Mapping[str, float]], skill: str) -> tuple[float, float]:
    """How far a skill's last validation is below its best one, a share of 1, and the most that noise explains (or NaN).

    The peak is the largest of several measurements: three standard errors of the difference.
    """
    accuracy, error = (f"skill/{skill}/{kind}" for kind in ("accuracy", "standard_error"))
    found = [(row[accuracy], row.get(error, math.nan)) for row in rows if math.isfinite(row.get(accuracy, math.nan))]
    if not found:
        return 0.0, math.nan
    (best, best_error), (last, last_error) = max(found, key=lambda pair: pair[0]), found[-1]
    return best - last, 3 * math.hypot(best_error, last_error)


def named(rows: Sequence[Mapping[str, float]], prefix: str) -> list[str]:
    """What follows the prefix in the names of the rows' metrics, sorted."""
    return sorted({key.removeprefix(prefix) for row in rows for key in row if key.startswith(prefix)})
