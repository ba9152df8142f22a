"""Every rank gets the same number of samples: verl guarantees it, and paper A's method needs it."""

from types import SimpleNamespace

import pytest
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1 import trainer_base

from recipe.training.trainer import SkillCreditTrainer
from tests.composing import composed


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.slow
def test_ranks_get_equal_numbers_of_samples_whatever_their_lengths(monkeypatch: pytest.MonkeyPatch, ranks: int):
    def padded(batch, multiple, eos):
        pads = [f"pad_{number}_0" for number in range(-len(batch.keys) % multiple)]
        return KVBatchMeta(
            keys=batch.keys + pads, tags=batch.tags + [{"seq_len": 8}] * len(pads), partition_id=batch.partition_id
        )

    monkeypatch.setattr(trainer_base, "upsample_batch_to_divisible_size", padded)
    trainer = SkillCreditTrainer.__new__(SkillCreditTrainer)
    trainer.config = composed("experiment=quickstart", "actor_rollout_ref.actor.ppo_mini_batch_size=1")
    trainer.global_steps, trainer.use_critic, trainer._memory_prompts = 1, False, set()
    trainer.tokenizer = SimpleNamespace(eos_token_id=0)
    trainer.actor_rollout_wg = SimpleNamespace(_dispatch_info={"actor": list(range(ranks))})
    lengths = {f"u{number}_0_0": 1 + number**2 for number in range(13)}  # one session of a group was lost
    trainer._submission_order = {f"u{number}": number for number in range(14)}  # verl dropped the last group
    batch = KVBatchMeta(
        keys=list(lengths), tags=[{"seq_len": length} for length in lengths.values()], partition_id="train"
    )
    batch = trainer._balance_batch(batch, {})
    assert set(lengths) <= set(batch.keys)
    assert trainer._submission_order == {}
    assert len(batch.keys) == 16  # whole mini-batches (8 samples), which the ranks divide
    # verl splits a batch into consecutive parts; sorted by length alone, the last part would have most of the tokens.
    loads = [sum(tag["seq_len"] for tag in part) for part in _parts(batch.tags, ranks)]
    assert max(loads) <= 1.5 * sum(loads) / ranks


def _parts(tags: list[dict], ranks: int) -> list[list[dict]]:
    size = len(tags) // ranks
    return [tags[rank * size : (rank + 1) * size] for rank in range(ranks)]
