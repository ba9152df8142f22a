"""Shared fixtures of the end-to-end tests: the quickstart's model, and processes that are stopped after use."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.chaos.__main__ import VICTIMS
from benchmarks.chaos.checks import names_cause
from benchmarks.chaos.processes import kill
from recipe.records.pictures import series
from recipe.records.run_directory import RunDirectory
from tests.processes import PATIENCE, living_descendants

RAY_AGENTS = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")
ROOT = Path(__file__).parents[2]


START_STEPS = 180
"""Of the supervised start: fewer right answers than after the quickstart's 540, and as much to learn."""


@pytest.fixture(scope="session")
def micro_start() -> Path:
    """data/e2e of this checkout, made by the quickstart's script, in fewer steps, unless it is up to date."""
    folder = ROOT / "data" / "e2e"
    words = [str(folder), f"trainer.total_training_steps={START_STEPS}"]
    subprocess.run(["bash", "scripts/micro_start.sh", *words], cwd=ROOT, check=True)
    return folder


@pytest.fixture(scope="session")
def bpe_start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small Llama that has a subword tokenizer (`model`) and rows for agents (train.parquet)."""
    from tests.e2e.bpe_start import make_bpe_start

    return make_bpe_start(tmp_path_factory.mktemp("bpe"))


@pytest.fixture(scope="session")
def english_start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with rows of the English suite."""
    from tests.e2e.bpe_start import make_english_start

    return make_english_start(tmp_path_factory.mktemp("english"))


@pytest.fixture(scope="module")
def start() -> Iterator[Callable[..., subprocess.Popen]]:
    """Start a command in its own session; after a module's tests, kill those still running and their children."""
    started: list[subprocess.Popen] = []

    def run(*command: str, **environment: str) -> subprocess.Popen:
        variables = without_ray(os.environ)
        process = subprocess.Popen(
            command, cwd=ROOT, env=variables | environment, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        started.append(process)
        return process

    yield run
    for process in started:
        children = living_descendants(process.pid)
        for child in [process, *children]:
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                child.kill()
        process.wait()
        wait_until_gone(children)


@pytest.fixture(scope="module")
def cluster(start: Callable[..., subprocess.Popen], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment of a Ray cluster of two nodes."""
    from tests.e2e.on_cluster import two_nodes

    return two_nodes(start, tmp_path_factory)


def without_ray(environment: Mapping[str, str]) -> dict[str, str]:
    """A user's environment: nothing of a cluster or an account; the niceness that scripts/test.sh sets stays."""
    dropped = [key for key in environment if key.startswith(("RAY_", "WANDB_")) and key != "RAY_worker_niceness"]
    return {key: value for key, value in environment.items() if key not in dropped}


def quickstart(start: Path) -> list[str]:
    """Arguments of the quickstart's run from another start than its own."""
    return [
        "experiment=quickstart",
        f"data.train_files={start}/train.parquet",
        f"data.val_files={start}/val.parquet",
        f"actor_rollout_ref.model.path={start}/model",
    ]


def train(*arguments: str) -> list[str]:
    """The command that a user types, with this interpreter."""
    return [sys.executable, "-m", "recipe.train", *arguments]


AGREEMENT = 0.01
"""Largest mean difference, in a step, between engine and trainer in the probability of a sampled token."""


def assert_engine_agrees(run: RunDirectory, steps: int) -> None:
    """Fail unless engine and trainer agreed in every step, in any precision and for adapters as for all weights."""
    _, differences = series(run.metrics(), "training/rollout_probs_diff_mean")
    assert len(differences) == steps
    assert max(differences) < AGREEMENT


def assert_exported(start: Callable[..., subprocess.Popen], made: Path, run: RunDirectory) -> None:
    """Export the run's model: any program can load it, and it is not `made`/model, which training began with."""
    exported = run.path.parents[1] / "model"
    export = [sys.executable, "-m", "recipe.export", str(run.path), "--out", str(exported), "--prompts", "0"]
    output, _ = (process := start(*export)).communicate(timeout=PATIENCE)
    assert process.returncode == 0, output[-6000:]
    for folder in (made / "model", exported):
        assert "attn_implementation" not in json.loads((folder / "config.json").read_text())
    before, after = _weights(made / "model"), _weights(exported)
    assert after.keys() == before.keys()
    assert any((new != before[name]).any() for name, new in after.items())


def _weights(folder: Path) -> dict[str, Any]:
    from transformers import AutoModelForCausalLM

    state: dict[str, Any] = AutoModelForCausalLM.from_pretrained(folder).state_dict()
    return state


def wait_until_gone(processes: list[psutil.Process], seconds: float = 60) -> None:
    """Fail if one of these processes is still alive after `seconds`.

    Two small agents of Ray notice the death of a killed driver only after minutes; this function kills them.
    """
    agents = [process for process in processes if _name(process) in RAY_AGENTS]
    _, alive = psutil.wait_procs([process for process in processes if process not in agents], timeout=seconds)
    for agent in agents:
        with contextlib.suppress(psutil.NoSuchProcess):
            agent.kill()
    assert not alive, f"left behind: {alive}"


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""


def wait_for(condition: Callable[[], bool], process: subprocess.Popen, seconds: float) -> None:
    """Wait until the condition holds; fail with the output if the process exits or the time runs out first."""
    deadline = time.monotonic() + seconds
    while True:
        ended = process.poll() is not None  # before the condition: the last thing that a process did counts
        if condition():
            return
        if ended or time.monotonic() > deadline:
            process.kill()
            pytest.fail(f"did not come about in {seconds} s; the output was:\n{process.communicate()[0][-4000:]}")
        time.sleep(0.5)


def end_by_kill(command: subprocess.Popen, victim: str) -> None:
    """Kill -9 one process of a run, which then has to end, to name it, and to leave no process behind.

    victim: one of benchmarks.chaos, which kills all of them, at random times, and runs nightly.
    """
    children = living_descendants(command.pid)
    killed = [child for child in children if _name(child).startswith(VICTIMS[victim])]
    assert kill(killed[0] if victim != "command" else psutil.Process(command.pid))
    output, _ = command.communicate(timeout=PATIENCE)
    assert command.returncode != 0
    assert victim == "command" or names_cause(output, victim), output[-6000:]
    wait_until_gone(children)


@contextlib.contextmanager
def without_checkpoint(run: RunDirectory, step: int) -> Iterator[None]:
    """Let no checkpoint of this step be written within the block: a file has the name of its folder."""
    folder = run.checkpoints / f"global_step_{step}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.touch()
    yield
    folder.unlink()
