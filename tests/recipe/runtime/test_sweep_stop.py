"""SIGTERM to a multirun reaches its run, and no other run begins."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from recipe.runtime.options import Options
from recipe.runtime.sweep import JobFailed, run_job
from recipe.studies.steps import CommandFailed, Steps

TRAINING = """#!{python} -S
import pathlib, signal, sys, time
folder = pathlib.Path({folder!r})
signal.signal(signal.SIGTERM, lambda *_: sys.exit({status}))
(folder / "began").touch()
while not (folder / "end").exists():
    time.sleep(0.02)
sys.exit({status})
"""


def training(folder: Path, monkeypatch, status: int) -> None:
    """Stands in for the interpreter that runs recipe.train."""
    script = folder / "python"
    script.write_text(TRAINING.format(python=sys.executable, folder=str(folder), status=status))
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    monkeypatch.setenv("SKILLCREDIT_HOME", str(folder))


def job(folder: Path) -> None:
    run_job(OmegaConf.create({"run": {"root": "outputs", "experiment": "e", "name": "${seed}"}, "seed": "s1"}), [])


@contextmanager
def asked_once_it_began(folder: Path) -> Iterator[None]:
    """SIGTERM to this process once the training's signal handler is there."""

    def ask() -> None:
        while not (folder / "began").exists():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    asking = threading.Thread(target=ask)
    asking.start()
    yield
    asking.join()


@pytest.mark.parametrize("status", [143, 0, 1])
def test_a_run_that_was_asked_to_stop_ends_the_multirun_however_it_ends(tmp_path: Path, monkeypatch, status: int):
    training(tmp_path, monkeypatch, status)
    with asked_once_it_began(tmp_path), pytest.raises(SystemExit) as ended:
        job(tmp_path)
    assert ended.value.code == 143


@pytest.mark.parametrize("status", [143, 0, 1])
def test_a_study_that_was_asked_to_stop_ends_however_its_command_ends(tmp_path: Path, monkeypatch, status: int):
    training(tmp_path, monkeypatch, status)
    steps = Steps(Options())
    with asked_once_it_began(tmp_path), pytest.raises(CommandFailed) as ended:
        steps.attempt("anything")
    assert (ended.value.status, steps.failed) == (143, 0)


def test_a_run_that_failed_lets_the_others_run(tmp_path: Path, monkeypatch):
    training(tmp_path, monkeypatch, 1)
    (tmp_path / "end").touch()
    with pytest.raises(JobFailed, match="ended with exit status 1"):
        job(tmp_path)
