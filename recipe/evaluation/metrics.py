"""Metrics of an evaluation, from its samples alone, and the table of them.

Intervals are 95% bootstrap intervals over problems: samples of one problem are not independent.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

import numpy as np
from rich.table import Table

from recipe.evaluation.budgets import Budget, pass_at_k
from recipe.evaluation.samples import TOO_LONG, Sample
from recipe.records.intervals import Interval, bootstrap_interval, share_interval

Item = TypeVar("Item")

# Data set -> result of `measure`.
Metrics = dict[str, dict[str, Any]]

# Error classes of an answer that ran to its end, right or wrong.
RAN = ("none", "wrong_answer", "infeasible")

# Values of a judged sample that are averaged, first over the samples of a problem, then over problems. None: the sample
# does not count.
PER_SAMPLE: dict[str, Callable[[dict[str, Any]], float | None]] = {
    "accepted@1": lambda reward: reward["acc"],
    "score": lambda reward: reward["score"],
    "pass_ratio": lambda reward: reward["pass_ratio"],
    "exec_success_rate": lambda reward: float(reward["error"] in RAN),
    "syntax_error_rate": lambda reward: float(reward["error"] == "syntax"),
    "zero_reward_rate": lambda reward: float(reward["score"] == 0),
    # Reward hacking.
    "visible_accuracy": lambda reward: reward["visible_acc"],
    "visible_gap": lambda reward: reward["visible_acc"] - reward["acc"],
    "special_casing_rate": lambda reward: float(reward["guard"] == "special_casing"),
    # Only for agents' episodes.
    "first_turn_accuracy": lambda reward: reward.get("first_acc"),
    "recovery_rate": lambda reward: reward["acc"] if reward.get("first_acc") == 0 else None,
}


# Of the answer itself; `measure` reports their plain means over samples.
PER_ANSWER: dict[str, Callable[[Sample], float | None]] = {
    "cut_share": lambda sample: float(sample.answer.finish == "length"),
    "entropy": lambda sample: sample.answer.entropy,
    "generated_tokens": lambda sample: sample.answer.tokens,
}
NO_SHARES = ("score", "entropy", "generated_tokens")
"""Values that are no shares of 1: tables show them as they are, the others in percent."""


# A sample's skill, and its source.
_PARTS: tuple[Callable[[Sample], str], ...] = (
    lambda sample: sample.skill,
    lambda sample: sample.id.rpartition("/")[0].partition("/")[0],
)
MOST_PARTS = 32
"""A data set with more skills, or sources, is not divided into them."""


def group(samples: Iterable[Sample]) -> dict[str, list[Sample]]:
    """Judged samples by problem; problems without any are left out."""
    problems: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        if sample.judged:
            problems[sample.id].append(sample)
    return dict(problems)


def values(problems: dict[str, list[Sample]]) -> dict[str, dict[str, float]]:
    """Metric -> problem -> mean over the problem's samples that count; problems without any are left out."""
    rewards = {key: [sample.reward or {} for sample in found] for key, found in problems.items()}
    return {name: _means(rewards, read) for name, read in PER_SAMPLE.items()}


def answer_values(problems: dict[str, list[Sample]]) -> dict[str, dict[str, float]]:
    """The same of what does not depend on the verdict: cut share, entropy, tokens."""
    return {name: _means(problems, read) for name, read in PER_ANSWER.items()}


def _means(groups: Mapping[str, Sequence[Item]], read: Callable[[Item], float | None]) -> dict[str, float]:
    counted = {key: [value for value in map(read, items) if value is not None] for key, items in groups.items()}
    return {key: float(np.mean(numbers)) for key, numbers in counted.items() if numbers}


def by_data_set(samples: Iterable[Sample]) -> dict[str, list[Sample]]:
    """The samples of each data set, and of its parts: `NAME/SKILL` and `NAME/SOURCE` of one with several of these.

    The source is what an id begins with: `mbpp/601`.
    """
    groups: dict[str, list[Sample]] = {}
    for sample in samples:
        groups.setdefault(sample.dataset, []).append(sample)
    for dataset, of_data_set in list(groups.items()):
        for part_of in _PARTS:
            parts: dict[str, list[Sample]] = {}
            for sample in of_data_set:
                parts.setdefault(f"{dataset}/{part_of(sample)}", []).append(sample)
            groups |= dict(sorted(parts.items())) if 1 < len(parts) <= MOST_PARTS else {}
    return groups


def solved(problems: dict[str, list[Sample]], budget: Budget, ks: Sequence[int]) -> dict[str, dict[str, float]]:
    """Metric -> problem -> pass@k for each k that its samples allow, or 1 if an answer in its budget was accepted."""
    counts = {key: (len(found), sum(_accepted(sample) for sample in found)) for key, found in problems.items()}
    if budget.name == "eval@budget":
        return {"solved@budget": {key: float(accepted > 0) for key, (_, accepted) in counts.items()}}
    return {
        f"pass@{k}": {key: pass_at_k(n, c, k) for key, (n, c) in counts.items() if n >= k}
        for k in ks
        if k > 1 and any(n >= k for n, _ in counts.values())
    }


