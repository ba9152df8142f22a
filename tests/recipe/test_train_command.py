"""Messages of `recipe.train` for a failed run; runs themselves are in tests/e2e."""

import errno
import io
import shlex
import subprocess
import sys

import pytest
from rich.console import Console

from recipe import report, train
from recipe.records.run_directory import RunDirectory
from recipe.runtime.ray_session import ClusterError
from recipe.runtime.stop_request import RunStopped
from recipe.train import announce, print_result, report_failure, write_page
from tests.composing import composed


def test_a_full_disk_is_reported_in_one_message_with_the_checkpoint_that_stays(tmp_path, monkeypatch):
    run = RunDirectory.prepare(str(tmp_path), "quickstart", "r")
    (run.checkpoints / "latest_checkpointed_iteration.txt").write_text("14")
    full = OSError(errno.ENOSPC, "No space left on device")

    def log_event(self, *arguments, **fields):
        raise full

    monkeypatch.setattr(RunDirectory, "log_event", log_event)
    printed = io.StringIO()
    report_failure(run, full, Console(file=printed))
    assert "the run failed: OSError: [Errno 28] No space left on device" in printed.getvalue()
    assert "its last checkpoint, of step 14, is complete" in printed.getvalue()


def test_without_a_checkpoint_none_is_promised(tmp_path):
    run = RunDirectory.prepare(str(tmp_path), "quickstart", "r")
    printed = io.StringIO()
    report_failure(run, ValueError("no"), Console(file=printed, width=200))
    assert "the run failed: ValueError: no" in printed.getvalue()
    assert "last checkpoint" not in printed.getvalue()
    assert [event["event"] for event in run.events()] == ["failed"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "status", "said", "on_its_page"),
    [
        (ValueError("no <reward>"), 1, "the run failed: ValueError: no <reward>", "ValueError: no &lt;reward&gt;"),
        (ClusterError("no <node>"), 2, "refused before training:\nno <node>", "no &lt;node&gt;"),
        (RunStopped("after step 3"), 143, "the run stopped: after step 3", "after step 3"),
        (
            KeyboardInterrupt(),
            130,
            "interrupted, without a checkpoint; the command above resumes it",
            "(SIGINT), without a",
        ),
    ],
)
def test_a_run_that_ended_early_has_a_page_with_the_reason(tmp_path, error, status, said, on_its_page):
    run = RunDirectory.prepare(str(tmp_path), "quickstart", "r")
    run.write_config(composed("experiment=quickstart"))
    printed = io.StringIO()

    def work() -> None:
        raise error

    assert train.status_of(work, run, Console(file=printed, width=200)) == status
    assert said in printed.getvalue()
    assert f"its page: {run.path / 'run.html'}\n" in printed.getvalue()
    assert on_its_page in (run.path / "run.html").read_text()


def test_a_run_that_came_to_its_end_has_status_0(tmp_path):
    run = RunDirectory.prepare(str(tmp_path), "quickstart", "r")
    assert train.status_of(lambda: None, run, Console(file=io.StringIO())) == 0
    assert run.events() == []


def test_terminal_codes_in_an_error_are_shown_and_do_nothing(tmp_path, capsys):
    run = RunDirectory.prepare(str(tmp_path), "quickstart", "r")
    printed = io.StringIO()
    report_failure(run, ValueError("\x1b[2J\u202eab"), Console(file=printed, width=200, force_terminal=True))
    assert "␛[2J⟨U+202E⟩ab" in printed.getvalue()
    (folder := tmp_path / "\x1b[31mrun").mkdir()
    assert report.main(["page", str(folder)]) == report.REFUSED
    assert "␛[31mrun is not a run directory" in capsys.readouterr().err


def test_a_page_that_cannot_be_written_is_reported_and_fails_nothing(tmp_path):
    run = RunDirectory.prepare(str(tmp_path), "quickstart", "r")
    (run.path / "config.yaml").write_text("records_version: 99\n")
    printed = io.StringIO()
    write_page(run, Console(file=printed, width=200))
    assert "its page could not be written: RecordsError" in printed.getvalue()


def test_a_health_that_cannot_be_read_fails_no_finished_run(tmp_path):
    printed = io.StringIO()
    print_result(RunDirectory.prepare(str(tmp_path), "quickstart", "r"), Console(file=printed, width=300))
    assert "its health could not be read: RecordsError" in printed.getvalue()


def test_the_command_to_continue_with_can_be_typed_as_it_is_printed(tmp_path):
    run = RunDirectory.prepare(str(tmp_path), "paper_b", "grpo.s0")
    typed = ["python", "-m", "recipe.train", "protocol.skill_sequence=[write,sql]", "run.name=grpo.s${data.seed}"]
    printed = io.StringIO()
    announce(run, shlex.join(typed), Console(file=printed, width=40))
    again = printed.getvalue().splitlines()[1].removeprefix("to resume it after a stop: ")
    assert shlex.split(again) == [*typed[:-1], "run.name=grpo.s0"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("recipe.train", ["verl", "torch", "matplotlib", "bokeh"]),
        ("recipe.preflight", ["verl", "torch", "ray", "matplotlib"]),
        ("recipe.settings", ["torch"]),
        ("recipe.study", ["torch", "pandas"]),
        ("recipe.keep", ["torch"]),
    ],
)
def test_a_command_imports_what_takes_seconds_when_it_needs_it_and_not_before(module, heavy):
    """verl reads the platform, too."""
    code = f"import sys, {module}; print([name for name in {heavy} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_logs_that_a_full_disk_refuses_do_not_hide_why_a_run_failed(tmp_path, monkeypatch, capsys):
    (workers := tmp_path / "ray").mkdir()
    (workers / "worker-1.out").write_text("it said why")
    run = RunDirectory.prepare(str(tmp_path / "o"), "quickstart", "r")
    (run.path / "logs" / "worker-1.out").symlink_to("/dev/full")
    monkeypatch.setattr(train, "session_logs", lambda: workers)
    monkeypatch.setattr("ray.is_initialized", lambda: True)
    train.keep_logs(run)
    assert f"stays in {workers}: No space left on device" in capsys.readouterr().err
