"""Credits of a step's samples as tensors for `workers.credit`, which shapes the advantages; metrics of their cost."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from recipe.records.run_directory import RunDirectory
from recipe.settings import CreditSettings
from rewards.sample_credit import NUMBERS, SampleCredit
from workers.credit import ablated, shape_advantages, state_advantages, value_advantages

# Causes for which a sample has no credit on purpose.
SPARED = ("equal_group", "masked")
# A larger share of failures in a step is reported on the console.
TOLERATED_SHARE = 0.1


class CreditFailedError(RuntimeError):
    """Credit estimation failed for every sample of a step that should have credit."""


def credit_tensors(samples: Sequence[SampleCredit | None], tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    """credits (B, K) float32, NaN where a step has none; step_ids (B, T) int64, -1 for a token outside all steps.

    samples: B of them, None for one without credit. tokens: T.
    """
    width = max((len(sample.values) for sample in samples if sample), default=0)
    credits = torch.full((len(samples), width), torch.nan)
    step_ids = torch.full((len(samples), tokens), -1, dtype=torch.int64)
    for row, sample in enumerate(samples):
        if sample:
            credits[row, : len(sample.values)] = torch.from_numpy(np.asarray(sample.values, dtype=np.float32))
            step_ids[row, : len(sample.steps)] = torch.from_numpy(np.asarray(sample.steps, dtype=np.int64))
    return credits, step_ids


def step_keys(samples: Sequence[SampleCredit | None], uids: Sequence[str], steps: int) -> torch.Tensor:
    """(B, K) int64: equal for steps of the same key in the same group, -1 for a step without key; steps: K."""
    numbers: dict[tuple[str, str], int] = {}
    keys = torch.full((len(samples), steps), -1, dtype=torch.int64)
    for row, (sample, uid) in enumerate(zip(samples, uids, strict=True)):
        names = [str(key) for key in sample.keys][:steps] if sample else []
        in_batch = [numbers.setdefault((uid, name), len(numbers)) if name else -1 for name in names]
        keys[row, : len(in_batch)] = torch.tensor(in_batch, dtype=torch.int64)
    return keys


def pass_ratios(infos: Sequence[dict[str, Any]]) -> torch.Tensor:
    """(B,) float64: the share of tests that each sample passed, else its score; NaN for a sample without either."""
    return torch.tensor([float(info.get("pass_ratio", info.get("score", math.nan))) for info in infos]).double()


def shaped_by_credit(
    advantages: torch.Tensor,
    response_mask: torch.Tensor,
    uids: Sequence[str],
    infos: Sequence[dict[str, Any]],
    credit: CreditSettings,
    step: int,
    log_probs: torch.Tensor | None = None,
    relative: bool = False,
) -> tuple[list[torch.Tensor], dict[str, float]]:
    """Advantages of each sample, shaped by its credits, and the metrics of the shaping.

    advantages, response_mask: jagged (B, T of each sample). uids: the group of each sample. step: training step, so
    that a random control draws differently in each. log_probs: jagged, of the tokens under the policy that sampled
    them; for `max_probability` only. relative: the algorithm compares scores within groups (`shape_advantages`).
    """
    mask = response_mask.to_padded_tensor(0)
    samples = [SampleCredit.of_info(info) for info in infos]
    credits, step_ids = credit_tensors(samples, mask.shape[1])
    credits = ablated(credits, credit.ablation, seed=1_000_003 * credit.seed + step)
    tensors = advantages.to_padded_tensor(0.0), credits, step_ids, mask
    keys = step_keys(samples, uids, credits.shape[1])
    if credit.mapping == "values":
        probabilities = None if log_probs is None else log_probs.to_padded_tensor(0.0).exp()
        shaped, statistics = value_advantages(
            *tensors, probabilities=probabilities, max_probability=credit.max_probability
        )
    elif credit.mapping == "states":
        shaped, statistics = state_advantages(*tensors, keys, weight=credit.strength)
    else:
        numbers = {uid: number for number, uid in enumerate(dict.fromkeys(uids))}
        shaped, statistics = shape_advantages(
            *tensors, strength=credit.strength, mapping=credit.mapping, normalization=credit.normalization,
            tolerance=credit.tolerance, groups=torch.tensor([numbers[uid] for uid in uids]), step_keys=keys,
            rewards=pass_ratios(infos), min_valid=credit.min_valid, zero_advantage=credit.zero_advantage,
            relative=relative,
        )  # fmt: skip
    rows = [row[: len(tokens)] for row, tokens in zip(shaped, advantages.unbind(), strict=True)]
    return rows, statistics | replay_metrics(samples)


def replay_metrics(samples: Sequence[SampleCredit | None]) -> dict[str, float]:
    """Cost of a step's replays and causes of missing credit, under ``credit/``.

    Sums: ``replays``, ``replay_seconds`` (waiting in the reward workers), ``busy_seconds`` (of sandbox workers),
    ``generated_tokens`` (by the policy, for replays). Shares: ``valid_intervention_share`` of the requested
    interventions, ``cache_hit_share`` of the requested scores, ``unjudged_share`` and ``timeout_share`` of the
    replays, ``unmet_share`` of samples (credited before their whole group had scored), ``unparsable_share`` (without
    keys, so compared within the response) and ``uncredited/<cause>``.
    """
    credited = [sample for sample in samples if sample]
    total = {name: sum(float(getattr(sample, name)) for sample in credited) for name in NUMBERS}
    causes = Counter(sample.cause for sample in credited if sample.cause)
    asked, judged = max(total["asked"], 1.0), max(total["replays"], 1.0)
    return {
        "credit/replays": total["replays"],
        "credit/replay_seconds": total["seconds"],
        "credit/generated_tokens": total["generated"],
        "credit/busy_seconds": total["busy_seconds"],
        "credit/valid_intervention_share": 1.0 - total["invalid"] / asked,
        "credit/cache_hit_share": total["cache_hits"] / max(total["requests"], 1.0),
        "credit/unjudged_share": total["unjudged"] / judged,
        "credit/timeout_share": total["timeouts"] / judged,
        "credit/unmet_share": total["unmet"] / max(len(credited), 1),
        "credit/unparsable_share": total["unparsable"] / max(len(credited), 1),
    } | {f"credit/uncredited/{cause}": count / max(len(credited), 1) for cause, count in sorted(causes.items())}


def check_failures(infos: Sequence[dict[str, Any]], step: int, run: RunDirectory) -> None:
    """Log the event ``credit_failed``, shown on the console, if credit estimation failed for too many samples.

    Samples without credit on purpose (`SPARED`) do not count.

    Raises:
        CreditFailedError: it failed for all samples that count.
    """
    samples = [SampleCredit.of_info(info) for info in infos]
    wanted = [sample for sample in samples if sample and sample.cause not in SPARED]
    reasons = Counter(sample.reason for sample in wanted if sample.cause == "failed")
    failed = reasons.total()
    if failed <= TOLERATED_SHARE * len(wanted):
        return
    reason = reasons.most_common(1)[0][0]
    run.log_event("credit_failed", step=step, samples=failed, wanted=len(wanted), reason=reason)
    if failed == len(wanted):
        raise CreditFailedError(
            f"step {step}: credit estimation failed for all {failed} samples that should have credit, so this run "
            f"trains as credit=off would. Most frequent reason: {reason}. See logs/ in {run.path}, fix the cause and "
            "start the same run again, or train with credit=off."
        )
