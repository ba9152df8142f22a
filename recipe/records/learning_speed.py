"""Learning curves: a run's accuracy over updates, generated tokens and sandbox seconds."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from omegaconf import DictConfig

from recipe.records.run_directory import RunDirectory

Array = NDArray[np.float64]


@dataclass(frozen=True)
class TrainingSamples:
    """A run's training samples at each of its S updates; arrays are (S,).

    accuracy: of the samples, a share of 1; count of them. tokens, seconds: as in `LearningCurve`, before the update,
    since its samples are answers of the policy as the previous updates left it.
    """

    accuracy: Array = field(default_factory=lambda: np.empty(0))
    count: Array = field(default_factory=lambda: np.empty(0))
    tokens: Array = field(default_factory=lambda: np.empty(0))
    seconds: Array = field(default_factory=lambda: np.empty(0))


@dataclass(frozen=True)
class LearningCurve:
    """A run at each of its V validations; arrays are (V,).

    accuracy: the measured metric, a share of 1. steps, tokens, seconds: updates, generated tokens (including those for
    credit), and busy seconds of sandbox workers for answers and replays (NaN if not measured), all since the start.
    greedy: the metric of greedy answers, NaN if not measured. training: of the updates between validations.
    """

    accuracy: Array
    steps: Array
    tokens: Array
    seconds: Array
    greedy: Array
    training: TrainingSamples = field(default_factory=TrainingSamples)

    def at(self, tokens: float) -> float:
        """Accuracy after this many generated tokens, interpolated linearly between validations."""
        return float(np.interp(tokens, self.tokens, self.accuracy))

    def reaches(self, accuracy: float) -> tuple[float, float] | None:
        """Updates and seconds at which the run first reached this accuracy (interpolated); None if it never did."""
        above = np.flatnonzero(self.accuracy >= accuracy)
        if not len(above):
            return None
        last = int(above[0])
        if last == 0:
            return float(self.steps[0]), float(self.seconds[0])
        low, high = self.accuracy[last - 1], self.accuracy[last]
        share = (accuracy - low) / (high - low)
        between = slice(last - 1, last + 1)
        steps, seconds = (np.interp(share, (0, 1), axis[between]) for axis in (self.steps, self.seconds))
        return float(steps), float(seconds)


def samples_of(config: DictConfig) -> int:
    """Answers of an update."""
    return int(config.data.train_batch_size * config.actor_rollout_ref.rollout.n)


def generated_tokens(row: Mapping[str, float], samples: int) -> float:
    """Tokens that an update generated, including those for credit."""
    return samples * row.get("response_length/mean", 0.0) + row.get("credit/generated_tokens", 0.0)


def sandbox_seconds(row: Mapping[str, float]) -> float:
    """Busy seconds of sandbox workers in an update; NaN if not measured."""
    return row.get("reward/sandbox_seconds", 0.0 if row["step"] == 0 else np.nan)


def read_curve(run: RunDirectory, metric: str) -> LearningCurve:
    """The curve of a run from its records.

    Raises:
        ValueError: the run has no validation with this metric.
    """
    samples = samples_of(run.read_config())
    points, updates, tokens, seconds = [], [], 0.0, 0.0
    for row in run.metrics():
        before = tokens, seconds
        tokens += generated_tokens(row, samples)
        seconds += sandbox_seconds(row)
        if row["step"] > 0 and "reward/acc" in row:
            judged = samples * (1 - row.get("reward/masked_share", 0.0))
            updates.append((row["reward/acc"], judged, *before))
        if metric in row:
            greedy = row.get(metric.replace("/accuracy", "/greedy_accuracy"), np.nan)
            points.append((row[metric], row["step"], tokens, seconds, greedy))
    if not points:
        raise ValueError(f"{run.path} has no validation with {metric}")
    training = TrainingSamples(*np.array(updates, dtype=np.float64).reshape(-1, 4).T)
    accuracy, steps, tokens_then, seconds_then, greedy_then = np.array(points, dtype=np.float64).T
    return LearningCurve(accuracy, steps, tokens_then, seconds_then, greedy_then, training)
