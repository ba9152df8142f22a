"""Positions of samples with images have three dimensions; sending them to a rank loses which one is ragged."""

import pickle
from types import SimpleNamespace
from typing import Any

import torch
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu

from workers.actor import CpuReadyTrainingWorker, SkillCreditTrainingWorker
from workers.constraints import MEMORY, filled_rows, passed_rows

LENGTHS = [3, 5, 2, 4]


def _batch() -> TensorDict:
    """Four samples as a rank gets them, the third only memory; positions (4, tokens) per sample."""
    positions = [torch.arange(4 * length).view(4, length) for length in LENGTHS]
    data = TensorDict({MEMORY: torch.tensor([False, False, True, False])}, batch_size=len(LENGTHS))
    data["input_ids"] = tu.nested_tensor_from_tensor_list([torch.arange(length) for length in LENGTHS])
    data["position_ids"] = tu.nested_tensor_from_tensor_list(positions)
    tu.assign_non_tensor(data, mini_batch_size=4, global_batch_size=4, temperature=1.0)
    sent = pickle.loads(pickle.dumps(data.consolidate()))  # noqa: S301 (as Ray sends it)
    assert sent["position_ids"]._ragged_idx == 1  # what verl repairs
    return sent


def test_rows_with_images_can_be_taken_out_for_constraints_and_for_the_update(monkeypatch):
    worker: Any = object.__new__(SkillCreditTrainingWorker)
    worker.engine = SimpleNamespace(get_data_parallel_size=lambda: 1)
    worker.engine_config = SimpleNamespace(micro_batch_size_per_gpu=None)
    worker._optimizer = lambda: torch.optim.SGD([torch.zeros(1, requires_grad=True)])
    seen: dict[str, Any] = {}

    def begin(data: TensorDict, wanted: Any, parts: Any) -> None:
        seen["constraint"] = filled_rows(passed_rows(data), [2, 1], 2, None)["position_ids"]

    def verls_own(worker: Any, data: TensorDict) -> None:
        seen["update"] = data["position_ids"]
        worker._begin()

    worker._begin_steps = begin
    monkeypatch.setattr(CpuReadyTrainingWorker, "train_mini_batch", verls_own)
    worker.train_mini_batch(_batch())
    assert [tuple(part.shape) for part in seen["update"].unbind()] == [(4, 3), (4, 5), (4, 4)]
    assert [part[3].tolist() for part in seen["constraint"].unbind()] == [[6, 7], [15, 16, 17, 18, 19]]
