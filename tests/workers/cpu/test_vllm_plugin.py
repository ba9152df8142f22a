"""vLLM takes our platform on verl's platform ``cpu``, and its own anywhere else."""

import json
import os
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from workers.cpu.vllm_plugin import platform

ROOT = Path(__file__).parents[3]
OURS = "workers.cpu.vllm_platform.TrainingCpuPlatform"


def printed(program: str, verl_platform: str | None) -> str:
    """The last line that a program prints in a process with this VERL_PLATFORM."""
    environment = {name: value for name, value in os.environ.items() if name != "VERL_PLATFORM"}
    environment |= {} if verl_platform is None else {"VERL_PLATFORM": verl_platform}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("cpu", OURS), (" CPU ", OURS), ("nvidia", None), ("", None), (None, None)],
)
def test_the_platform_is_ours_on_verls_cpu_platform_only(
    name: str | None, expected: str | None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("VERL_PLATFORM", raising=False)
    if name is not None:
        monkeypatch.setenv("VERL_PLATFORM", name)
    assert platform() == expected


def test_the_entry_point_is_the_function():
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    (value,) = points["vllm.platform_plugins"].values()
    assert EntryPoint("ours", value, "vllm.platform_plugins").load() is platform


def test_the_plugin_imports_neither_torch_nor_vllm():
    program = "import sys, workers.cpu.vllm_plugin; print([n for n in ('torch', 'vllm', 'verl') if n in sys.modules])"
    assert printed(program, "cpu") == "[]"


FOUND = """
import json
from vllm.config import ParallelConfig, VllmConfig
from vllm.platforms import current_platform
from vllm.utils.import_utils import resolve_obj_by_qualname
configs = [VllmConfig(), VllmConfig(parallel_config=ParallelConfig(worker_cls="a.Worker"))]
kind, wrapper = type(current_platform), resolve_obj_by_qualname(current_platform.get_punica_wrapper())
workers = [config.parallel_config.worker_cls for config in configs]
print(json.dumps([f"{one.__module__}.{one.__qualname__}" for one in (kind, wrapper)] + workers))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("verl_platform", "expected"),
    [
        ("cpu", [OURS, "workers.cpu.lora.OneAdapterPunicaWrapper", "workers.cpu.vllm_worker.TrainingCpuWorker"]),
        (
            None,
            [
                "vllm.platforms.cpu.CpuPlatform",
                "vllm.lora.punica_wrapper.punica_cpu.PunicaWrapperCPU",
                "vllm.v1.worker.cpu_worker.CPUWorker",
            ],
        ),
    ],
    ids=["verl's cpu", "none"],
)
def test_vllm_takes_our_classes_on_verls_cpu_platform_only(verl_platform: str | None, expected: list[str]):
    assert json.loads(printed(FOUND, verl_platform)) == [*expected, "a.Worker"]
