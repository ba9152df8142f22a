"""Accuracy per skill from the reward components of a validation, without the samples that could not be verified."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from omegaconf import DictConfig

from workers.safety.levels import SkillLevel

# Reward components for which verl's validation bootstraps best and worst of n (1000 resamples per prompt, in Python:
# for all of our components that took longer than generation). The others get a mean only.
RESAMPLED = ("acc", "reward", "pred")


def accuracy_by_skill(infos: dict[str, list[Any]]) -> dict[str, float]:
    """``skill/<name>/accuracy``, their mean and the worst, from aligned lists ``acc``, ``skill`` and ``masked``.

    A skill whose samples were all masked has no accuracy, not 0. ``skill/masked_share``: share of the samples that
    could not be verified. The mean is over skills, so skills with more rows have no more weight. Each accuracy and the
    mean have a ``standard_error`` (of a share of correct answers).
    """
    by_skill: dict[str, list[float]] = defaultdict(list)
    rows = list(zip(infos.get("acc", []), infos.get("skill", []), infos.get("masked", []), strict=True))
    for accuracy, skill, masked in rows:
        if not masked and accuracy is not None:
            by_skill[str(skill)].append(float(accuracy))
    if not by_skill:
        return {}
    means = {skill: sum(values) / len(values) for skill, values in sorted(by_skill.items())}
    result = {f"skill/{skill}/accuracy": value for skill, value in means.items()}
    result["skill/mean/accuracy"] = sum(means.values()) / len(means)
    result["skill/worst/accuracy"] = min(means.values())
    errors = {skill: share_error(values) for skill, values in sorted(by_skill.items())}
    result |= {f"skill/{skill}/standard_error": error for skill, error in errors.items()}
    result["skill/mean/standard_error"] = math.hypot(*errors.values()) / len(errors)
    result["skill/masked_share"] = sum(bool(masked) for *_, masked in rows) / len(rows)
    return result | accuracy_of_halves(infos)


def accuracy_of_halves(infos: Mapping[str, Sequence[Any]]) -> dict[str, float]:
    """``skill/<name>/half_accuracy/<0 or 1>`` of each half of a skill's tasks, from lists as above and ``task``.

    The halves alternate over the sorted tasks, masked ones too, so every validation of the same rows has the same
    halves: what is chosen by one of them can be read on the other. A half without a verified sample has no accuracy.
    """
    rows = list(zip(*(infos.get(key, []) for key in ("acc", "skill", "task", "masked")), strict=False))
    tasks: dict[str, set[str]] = defaultdict(set)
    for _, skill, task, _ in rows:
        tasks[str(skill)].add(str(task))
    half = {skill: {task: place % 2 for place, task in enumerate(sorted(of))} for skill, of in tasks.items()}
    values: dict[str, list[float]] = defaultdict(list)
    for accuracy, skill, task, masked in rows:
        if not masked and accuracy is not None:
            values[f"skill/{skill}/half_accuracy/{half[str(skill)][str(task)]}"].append(float(accuracy))
    return {key: sum(of) / len(of) for key, of in sorted(values.items())}


def share_error(values: Sequence[float]) -> float:
    """Standard error of the mean of samples that are correct (1) or wrong (0): sqrt(p (1 - p) / samples).

    An upper bound for other samples of the same prompts: samples of one prompt resemble each other, which lowers it.
    It excludes the choice of prompts, which runs under comparison share.
    """
    share = sum(values) / len(values)
    return math.sqrt(max(share * (1 - share), 0.0) / len(values))


def smoothed_share_error(values: Sequence[float]) -> float:
    """`share_error` with one more sample of each kind in the share, p = (k + 1) / (n + 2), so it is above 0."""
    share = (sum(values) + 1) / (len(values) + 2)
    return math.sqrt(max(share * (1 - share), 0.0) / len(values))


def training_accuracy(infos: Sequence[dict[str, Any]]) -> dict[str, float]:
    """``train_skill/<name>/accuracy`` of a training step's unmasked samples, the mean over skills and the worst."""
    lists = {key: [info.get(key) for info in infos if "skill" in info] for key in ("acc", "skill", "masked")}
    accuracies = accuracy_by_skill(lists)
    return {f"train_{key}": value for key, value in accuracies.items() if key.endswith("/accuracy")}


