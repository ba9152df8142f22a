"""The garbage collector looks for cycles rarely in every process of a run on a CPU, and still finds them."""

import gc
import pkgutil
import subprocess
import sys
import weakref
from collections.abc import Iterator

import pytest

from tests.composing import composed
from workers.cpu.collection import OBJECTS, collect_rarely

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


def test_the_hook_that_ray_calls_in_each_worker_of_a_cpu_run_collects_rarely():
    pkgutil.resolve_name(composed("experiment=quickstart").ray_kwargs.ray_init.runtime_env.worker_process_setup_hook)()
    assert gc.get_threshold() == (OBJECTS, 10, 10)


class Cycle:
    def __init__(self) -> None:
        self.itself = self


def test_cycles_are_still_found_without_a_call():
    collect_rarely()
    cycles = [weakref.ref(Cycle()) for _ in range(2 * OBJECTS)]
    assert sum(cycle() is None for cycle in cycles) > OBJECTS / 2


@pytest.mark.parametrize(
    ("start", "platform", "threshold"),
    [
        ("import recipe.runtime.quiet", "", OBJECTS),
        ("from workers.cpu.vllm_plugin import platform; platform()", "cpu", OBJECTS),
        ("from workers.cpu.vllm_plugin import platform; platform()", "", 700),
    ],
)
def test_commands_and_the_engine_of_a_cpu_run_collect_rarely(start: str, platform: str, threshold: int):
    command = [sys.executable, "-c", f"{start}; import gc; print(gc.get_threshold()[0])"]
    found = subprocess.run(command, env={"VERL_PLATFORM": platform}, capture_output=True, text=True, check=True)
    assert int(found.stdout) == threshold
