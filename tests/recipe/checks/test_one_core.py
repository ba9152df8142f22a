"""A process that may use one core alone: its threads, what it prints, and the memory plan."""

import json
import os
import subprocess
import sys
from unittest.mock import patch

import pytest

OWN = 0  # the calling process, for the system call


RANKS = (1, 2)


def with_ranks(arguments: list[str], ranks: int) -> list[str]:
    return [*arguments, f"trainer.n_gpus_per_node={ranks}"]


def look(arguments: list[str]) -> None:
    """Run preflight on one core for 1 and 2 ranks; print its status and what a run would use, each as JSON."""
    os.sched_setaffinity(OWN, {min(os.sched_getaffinity(OWN))})
    import torch

    from recipe import preflight
    from recipe.checks import machine
    from recipe.runtime.ray_session import processor_environment

    patch.object(machine, "free_memory", lambda: 2**40).start()  # other programs' use is not this test's matter
    for words in (with_ranks(arguments, ranks) for ranks in RANKS):
        status = preflight.main(words)
        config = preflight.compose_training(words)
        found = {"status": status, "torch": torch.get_num_threads(), "run": processor_environment(config)}
        print(json.dumps(found | {"memory": memory(words)}))


def memory(arguments: list[str]) -> dict[str, int]:
    """Bytes of a run with these arguments, by part."""
    from recipe.memory import read_plan

    return dict(read_plan(arguments, 0.0).layout.training)


@pytest.mark.slow
def test_a_run_on_one_core_has_one_thread_and_the_same_plan(tiny_arguments: list[str]):
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    command = [sys.executable, "-m", "tests.recipe.checks.test_one_core", *tiny_arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    notes = [line for line in lines if line.startswith("cores:")]
    looks = [json.loads(line) for line in lines if line.startswith("{")]
    for ranks, note, found in zip(RANKS, notes, looks, strict=True):
        assert found["status"] == 0, done.stdout
        assert found["torch"] == 1
        assert found["run"] == {"OMP_NUM_THREADS": "1"}
        assert found["memory"] == memory(with_ranks(tiny_arguments, ranks))
        assert note.startswith("cores: 1; threads of each process: 1 (OMP_NUM_THREADS)")
        assert ("2 ranks share them: set trainer.n_gpus_per_node=1" in note) == (ranks == 2)


if __name__ == "__main__":
    look(sys.argv[1:])
