"""Samples that no verifier could judge: an infrastructure failure is no score, so they are left out of the update."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import transfer_queue as tq
from transfer_queue import KVBatchMeta
from verl.utils import tensordict_utils as tu

from recipe.training.samples import fetch, jagged


class TooManyMaskedError(RuntimeError):
    """More samples of a step than the configured share could not be verified: the reward infrastructure is down."""


def masked_positions(infos: Sequence[Mapping[str, Any]]) -> tuple[list[int], float]:
    """Where the samples stand that could not be verified, and their share of those that were tried."""
    masked = [position for position, info in enumerate(infos) if info.get("masked")]
    return masked, len(masked) / max(sum(map(bool, infos)), 1)


def leave_out(batch: KVBatchMeta, masked: Sequence[int]) -> None:
    """Give these samples no loss tokens and a group of their own, so that no baseline sees them."""
    keys = [batch.keys[position] for position in masked]
    data = fetch(batch, "uid", "response_mask", "loss_mask", keys=keys)
    uids = [f"{uid}-masked-{position}" for uid, position in zip(list(data["uid"]), masked, strict=True)]
    fields = {name: jagged(map(torch.zeros_like, data[name].unbind())) for name in ("response_mask", "loss_mask")}
    tq.kv_batch_put(keys=keys, partition_id=batch.partition_id, fields=tu.get_tensordict({**fields, "uid": uids}))


def check_share(share: float, allowed: float, step: int, folder: object) -> None:
    """Stop a run whose verifiers are down.

    Raises:
        TooManyMaskedError: more than the allowed share was masked.
    """
    if share > allowed:
        raise TooManyMaskedError(
            f"step {step}: {share:.0%} of the samples could not be verified, more than "
            f"run.max_masked_share={allowed}. The sandbox or a verifier is down: "
            f"see logs/ in {folder}, mend it, and start the same run again."
        )
