"""A step's samples in verl's transfer queue: seeds, verdicts, masks and readable records.

A sample that could not be verified is left out of the update: an infrastructure failure is no score. A validation
reports greedy accuracy in addition to sampled accuracy, which also rises when a model only becomes more confident.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np
import torch
import transfer_queue as tq
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.agent_loop_tq import apply_greedy_sampling_params
from verl.utils import tensordict_utils as tu

from rewards.requests import seed_of
from rewards.sample_credit import PREFIX
from rewards.skills import SkillOf, task_of

GREEDY = "greedy"  # batch field: whether a prompt is answered greedily
_ANSWERS = "__rollout_n__"  # verl's batch field: answers per prompt


class GreedyPrompts:
    """Batches of a validation's dataloader, marked to answer each prompt once, greedily."""

    def __init__(self, batches: Iterable[dict[str, Any]]):
        self._batches = batches

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in self._batches:
            size = len(batch["raw_prompt"])
            marks = {GREEDY: True, _ANSWERS: 1}
            yield batch | {key: np.array([value] * size, dtype=object) for key, value in marks.items()}


class FewerAnswers:
    """Batches of a validation's dataloader, marked to answer prompts of other skills than `fully` fewer times.

    answers: per prompt of the skills `fully`, and of all others.
    """

    def __init__(
        self, batches: Iterable[dict[str, Any]], skill_of: SkillOf, fully: Sequence[str], answers: tuple[int, int]
    ):
        self._batches, self._skill_of, self._fully, self._answers = batches, skill_of, fully, answers

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in self._batches:
            rows = ({key: values[row] for key, values in batch.items()} for row in range(len(batch["raw_prompt"])))
            counts = [self._answers[self._skill_of(row) not in self._fully] for row in rows]
            yield batch | {_ANSWERS: np.array(counts, dtype=object)}


GREEDY_MASKED = "skill/greedy_masked_share"
"""Metric; none if it would be 0."""


def sampling_of(sampling_params: Mapping[str, Any], row: MutableMapping[str, Any]) -> dict[str, Any]:
    """Sampling parameters of this row, greedy if its field GREEDY is set; removes the field."""
    chosen = dict(sampling_params)
    if row.pop(GREEDY, False):
        apply_greedy_sampling_params(chosen)
    return chosen


def greedy_metrics(metrics: Mapping[str, float]) -> dict[str, float]:
    """``skill/<name>/greedy_accuracy``, from the metrics of a validation on `GreedyPrompts`; the share of answers that
    could not be verified, if any."""
    masked = metrics.get("skill/masked_share", 0.0)
    return {
        f"{key.removesuffix('accuracy')}greedy_accuracy": value
        for key, value in metrics.items()
        if key.startswith("skill/") and key.endswith("/accuracy")
    } | ({GREEDY_MASKED: masked} if masked else {})


# Batch field: how often the same step has submitted a prompt's task already.
TIMES_BEFORE = "times_before"


class TimesBefore:
    """Counts how often a step has submitted each task already.

    A small pool repeats rows, and verl samples again to replace groups that it filters out
    (``algorithm.filter_groups``).
    """

    def __init__(self) -> None:
        self._step: int | None = None
        self._seen = Counter[str]()

    def of(self, step: int, tasks: Iterable[str]) -> list[int]:
        """The count of each of these tasks, which the step submits now; a new step restarts at 0."""
        if step != self._step:
            self._step, self._seen = step, Counter()
        numbers = []
        for task in tasks:
            numbers.append(self._seen[task])
            self._seen[task] += 1
        return numbers


def sample_seed(rollout_seed: int, answers: int, trajectory: Mapping[str, Any], row: Mapping[str, Any]) -> int:
    """Seed of one sample, from the step, the task, its number among the task's samples, and training or validation.

    answers: per prompt in training. trajectory: verl's `step` and `validate`. row: fields of the data row.
    """
    number = row["session_id"] + answers * row.get(TIMES_BEFORE, 0)
    task = task_of(row["extra_info"])
    return seed_of(rollout_seed, trajectory["step"], bool(trajectory["validate"]), task, number)


def fetch(batch: KVBatchMeta, *fields: str, keys: Sequence[str] | None = None) -> Any:
    """The named fields of a batch's samples, or only of those with the given keys, in their order."""
    return tq.kv_batch_get(
        keys=batch.keys if keys is None else keys, partition_id=batch.partition_id, select_fields=list(fields)
    )


def jagged(rows: Iterable[torch.Tensor]) -> torch.Tensor:
    """Rows of different lengths as verl's jagged nested tensor."""
    return torch.nested.as_nested_tensor(list(rows), layout=torch.jagged)