@dataclass(frozen=True)
class Reward:
    """A skill's verified mean reward, its standard error, and the reward in one unit of its rollouts' objective."""

    level: SkillLevel
    unit: float


def standardizes(algorithm: DictConfig) -> bool:
    """Whether advantages are divided by the standard deviation of their group: verl's ``algorithm``."""
    return algorithm.adv_estimator in ("grpo", "grpo_vectorized") and bool(algorithm.norm_adv_by_std_in_grpo)


def skill_rewards(
    infos: Sequence[Mapping[str, Any]], prompts: Sequence[str], tokens: Sequence[float], standardized: bool = True
) -> dict[str, Reward]:
    """The mean reward of each skill's unmasked samples, over the prompts of a step.

    The standard error is that of the mean over prompts, infinite for a single one, and at least that of a smoothed
    share of the samples: equal prompts do not make it exact.

    The objective is a mean over tokens (`workers.constraints`), the reward belongs to the answer: one unit is worth the
    answers' mean number of trained tokens, and, standardized, the mean standard deviation of the groups, by which
    advantages are divided. tokens: trained tokens of each sample.
    """
    groups: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    lengths: dict[str, list[float]] = defaultdict(list)
    for info, prompt, length in zip(infos, prompts, tokens, strict=True):
        if "skill" in info and not info.get("masked") and info.get("score") is not None:
            groups[str(info["skill"])][prompt].append(float(info["score"]))
            lengths[str(info["skill"])].append(length)
    rewards = {}
    for skill, of_prompt in groups.items():
        means = [sum(scores) / len(scores) for scores in of_prompt.values()]
        spread = float(np.std(means, ddof=1)) / math.sqrt(len(means)) if len(means) > 1 else math.inf
        error = max(spread, smoothed_share_error([score for scores in of_prompt.values() for score in scores]))
        deviations = [float(np.std(scores, ddof=1)) for scores in of_prompt.values() if len(set(scores)) > 1]
        deviation = sum(deviations) / len(deviations) if deviations and standardized else 1.0
        unit = deviation * max(sum(lengths[skill]) / len(lengths[skill]), 1.0)
        rewards[skill] = Reward(SkillLevel(sum(means) / len(means), error), unit)
    return rewards


def means_over_prompts(data_sources: list[str], uids: list[str], infos: dict[str, list[Any]]) -> dict[str, float]:
    """``val-aux/<data source>/<component>/mean@<n>`` (verl's naming) of the components that are not resampled.

    A mean over prompts of the mean over a prompt's n samples with a numeric value of the component.
    """
    of_prompt: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for name in infos.keys() - set(RESAMPLED):
        for source, uid, value in zip(data_sources, uids, infos[name], strict=True):
            if isinstance(value, (Real, np.bool_)):
                of_prompt[source, name, uid].append(float(value))
    means: dict[str, list[float]] = defaultdict(list)
    for (source, name, _), values in sorted(of_prompt.items()):
        means[f"val-aux/{source}/{name}/mean@{len(values)}"].append(sum(values) / len(values))
    return {key: sum(values) / len(values) for key, values in means.items()}


def without_masked(
    data_sources: list[str],
    uids: list[str],
    infos: dict[str, list[Any]],
    expected_counts: dict[tuple[str, str], int] | None,
) -> tuple[dict[str, list[Any]], dict[tuple[str, str], int] | None]:
    """The same lists with None for masked samples (verl skips None), and verl's expected counts minus the masked ones.

    With the full counts verl would treat masked samples as failed sessions and count them as wrong.
    """
    masked = [bool(flag) for flag in infos.get("masked", [])]
    if not any(masked):
        return infos, expected_counts
    verified = {
        key: [None if hide else value for value, hide in zip(values, masked, strict=True)]
        for key, values in infos.items()
    }
    if expected_counts is None:
        return verified, None
    hidden = Counter((source, uid) for source, uid, hide in zip(data_sources, uids, masked, strict=True) if hide)
    return verified, {key: count - hidden[key] for key, count in expected_counts.items()}
