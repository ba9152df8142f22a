"""SIGTERM ends a run after its step, with a checkpoint; earlier, or a second time, at once."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from recipe.health.record import Record
from recipe.health.rules import findings
from recipe.pages.facts import state
from recipe.records.run_directory import RunDirectory
from recipe.runtime import stop_request
from recipe.runtime.stop_request import RunStopped, stop, stop_requested, stopping_on_sigterm
from tests.composing import composed


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.prepare(str(tmp_path), "quickstart", "r")


def sigterm() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.01)


@pytest.mark.slow
def test_a_command_ends_with_its_parent_even_if_that_is_killed(tmp_path: Path):
    start = (
        "import subprocess, time; from recipe.runtime.stop_request import end_with_parent as ending\n"
        "print(subprocess.Popen(['sleep', '600'], preexec_fn=ending, start_new_session=True).pid, flush=True)\n"
        "time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", start], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.communicate()
    state = Path(f"/proc/{child}/stat")
    deadline = time.monotonic() + 30
    while state.exists() and state.read_text().split()[2] != "Z" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert time.monotonic() < deadline


def test_the_first_signal_lets_the_step_end_and_the_trainer_save(run: RunDirectory, capsys):
    saved: list[int] = []
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(RunStopped, match="after step 5, with a checkpoint"), stopping_on_sigterm(run):  # noqa: PT012
        run.log_event("ready", step=0)
        assert not stop_requested(run)
        sigterm()
        assert stop_requested(run)  # what the trainer looks at when its step ends
        stop(run, 5, lambda: saved.append(5))
    assert saved == [5]
    assert "ends after this step" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_checkpoint_of_the_step_is_not_saved_again(run: RunDirectory):
    run.checkpoints.mkdir(exist_ok=True)
    (run.checkpoints / "latest_checkpointed_iteration.txt").write_text("4")
    stop(run, 4, lambda: pytest.fail("saved again"))
    assert run.events()[-1]["event"] == "stop"


def test_before_the_first_step_the_signal_ends_the_run_at_once(run: RunDirectory):
    run.log_event("ready", step=4)  # of an earlier start
    told = "at once; there is no checkpoint"
    with pytest.raises(RunStopped, match=told), stopping_on_sigterm(run):  # noqa: PT012
        sigterm()
        pytest.fail("went on")


def test_signals_at_the_same_time_are_one_request(run: RunDirectory):
    with stopping_on_sigterm(run):
        run.log_event("ready", step=0)
        sigterm()
        sigterm()
    assert stop_requested(run)


def test_a_second_signal_ends_the_run_at_once(run: RunDirectory, monkeypatch):
    monkeypatch.setattr(stop_request, "SAME_REQUEST", 0.0)
    (run.path / "stop").touch()  # of an earlier start: it asks nothing of this one
    with pytest.raises(RunStopped, match="at once"), stopping_on_sigterm(run):  # noqa: PT012
        run.log_event("ready", step=0)
        assert not stop_requested(run)
        sigterm()
        sigterm()
        pytest.fail("went on")


def test_a_run_that_ends_with_its_last_step_has_not_stopped(run: RunDirectory):
    with stopping_on_sigterm(run):
        run.log_event("ready", step=0)
        sigterm()


def test_ctrl_c_stays_ctrl_c(run: RunDirectory):
    with pytest.raises(KeyboardInterrupt), stopping_on_sigterm(run):
        raise KeyboardInterrupt


@pytest.mark.slow
def test_a_stopped_run_is_shown_and_diagnosed_as_one(run: RunDirectory):
    run.write_config(composed("experiment=quickstart"))
    run.log_event("stopped", reason="SIGTERM ended it after step 5, with a checkpoint")
    assert state(run.events()) == "stopped"
    found = {one.rule.name: one.seen for one in findings(Record.of(run, time.time()))}
    assert found["ended"] == "SIGTERM ended it after step 5, with a checkpoint"
