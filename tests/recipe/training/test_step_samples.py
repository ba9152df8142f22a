from types import SimpleNamespace

import torch
import transfer_queue as tq
from transfer_queue import KVBatchMeta

from recipe.training.step_samples import component_means, digest_of_prompts, jagged, readable_samples, reward_infos


def test_components_are_means_over_the_samples_that_were_verified():
    infos = [
        {
            "acc": 1.0, "format": 0.5, "error": "none", "masked": 0.0, "skill": "sql", "credit_seconds": 9.0,
            "busy_seconds": 0.5, "credit_busy_seconds": 2.0,
        },
        {"acc": 0.0, "format": 1.0, "error": "timeout", "masked": 0.0, "busy_seconds": 0.25},
        {"acc": 0.0, "format": 0.0, "error": "infrastructure", "masked": 1.0, "busy_seconds": 0.0},
        {},
    ]  # fmt: skip
    assert component_means(infos) == {
        "reward/acc": 0.5,
        "reward/format": 0.75,
        "reward/error/none": 0.5,
        "reward/error/timeout": 0.5,
        "reward/busy_seconds": 0.375,
        "reward/sandbox_seconds": 2.75,
    }


def test_a_digest_names_prompts_and_their_order():
    first, second = {"id": "a"}, {"index": 2}
    assert digest_of_prompts([first, second]) == digest_of_prompts([{"id": "a"}, {"index": 2, "split": "train"}])
    assert digest_of_prompts([first, second]) != digest_of_prompts([second, first])


BATCH = KVBatchMeta(partition_id="train", keys=["b_0_0", "a_0_0"], tags=[{}, {"is_padding": True}])


def test_padding_has_no_own_components(monkeypatch):
    fields = {"extra_fields": [{"reward_extra_info": {"acc": 1.0}}, {"reward_extra_info": {"acc": 1.0}}]}
    monkeypatch.setattr(tq, "kv_batch_get", lambda **_: fields)
    assert reward_infos(BATCH) == [{"acc": 1.0}, {}]


def test_samples_are_written_as_text_with_their_components(monkeypatch):
    asked = []

    def stored(keys, partition_id, select_fields):
        asked.append((keys, partition_id))
        return {
            "prompts": jagged([torch.tensor([1, 2])]),
            "responses": jagged([torch.tensor([3])]),
            "rm_scores": jagged([torch.tensor([0.5])]),
            "extra_fields": [{"reward_extra_info": {"credit_values": torch.tensor([1.0])}}],
            "reward_model": [{"ground_truth": "6"}],
        }

    monkeypatch.setattr(tq, "kv_batch_get", stored)
    tokenizer = SimpleNamespace(decode=lambda ids, skip_special_tokens: "".join(map(str, ids.tolist())))
    assert readable_samples(BATCH, 1, tokenizer) == [
        {
            "key": "a_0_0", "prompt": "12", "response": "3", "ground_truth": "6", "score": 0.5,
            "credit_values": [1.0],
        }
    ]  # fmt: skip
    assert asked == [(["a_0_0"], "train")]
    assert readable_samples(BATCH, 0, tokenizer) == []
