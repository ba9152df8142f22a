import pytest
import torch
import transfer_queue as tq
from transfer_queue import KVBatchMeta

from recipe.training.step_samples import TooManyMaskedError, check_share, jagged, leave_out, masked_positions


def test_the_masked_are_counted_among_those_that_were_tried():
    assert masked_positions([{"masked": 1.0}, {"masked": 0.0}, {}, {"acc": 1.0}, {"masked": 1.0}]) == ([0, 4], 0.5)
    assert masked_positions([{}]) == ([], 0.0)


def test_left_out_samples_have_no_loss_tokens_and_a_group_of_their_own(monkeypatch):
    batch = KVBatchMeta(partition_id="train", keys=["a", "b", "c"], tags=[{}] * 3)
    mask = jagged([torch.ones(2), torch.ones(3)])
    put = {}
    monkeypatch.setattr(tq, "kv_batch_get", lambda **_: {"uid": ["u", "u"], "response_mask": mask, "loss_mask": mask})
    monkeypatch.setattr(tq, "kv_batch_put", lambda **arguments: put.update(arguments))
    leave_out(batch, [0, 2])
    assert put["keys"] == ["a", "c"]
    assert list(put["fields"]["uid"]) == ["u-masked-0", "u-masked-2"]
    for field in ("response_mask", "loss_mask"):
        assert [row.tolist() for row in put["fields"][field].unbind()] == [[0, 0], [0, 0, 0]]


def test_a_run_whose_verifiers_are_down_stops_with_a_way_out():
    check_share(0.5, 0.5, 3, "outputs/run")
    with pytest.raises(TooManyMaskedError, match=r"step 3: 60% .* run\.max_masked_share=0\.5.*logs/ in outputs/run"):
        check_share(0.6, 0.5, 3, "outputs/run")
