"""A step's samples in verl's transfer queue: what the verifiers said about them, and what is written down of them."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
import transfer_queue as tq
from transfer_queue import KVBatchMeta

from recipe.training.credit_batch import PREFIX
from recipe.training.failure_buffer import task_of


def fetch(batch: KVBatchMeta, *fields: str, keys: Sequence[str] | None = None) -> Any:
    """The named fields of a batch's samples, or of those of the given keys only, in their order."""
    return tq.kv_batch_get(
        keys=batch.keys if keys is None else keys, partition_id=batch.partition_id, select_fields=list(fields)
    )


def jagged(rows: Iterable[torch.Tensor]) -> torch.Tensor:
    """Rows of different lengths as verl keeps them."""
    return torch.nested.as_nested_tensor(list(rows), layout=torch.jagged)


def reward_infos(batch: KVBatchMeta) -> list[dict[str, Any]]:
    """Reward components of each sample; none for what verl pads a batch with, which repeats the first sample's."""
    return [
        fields.get("reward_extra_info", {}) if isinstance(fields, dict) and not tag.get("is_padding") else {}
        for fields, tag in zip(list(fetch(batch, "extra_fields")["extra_fields"]), batch.tags, strict=True)
    ]


def component_means(infos: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """``reward/<component>``: its mean over the samples that were verified; ``reward/error/<class>``: its share.

    ``reward/sandbox_seconds``: how long workers of the sandbox were busy with all of them and their replays.
    """
    values: dict[str, list[float]] = defaultdict(list)
    verified = [info for info in infos if info and not info.get("masked")]
    for info in verified:
        for key, value in info.items():
            if key == "error":
                values[f"error/{value}"].append(1.0)
            elif isinstance(value, int | float) and not key.startswith(PREFIX):
                values[key].append(float(value))
    count = max(len(verified), 1)
    means = {f"reward/{key}": sum(numbers) / count for key, numbers in values.items() if key != "masked"}
    seconds = (float(info.get(key, 0.0)) for info in infos for key in ("busy_seconds", f"{PREFIX}busy_seconds"))
    return means | {"reward/sandbox_seconds": sum(seconds)}


def digest_of_prompts(extra_infos: Iterable[Mapping[str, Any]]) -> str:
    """Names a step's prompts in a few letters, so that two logs tell whether they trained on the same data."""
    identities = "\n".join(map(task_of, extra_infos))
    return hashlib.sha256(identities.encode()).hexdigest()[:16]


def readable_samples(batch: KVBatchMeta, count: int, tokenizer: Any) -> list[dict[str, Any]]:
    """The first samples of a batch by key, as text with all their reward components (verl's own dump loses these)."""
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
