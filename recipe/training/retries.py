"""Retries of failed prompts: which samples count as failures, and which prompts of a batch a retry replaces."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

import numpy as np
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.utils import tensordict_utils as tu
from verl.utils.dataset.rl_dataset import collate_fn

from recipe.training.failure_buffer import FailureBuffer
from recipe.training.step_samples import fetch
from rewards.skills import task_of


def prompt_batch(dataset: Any, rows: Sequence[int]) -> TensorDict:
    """Rows as a batch of verl's dataloader, each with its own group (``uid``)."""
    batch: dict[str, Any] = collate_fn([dataset[row] for row in rows])
    batch["uid"] = np.array([str(uuid4()) for _ in rows], dtype=object)
    return tu.get_tensordict(batch)


def rows_of_tasks(dataset: Any) -> dict[str, int]:
    """Row of each task in the training data, which may have changed since a checkpoint."""
    return {task_of(info): row for row, info in enumerate(dataset.dataframe["extra_info"])}


def with_failed_again(
    batch: TensorDict, failures: FailureBuffer, share: float, dataset: Any, row_of: Mapping[str, int]
) -> TensorDict:
    """The batch, with its last prompts (at most `share` of it) replaced by ones that the policy failed before.

    No task is duplicated: tasks of the original batch are not drawn, even if their prompt is replaced.
    """
    tasks = failures.draw(int(share * len(batch)), without=map(task_of, list(batch["extra_info"])))
    rows = [row_of[task] for task in tasks if task in row_of]
    if not rows:
        return batch
    return tu.concat_tensordict([batch[: len(batch) - len(rows)], prompt_batch(dataset, rows)])


def record_failures(
    batch: KVBatchMeta, infos: Sequence[Mapping[str, Any]], failures: FailureBuffer
) -> dict[str, float]:
    """Record the outcomes of a step's verified samples; returns ``failures/waiting``."""
    tasks = map(task_of, list(fetch(batch, "extra_info")["extra_info"]))
    judged = [(task, info) for task, info in zip(tasks, infos, strict=True) if info and not info.get("masked")]
    failures.record((task, info.get("acc", 0.0) > 0) for task, info in judged)
    return {"failures/waiting": float(len(failures))}
