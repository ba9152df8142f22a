"""The list of runs says what the files say, reads only what is new, and trusts no file."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from recipe.pages import run_list
from recipe.pages.run_files import appended, ends, number, recorded_version
from recipe.pages.run_list import RunList, RunRow
from recipe.records.run_directory import RunDirectory
from recipe.records.versions import KEY, VERSION
from tests.recipe.pages.conftest import HOSTILE


def begun(root: Path, name: str = "r", at: float | None = None, steps: int = 2, experiment: str = "e") -> RunDirectory:
    """A run under way: `steps` of 10 updates done, a validation before the first and after the second."""
    run = RunDirectory.prepare(str(root), experiment, name)
    (run.path / "config.yaml").write_text(f"{KEY}: {VERSION}\nrun: {{}}\n")
    now = time.time() if at is None else at
    event(run, now, event="start")
    event(run, now, event="ready", step=0, total_steps=10)
    run.log_metrics(0, {"skill/mean/accuracy": 0.25})
    for step in range(1, steps + 1):
        accuracy = 0.5 if step == 2 else None
        run.log_metrics(step, {"reward/acc": step / 8, "critic/score/mean": step / 4})
        event(run, now, event="step", step=step, reward=step / 4, accuracy=accuracy, seconds=300.0)
    return run


def event(run: RunDirectory, at: float, **fields: object) -> None:
    with open(run.path / "events.jsonl", "a") as file:
        file.write(json.dumps({"time": at, **fields}) + "\n")


def row(runs: RunList, name: str = "e/r", now: float | None = None) -> RunRow:
    found = {one.id: one for one in runs.rows(time.time() if now is None else now)}
    return found[name]


def test_a_row_has_the_runs_last_numbers(tmp_path: Path):
    run = begun(tmp_path, steps=1)
    runs = RunList(tmp_path)
    first = row(runs)
    assert (first.experiment, first.name, first.state, first.step, first.steps) == ("e", "r", "running", 1, 10)
    assert (first.accuracy, first.reward, first.validation) == (0.125, 0.25, 0.25)
    run.log_metrics(2, {"reward/acc": 0.75})
    event(run, time.time(), event="step", step=2, reward=0.5, accuracy=0.5, seconds=1.0)
    second = row(runs)
    assert (second.step, second.accuracy, second.reward, second.validation) == (2, 0.75, 0.5, 0.5)
    event(run, time.time(), event="step", step=3, reward=0.625, accuracy=None, seconds=1.0)
    assert (row(runs).reward, row(runs).validation) == (0.625, 0.5)
    assert abs(second.wrote - time.time()) < 60


def test_the_state_is_that_of_the_last_event_and_of_its_age(tmp_path: Path):
    run, now = begun(tmp_path, at=1e9), 1e9
    runs = RunList(tmp_path)
    assert row(runs, now=now + 1499).state == "running"  # five steps of 300 s
    stopped = row(runs, now=now + 1501)
    assert stopped.state == "stopped"
    assert stopped.note == "nothing after 'step': killed? `run.name=` resumes it"
    ahead = row(runs, now=now - 180)
    assert (ahead.state, ahead.note) == (
        "running", "its last event is 3 minutes ahead of this machine's clock: the clocks differ",
    )  # fmt: skip
    event(run, now, event="failed", error="EngineDied: <b>")
    assert (row(runs, now=now).state, row(runs, now=now).note) == ("failed", "EngineDied: <b>")
    event(run, now, event="start")
    assert (row(runs, now=now).state, row(runs, now=now).note) == ("running", "")
    event(run, now, event="end")
    assert row(runs, now=now + 1e6).state == "finished"


def test_those_that_started_last_come_first_wherever_they_lie(tmp_path: Path):
    for name, at in (("old", 1e9), ("new", 3e9), ("between", 2e9)):
        begun(tmp_path, name, at=at)
    begun(tmp_path / "deep" / "er", "r", at=2.5e9)
    begun(tmp_path / ".hidden", "r", at=4e9)
    assert [one.id for one in RunList(tmp_path).rows(3e9)] == ["e/new", "deep/er/e/r", "e/between", "e/old"]
    assert RunList(tmp_path / "e" / "old" / "plots").rows(0.0) == []


def test_a_line_that_is_being_written_waits_and_only_new_lines_are_read(tmp_path: Path, monkeypatch):
    run = begun(tmp_path)
    runs = RunList(tmp_path)
    assert row(runs).step == 2
    read = []

    def noted(file: Path, start: int) -> Iterator[tuple[int, dict]]:
        read.append(start)
        return appended(file, start)

    monkeypatch.setattr(run_list, "appended", noted)
    size = (run.path / "events.jsonl").stat().st_size
    assert row(runs).step == 2
    assert read == []
    with open(run.path / "events.jsonl", "a") as file:
        file.write('{"time": 1e9, "event": "step", "step": 3')
    assert row(runs).step == 2
    with open(run.path / "events.jsonl", "a") as file:
        file.write("}\n")
    assert row(runs).step == 3
    assert read == [size, size]


def test_a_file_that_was_replaced_is_read_again(tmp_path: Path):
    run = begun(tmp_path, steps=5)
    runs = RunList(tmp_path)
    assert row(runs).step == 5
    (run.path / "events.jsonl").unlink()
    event(run, time.time(), event="step", step=1, reward=1.0)
    assert (row(runs).step, row(runs).steps) == (1, None)


@pytest.mark.parametrize("config", [f"{KEY}: {VERSION + 1}\n", f"a: 1\n{KEY}: 99\n"])
def test_a_run_of_another_version_stays_in_the_list_with_the_reason(tmp_path: Path, config: str):
    run = begun(tmp_path)
    (run.path / "config.yaml").write_text(config)
    runs = RunList(tmp_path)
    for _ in range(2):
        found = row(runs)
        assert found.state == "unreadable"
        assert "this release reads versions 1 to" in found.note
    (run.path / "config.yaml").write_text("a: 1\n")
    assert (row(runs).state, row(runs).step) == ("running", 2)


def test_a_run_that_has_only_begun_says_what_it_lacks(tmp_path: Path):
    run = RunDirectory.prepare(str(tmp_path), "e", "r")
    assert row(RunList(tmp_path)).state == "not started"
    assert row(RunList(tmp_path)).note.startswith("it has no config.yaml and no events.jsonl: ")
    event(run, time.time(), event="start")
    assert row(RunList(tmp_path)).note.startswith("it has no config.yaml: ")


def test_files_that_are_no_records_break_nothing(tmp_path: Path):
    run = begun(tmp_path)
    garbage = (
        b'null\n[1]\n"x"\n{"event": ["step"]}\n{"event": "step", "step": "x", "time": {}}\n\xff\xfe\n' + b"[" * 9000
    )
    garbage += b'\n{"event": "step", "step": 1e400, "time": NaN, "seconds": true}\n{"event": "failed", "error": [1]}\n'
    for name in ("events.jsonl", "metrics.jsonl"):
        (run.path / name).write_bytes(garbage)
    (run.path / "config.yaml").write_bytes(b"\xff\x00" * 99)
    found = row(RunList(tmp_path))
    assert (found.state, found.note, found.step, found.accuracy) == ("failed", "[1]", 0, None)
    json.dumps([vars(found)], allow_nan=False)


@pytest.mark.parametrize("name", ["config.yaml", "events.jsonl", "metrics.jsonl"])
def test_links_out_of_the_folder_and_pipes_are_refused(tmp_path: Path, name: str):
    root = tmp_path / "root"
    run = begun(root)
    outside = tmp_path / "secret"
    outside.write_text(f'{KEY}: {VERSION}\n{{"event": "failed", "error": "SECRET"}}\n')
    (run.path / name).unlink()
    (run.path / name).symlink_to(outside)
    found = row(RunList(root))
    assert (found.state, found.note) == ("unreadable", f"{name} is a link that leads out of the folder")
    (run.path / name).unlink()
    os.mkfifo(run.path / name)
    assert row(RunList(root)).note == f"{name} is not a regular file"


def test_a_folder_behind_a_link_is_not_in_the_list(tmp_path: Path):
    begun(tmp_path / "elsewhere")
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to(tmp_path / "elsewhere")
    assert RunList(root).rows(0.0) == []
    assert RunList(root).row("link/e/r", 0.0) is None


def test_names_are_shown_with_their_hidden_characters(tmp_path: Path):
    name = HOSTILE.replace("/", "|").replace("\ud800", "")
    begun(tmp_path, name)
    os.rename(tmp_path / "e", os.fsencode(tmp_path) + b"/\xff\xfe")
    (found,) = RunList(tmp_path).rows(time.time())
    assert found.experiment == "\\xff\\xfe"
    assert "␛[31mred␛[0m ⟨U+202E⟩gnp.exe" in found.name
    assert found.id.encode()


def test_the_first_and_last_complete_rows_are_found_at_any_length(tmp_path: Path):
    file = tmp_path / "metrics.jsonl"
    for filler in (1, 70_000, 300_000):
        rows = [{"a": number, "x": "x" * filler} for number in range(3)]
        file.write_text("".join(json.dumps(one) + "\n" for one in rows) + '{"a": 9, ')
        assert [one["a"] for one in ends(file)] == [0, 2]
    file.write_text("")
    assert ends(file) == ({}, {})


def test_numbers_and_versions():
    assert [number(one) for one in (1, 2.5, True, "1", None, float("nan"), 10**400)] == [1.0, 2.5, *[None] * 5]


def test_a_configuration_without_a_version_is_the_first(tmp_path: Path):
    (tmp_path / "config.yaml").write_text("a: 1\n")
    assert recorded_version(tmp_path / "config.yaml") == 1
