"""verl finds our engines in its registry."""

import copy

import pytest
from verl.workers.engine import EngineRegistry

from workers import engines
from workers.engines import CpuValueEngine, PolicyEngine


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EngineRegistry, "_engines", copy.deepcopy(EngineRegistry._engines))


@pytest.mark.parametrize(("device", "vendor"), [("cuda", "nvidia"), ("cuda", "amd"), ("npu", "huawei"), ("cpu", "cpu")])
def test_the_policy_has_our_engine_on_every_platform(device: str, vendor: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(engines, "get_device_name", lambda: device)
    monkeypatch.setattr(engines, "get_vendor", lambda: vendor)
    monkeypatch.setenv("VERL_ENGINE_DEVICE", device)
    monkeypatch.setenv("VERL_ENGINE_VENDOR", vendor)
    engines.register_engines()
    engines.register_engines()
    for backend in ("fsdp", "fsdp2"):
        assert EngineRegistry.get_engine_cls("language_model", backend) is PolicyEngine
    assert (EngineRegistry.get_engine_cls("value_model", "fsdp2") is CpuValueEngine) == (device == "cpu")