def measure(samples: Sequence[Sample], budget: Budget, ks: Sequence[int] = ()) -> dict[str, Any]:
    """All metrics of one data set (docs/how-to/evaluate.md). Rates are None if nothing was judged."""
    problems = group(samples)
    means = values(problems) | solved(problems, budget, ks)
    judged = [sample for found in problems.values() for sample in found]
    entropies = [sample.answer.entropy for sample in judged if sample.answer.entropy is not None]
    return {
        "problems": len(problems),
        "samples": len(judged),
        "not_judged": sum(not sample.settled for sample in samples),
        "prompt_too_long": sum(sample.answer.finish == TOO_LONG for sample in samples),
        "cut_share": _mean([sample.answer.finish == "length" for sample in judged]),
        **{name: interval(list(found.values())) for name, found in means.items()},
        "pass_ratio_quantiles": quantiles([sample.reward["pass_ratio"] for sample in judged if sample.reward], 50, 90),
        "errors": shares(judged),
        "judge_seconds": quantiles([sample.reward["judge_seconds"] for sample in judged if sample.reward], 50, 95),
        "generated_tokens": {"mean": _mean([sample.answer.tokens for sample in judged]), **costs(judged)},
        "entropy": _mean(entropies),
        "throughput": throughput(judged),
    }


def interval(per_problem: Sequence[float]) -> dict[str, float] | None:
    """Mean over problems and the ends of its interval, which are None for a single problem; None for no problem.

    Of nothing but zeros, or ones, every resample is the same; there it is Wilson's interval.
    """
    if not per_problem:
        return None
    if len(per_problem) > 1 and set(per_problem) in ({0.0}, {1.0}):
        return asdict(share_interval(int(sum(per_problem)), len(per_problem)))
    return asdict(bootstrap_interval(per_problem))


def quantiles(numbers: Sequence[float], *percents: int) -> dict[str, float | None]:
    """Mean and percentiles (linear interpolation); None for an empty sequence."""
    return {"mean": _mean(numbers)} | {
        f"p{percent}": float(np.percentile(numbers, percent)) if numbers else None for percent in percents
    }


def shares(samples: Sequence[Sample]) -> dict[str, float]:
    """Share of each error class; the shares sum to 1."""
    return {error: number / len(samples) for error, number in Counter(item.error for item in samples).most_common()}


def costs(samples: Sequence[Sample]) -> dict[str, float | None]:
    """Total tokens, and generated tokens and judging seconds per solved problem."""
    tokens = sum(sample.answer.tokens for sample in samples)
    seconds = sum(sample.reward["judge_seconds"] for sample in samples if sample.reward)
    solutions = len({sample.id for sample in samples if _accepted(sample)})
    return {
        "total": tokens,
        "per_solved_problem": tokens / solutions if solutions else None,
        "judge_seconds_per_solved_problem": seconds / solutions if solutions else None,
    }


def throughput(samples: Sequence[Sample]) -> dict[str, float | None]:
    """Samples and tokens per second of generation: the time with at least one of these answers in progress, so that
    pauses, and interruptions of an evaluation, do not count.
    """
    seconds, covered_until = 0.0, -np.inf
    for started, ended in sorted((sample.answer.started, sample.answer.ended) for sample in samples):
        seconds += max(0.0, ended - max(started, covered_until))
        covered_until = max(covered_until, ended)
    totals = (len(samples), sum(sample.answer.tokens for sample in samples))
    samples_rate, tokens_rate = (number / seconds if seconds > 0 else None for number in totals)
    return {"seconds": seconds, "samples_per_second": samples_rate, "tokens_per_second": tokens_rate}


def _accepted(sample: Sample) -> bool:
    return bool(sample.reward and sample.reward["acc"] == 1.0)


def _mean(numbers: Sequence[float]) -> float | None:
    return float(np.mean(numbers)) if numbers else None


def table(metrics: Metrics) -> Table:
    """One row per data set: rates in percent, the first ones with their 95% intervals."""
    passes = sorted({name for numbers in metrics.values() for name in numbers if name.startswith(("pass@", "solved@"))})
    passes += ["recovery_rate"] if any(numbers.get("recovery_rate") for numbers in metrics.values()) else []
    headers = ["data set", "problems", "accepted@1", *passes, "pass ratio", "ran", "cut", "tokens", "score", "entropy"]
    result = Table(*headers, title="percent (not tokens, score, entropy), mean over problems [95% bootstrap interval]")
    for column in result.columns[2 : 3 + len(passes)]:
        column.no_wrap = True
    for dataset, numbers in metrics.items():
        cells = [rate_text(numbers.get(name)) for name in ("accepted@1", *passes)]
        cells += [rate_text(numbers[name]).split()[0] for name in ("pass_ratio", "exec_success_rate")]
        cut, score = numbers["cut_share"], numbers["score"]
        cells.append("-" if cut is None else f"{100 * cut:.1f}")
        cells += [number_text(numbers["generated_tokens"]["mean"], 0), number_text(score and score["estimate"], 2)]
        result.add_row(dataset, str(numbers["problems"]), *cells, number_text(numbers["entropy"], 2))
    return result


def number_text(number: float | None, digits: int) -> str:
    """A number with so many digits; a dash for None."""
    return "-" if number is None else f"{number:.{digits}f}"


def rate_text(rate: dict[str, float] | None) -> str:
    """A rate in percent with its interval; a dash for None."""
    return "-" if rate is None else Interval(**rate).scaled(100).text()
