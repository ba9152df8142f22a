"""Runs of pytest side by side: all end, all are shown, and one that fails is the status."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scripts.side_by_side import runs_of

ROOT = Path(__file__).parents[2]


def test_two_dashes_separate_the_runs():
    assert runs_of(["-m", "fast", "a", "--", "b"]) == [["-m", "fast", "a"], ["b"]]


@pytest.mark.parametrize("failing", ["first", "last", "none"])
def test_each_run_is_shown_and_one_that_fails_is_the_status(tmp_path: Path, failing: str):
    for name in ("first", "last"):
        (tmp_path / f"test_{name}.py").write_text(f"def test_{name}():\n    assert {name != failing}\n")
    words = ["-c/dev/null", "-v", "-pno:cacheprovider"]
    command = [*words, str(tmp_path / "test_first.py"), "--", *words, str(tmp_path / "test_last.py")]
    done = subprocess.run(
        [sys.executable, "-m", "scripts.side_by_side", *command], cwd=ROOT, capture_output=True, text=True
    )  # fmt: skip
    assert done.returncode == (failing != "none"), done.stdout + done.stderr
    assert done.stdout.index("test_last.py") < done.stdout.index("test_first.py")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_runs_that_are_interrupted_tear_their_fixtures_down(tmp_path: Path, number: signal.Signals):
    text = """
import pathlib, time, pytest
@pytest.fixture
def held():
    pathlib.Path("{name}.begun").touch()
    yield
    pathlib.Path("{name}.ended").touch()
def test_long(held):
    time.sleep(60)
"""
    for name in ("first", "last"):
        (tmp_path / f"test_{name}.py").write_text(text.format(name=tmp_path / name))
    command = ["-c/dev/null", str(tmp_path / "test_first.py"), "--", "-c/dev/null", str(tmp_path / "test_last.py")]
    with subprocess.Popen(
        [sys.executable, "-m", "scripts.side_by_side", *command], cwd=ROOT, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        until = time.monotonic() + 60
        while len(list(tmp_path.glob("*.begun"))) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        process.send_signal(number)
        assert process.wait(120) != 0
    assert sorted(path.name for path in tmp_path.glob("*.ended")) == ["first.ended", "last.ended"]
