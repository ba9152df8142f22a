import json
import os
import subprocess
import sys

import pytest
from omegaconf import OmegaConf

from recipe.records.run_directory import RunDirectory, RunDirectoryError
from recipe.records.versions import RecordsError


def test_a_run_without_a_name_gets_a_new_one_and_a_named_run_the_same_folder(tmp_path):
    first = RunDirectory.prepare(str(tmp_path), "quickstart", None)
    second = RunDirectory.prepare(str(tmp_path), "quickstart", None)
    assert first.path != second.path
    assert RunDirectory.prepare(str(tmp_path), "quickstart", first.path.name).path == first.path
    assert sorted(entry.name for entry in first.path.iterdir()) == ["checkpoints", "generations", "logs", "plots"]


def test_metrics_of_a_step_measured_again_replace_the_earlier_ones(tmp_path):
    run = RunDirectory.prepare(str(tmp_path), "e", "r")
    for step, value in [(1, 0.1), (2, 0.2), (3, 0.3), (2, 0.25)]:
        run.log_metrics(step, {"accuracy": value, "name": "not a number", "flag": True})
    rows = run.metrics()
    assert [(row["step"], row["accuracy"]) for row in rows] == [(1, 0.1), (2, 0.25), (3, 0.3)]
    assert set(rows[0]) == {"step", "time", "accuracy"}


def test_a_cut_line_costs_neither_the_next_record_nor_its_readers(tmp_path):
    run = RunDirectory.prepare(str(tmp_path), "e", "r")
    run.log_event("start")
    with open(run.path / "events.jsonl", "ab") as file:
        file.write('{"event": "failed", "error": "é'.encode()[:-1])  # within a character
    run.log_event("start")
    run.log_event("end")
    assert [event["event"] for event in run.events()] == ["start", "start", "end"]


def test_lines_that_are_no_records_are_left_out(tmp_path):
    run = RunDirectory.prepare(str(tmp_path), "e", "r")
    other = 'null\n3\n{"a": 1}\n'
    (run.path / "metrics.jsonl").write_text(
        other + '{"step": NaN}\n{"step": 1, "a": null, "b": 2.0, "c": 1' + "0" * 400 + "}\n"
    )
    (run.path / "events.jsonl").write_text(other + '{"event": "end", "time": "x"}\n{"event": "end"}\n')
    assert run.metrics() == [{"step": 1, "b": 2.0}]
    assert run.events() == [{"event": "end"}]


@pytest.mark.parametrize(
    "text",
    [
        "", "- 1", "3", "data: [1,", "records_version: abc", "data: {seed: 1}", "actor_rollout_ref: {}\ndata: {}\nrun:",
        "data: ${oc.env:NO_SUCH_VARIABLE}", "data: {a: '${'}",
    ],
)  # fmt: skip
def test_a_configuration_that_is_none_is_refused_by_name(tmp_path, text):
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(RecordsError, match=r"config\.yaml is"):
        RunDirectory.existing(tmp_path)


def test_the_wandb_id_stays_the_same(tmp_path):
    run = RunDirectory.prepare(str(tmp_path), "e", "r")
    assert run.wandb_id() == run.wandb_id() == RunDirectory(run.path).wandb_id()


def test_an_earlier_configuration_of_the_same_run_is_kept(tmp_path):
    run = RunDirectory.prepare(str(tmp_path), "e", "r")
    run.write_config(OmegaConf.create({"steps": 1}))
    run.write_config(OmegaConf.create({"steps": 2}))
    assert run.read_config().steps == 2
    assert OmegaConf.load(run.path / "config.0.yaml").steps == 1


def test_generations_keep_every_reward_component(tmp_path):
    run = RunDirectory.prepare(str(tmp_path), "e", "r")
    run.log_generations(3, "train", [{"prompt": "p", "score": 0.5, "error": "wrong_answer"}])
    text = (run.path / "generations" / "train_000003.jsonl").read_text()
    assert json.loads(text) == {"prompt": "p", "score": 0.5, "error": "wrong_answer"}


def test_the_last_checkpoint_is_the_one_that_verl_marked_complete(tmp_path):
    run = RunDirectory.prepare(str(tmp_path), "e", "r")
    assert run.last_checkpoint is None
    (run.checkpoints / "latest_checkpointed_iteration.txt").write_text("20")
    assert run.last_checkpoint == 20


@pytest.mark.parametrize(("steps", "last"), [((8, 16), 16), ((), None)])
def test_a_marker_that_a_kill_left_empty_names_the_newest_checkpoint_again(tmp_path, steps, last):
    run = RunDirectory.prepare(str(tmp_path), "e", "r")
    for step in steps:
        (run.checkpoints / f"global_step_{step}").mkdir()
    marker = run.checkpoints / "latest_checkpointed_iteration.txt"
    marker.write_text("")
    assert run.last_checkpoint == last
    run.repair_marker()
    assert run.last_checkpoint == last
    assert (marker.read_text() if marker.exists() else None) == (str(last) if last else None)


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_is_refused_with_a_way_out(tmp_path):
    tmp_path.chmod(0o755)
    locked = tmp_path / "locked"
    locked.mkdir()
    locked.chmod(0o555)
    program = (
        "import sys; from recipe.records.run_directory import RunDirectory, RunDirectoryError\n"
        "try: RunDirectory.prepare(sys.argv[1], 'e', 'r')\n"
        "except RunDirectoryError as error: print(error)"
    )
    if os.geteuid() != 0:
        with pytest.raises(RunDirectoryError, match=r"run\.root=FOLDER"):
            RunDirectory.prepare(str(locked), "e", "r")
        return
    # Root ignores permissions, so a file takes the folder's place.
    (tmp_path / "file").write_text("")
    answer = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "file")], capture_output=True, text=True, check=True
    )
    assert "cannot write the run directory" in answer.stdout
    assert "run.root=FOLDER" in answer.stdout