def reward_infos(batch: KVBatchMeta) -> list[dict[str, Any]]:
    """Reward components of each sample; empty for verl's padding, which repeats the first sample."""
    return [
        fields.get("reward_extra_info", {}) if isinstance(fields, dict) and not tag.get("is_padding") else {}
        for fields, tag in zip(list(fetch(batch, "extra_fields")["extra_fields"]), batch.tags, strict=True)
    ]


def component_means(infos: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """``reward/<component>``: mean over the verified samples; ``reward/error/<class>``, ``reward/guard/<sign>``: share.

    ``reward/sandbox_seconds``: busy time of the sandbox workers for all samples and their replays.
    """
    values: dict[str, list[float]] = defaultdict(list)
    verified = [info for info in infos if info and not info.get("masked")]
    for info in verified:
        for key, value in info.items():
            if key == "error":
                values[f"error/{value}"].append(1.0)
            elif key == "guard" and value != "none":
                values[f"guard/{value}"].append(1.0)
            elif isinstance(value, int | float) and not key.startswith(PREFIX):
                values[key].append(float(value))
    count = max(len(verified), 1)
    means = {f"reward/{key}": sum(numbers) / count for key, numbers in values.items() if key != "masked"}
    seconds = (float(info.get(key, 0.0)) for info in infos for key in ("busy_seconds", f"{PREFIX}busy_seconds"))
    return means | {"reward/sandbox_seconds": sum(seconds)}


def digest_of_prompts(extra_infos: Iterable[Mapping[str, Any]]) -> str:
    """Short hash of a step's prompts; equal digests in two logs mean the same training data."""
    identities = "\n".join(map(task_of, extra_infos))
    return hashlib.sha256(identities.encode()).hexdigest()[:16]


def readable_samples(batch: KVBatchMeta, count: int, tokenizer: Any) -> list[dict[str, Any]]:
    """The first samples of a batch by key, as text with all reward components (verl's own dump lacks these)."""
    keys = sorted(batch.keys)[:count]
    if not keys:
        return []
    data = fetch(batch, "prompts", "responses", "rm_scores", "extra_fields", "reward_model", keys=keys)
    rows = []
    for position, (key, extra, truth) in enumerate(
        zip(keys, list(data["extra_fields"]), list(data["reward_model"]), strict=True)
    ):
        info = extra.get("reward_extra_info", {}) if isinstance(extra, dict) else {}
        rows.append(
            {
                "key": key,
                "prompt": tokenizer.decode(data["prompts"][position], skip_special_tokens=True),
                "response": tokenizer.decode(data["responses"][position], skip_special_tokens=True),
                "ground_truth": truth.get("ground_truth"),
                "score": float(data["rm_scores"][position].sum()),
                **{name: _plain(value) for name, value in info.items()},
            }
        )
    return rows


def _plain(value: Any) -> Any:
    """Arrays as lists, for JSON."""
    return value.tolist() if hasattr(value, "tolist") else value


class TooManyMaskedError(RuntimeError):
    """The share of a step's samples that could not be verified is too large: the reward infrastructure is down."""


def masked_positions(infos: Sequence[Mapping[str, Any]]) -> tuple[list[int], float]:
    """Positions of the samples that could not be verified, and their share."""
    masked = [position for position, info in enumerate(infos) if info.get("masked")]
    return masked, len(masked) / max(sum(map(bool, infos)), 1)


def leave_out(batch: KVBatchMeta, masked: Sequence[int]) -> None:
    """Mask all tokens of these samples and move each to its own group, so that no baseline includes them."""
    keys = [batch.keys[position] for position in masked]
    data = fetch(batch, "uid", "response_mask", "loss_mask", keys=keys)
    uids = [f"{uid}-masked-{position}" for uid, position in zip(list(data["uid"]), masked, strict=True)]
    fields = {name: jagged(map(torch.zeros_like, data[name].unbind())) for name in ("response_mask", "loss_mask")}
    tq.kv_batch_put(keys=keys, partition_id=batch.partition_id, fields=tu.get_tensordict({**fields, "uid": uids}))


def check_share(share: float, allowed: float, step: int, folder: object) -> None:
    """Stop the run if too many samples could not be verified.

    Raises:
        TooManyMaskedError: the masked share exceeds the allowed one.
    """
    if share > allowed:
        raise TooManyMaskedError(
            f"step {step}: {share:.0%} of the samples could not be verified, more than "
            f"run.max_masked_share={allowed}. The sandbox or a verifier is down: "
            f"see logs/ in {folder}, fix it, and start the same run again."
        )
