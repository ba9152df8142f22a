"""SIGTERM to a multirun reaches its run, and no other run begins."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from recipe.runtime.sweep import JobFailed, run_job

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


def test_a_run_that_was_asked_to_stop_ends_the_multirun(tmp_path: Path, monkeypatch):
    training(tmp_path, monkeypatch, 143)

    def ask() -> None:
        while not (tmp_path / "began").exists():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    asking = threading.Thread(target=ask)
    asking.start()
    with pytest.raises(SystemExit) as ended:
        job(tmp_path)
    asking.join()
    assert ended.value.code == 143


def test_a_run_that_failed_lets_the_others_run(tmp_path: Path, monkeypatch):
    training(tmp_path, monkeypatch, 1)
    (tmp_path / "end").touch()
    with pytest.raises(JobFailed, match="ended with exit status 1"):
        job(tmp_path)
