"""Our platform names our LoRA wrapper, and our worker unless another one is named."""

from types import SimpleNamespace
from typing import Any

import pytest
from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU
from vllm.platforms.cpu import CpuPlatform
from vllm.utils.import_utils import resolve_obj_by_qualname
from vllm.v1.worker.cpu_worker import CPUWorker

from workers.cpu.vllm_platform import TrainingCpuPlatform

OURS = "workers.cpu.vllm_worker.TrainingCpuWorker"


@pytest.mark.parametrize(("named", "expected"), [("auto", OURS), ("a.Worker", "a.Worker")])
def test_our_worker_is_the_default_one_only(named: str, expected: str, monkeypatch: pytest.MonkeyPatch):
    seen: list[str] = []

    def theirs(cls: Any, config: Any) -> None:
        seen.append(config.parallel_config.worker_cls)
        if config.parallel_config.worker_cls == "auto":
            config.parallel_config.worker_cls = "vllm.v1.worker.cpu_worker.CPUWorker"

    monkeypatch.setattr(CpuPlatform, "check_and_update_config", classmethod(theirs))
    config: Any = SimpleNamespace(parallel_config=SimpleNamespace(worker_cls=named))
    TrainingCpuPlatform.check_and_update_config(config)
    assert config.parallel_config.worker_cls == expected
    assert seen == [named]


def test_the_named_classes_exist_and_extend_vllms():
    assert issubclass(resolve_obj_by_qualname(OURS), CPUWorker)
    assert issubclass(resolve_obj_by_qualname(TrainingCpuPlatform.get_punica_wrapper()), PunicaWrapperCPU)
