"""Runs of pytest side by side: two at a time, all end, all are shown, and one that fails is the status."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from scripts.side_by_side import AT_ONCE, failures, runs_of

ROOT = Path(__file__).parents[2]
NAMES = ("first", "second", "third")


def command_of(folder: Path, texts: Mapping[str, str]) -> dict[str, Any]:
    """Arguments of `Popen` for these test files side by side, each a run without pytest's plugins."""
    words: list[str] = []
    for name, text in texts.items():
        (folder / f"test_{name}.py").write_text(text)
        words += ["--", "-c/dev/null", "-v", "-pno:cacheprovider", str(folder / f"test_{name}.py")]
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return {"args": [sys.executable, "-m", "scripts.side_by_side", *words[1:]], "cwd": ROOT, "env": environment}


def test_two_dashes_separate_the_runs():
    assert runs_of(["-m", "fast", "a", "--", "b"]) == [["-m", "fast", "a"], ["b"]]


@pytest.mark.slow
@pytest.mark.parametrize("failing", ["first", "third"])
def test_each_run_is_shown_in_order_and_one_that_fails_is_the_status(tmp_path: Path, failing: str):
    texts = {name: f"def test_{name}():\n    assert {name != failing}\n" for name in NAMES}
    done = subprocess.run(**command_of(tmp_path, texts), capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    places = [done.stdout.index(f"test_{name}.py") for name in NAMES]
    assert places == sorted(places)
    printed_again = done.stdout.rpartition("FAILED ")[2]
    assert printed_again.startswith(f"test_{failing}::test_{failing}\n")
    assert "assert False" in printed_again
    assert "test session starts" not in printed_again


def test_a_run_without_a_report_is_reported():
    assert list(failures(Path("/nowhere/0"))) == ["FAILED a whole run: it ended without a report"]


WAITS = """
import pathlib, time
folder = pathlib.Path({folder!r})
def test_here():
    (folder / "{name}.begun").touch()
    until = time.monotonic() + 60
    while not (folder / "{awaited}.begun").exists() and time.monotonic() < until:
        time.sleep(0.05)
    begun = sorted(path.stem for path in folder.glob("*.begun"))
    assert begun == {begun}
"""


@pytest.mark.slow
def test_a_run_begins_when_one_before_it_has_ended(tmp_path: Path):
    """The first waits for the third, which begins after the second; the second waits for the first."""
    assert AT_ONCE == 2
    awaited = {"first": "third", "second": "first", "third": "third"}
    begun = {"first": [*NAMES], "second": [*NAMES[:2]], "third": [*NAMES]}
    texts = {
        name: WAITS.format(folder=str(tmp_path), name=name, awaited=awaited[name], begun=begun[name]) for name in NAMES
    }
    done = subprocess.run(**command_of(tmp_path, texts), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


HOLDS = """
import pathlib, time, pytest
@pytest.fixture
def held():
    pathlib.Path("{name}.begun").touch()
    yield
    pathlib.Path("{name}.ended").touch()
def test_long(held):
    time.sleep(60)
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_runs_that_are_interrupted_tear_their_fixtures_down_and_no_other_begins(tmp_path: Path, number: signal.Signals):
    command = command_of(tmp_path, {name: HOLDS.format(name=tmp_path / name) for name in NAMES})
    with subprocess.Popen(**command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        until = time.monotonic() + 60
        while len(list(tmp_path.glob("*.begun"))) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        process.send_signal(number)
        assert process.wait(120) != 0
    assert sorted(path.name for path in tmp_path.glob("*.ended")) == ["first.ended", "second.ended"]
    assert not (tmp_path / "third.begun").exists()
