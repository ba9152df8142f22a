"""The benchmark of a step's time: pairs of runs, in turn, without their first steps; finished ones are used again."""

import sys
from pathlib import Path

import pytest

from benchmarks import step_time
from recipe.records.run_directory import RunDirectory


def test_ratios_are_those_of_medians_of_alternating_pairs(tmp_path: Path, monkeypatch, capsys):
    started = []

    def train(command, run, steps, skip):
        words = dict(word.split("=", 1) for word in command[3:])
        started.append((words["run.name"], words["projection"]))
        run = RunDirectory.prepare(str(tmp_path / "outputs"), words["run.experiment"], words["run.name"])
        seconds = 3.0 if words["projection"] == "qp" else 2.0
        for step, value in enumerate([9.0, 9.0, seconds, seconds + 5, seconds], start=1):
            run.log_metrics(step, {"timing_s/step": value, "timing_s/gen": 1.0})
        (run.path / step_time.PROCESSOR).write_text("11.0" if words["projection"] == "qp" else "10.0")
        run.log_event("end")

    monkeypatch.setattr(step_time, "ROOT", tmp_path)
    monkeypatch.setattr(step_time, "train", train)
    words = ["--base", "projection=off", "--other", "projection=qp", "--pairs", "2", "experiment=quickstart"]
    monkeypatch.setattr(sys, "argv", ["step_time", *words])
    step_time.main()
    assert started == [("base.p0", "off"), ("other.p0", "qp"), ("other.p1", "qp"), ("base.p1", "off")]
    printed = capsys.readouterr().out
    assert "pair 0: time 2.00 s, 3.00 s, ratio 1.500; processor 10.00 s, 11.00 s, ratio 1.100" in printed
    assert "median ratio of time 1.500 (1.500-1.500)" in printed
    assert "median ratio of processor 1.100 (1.100-1.100)" in printed
    assert "timing_s/gen" in printed
    step_time.main()
    assert len(started) == 4


def test_steps_before_protection_can_be_left_out_and_stages_validated(tmp_path: Path, monkeypatch, capsys):
    asked = []

    def train(command, run, steps, skip):
        words = dict(word.split("=", 1) for word in command[3:])
        asked.append((words["trainer.test_freq"], words["trainer.total_training_steps"], skip))
        run = RunDirectory.prepare(str(tmp_path / "outputs"), words["run.experiment"], words["run.name"])
        for step in range(1, 7):
            run.log_metrics(step, {"timing_s/step": 1.0 if step <= 4 else 3.0})
        (run.path / step_time.PROCESSOR).write_text("1.0")
        run.log_event("end")

    monkeypatch.setattr(step_time, "ROOT", tmp_path)
    monkeypatch.setattr(step_time, "train", train)
    words = ["--other", "arm=x", "--pairs", "1", "--steps", "6", "--skip", "4", "--test-freq", "2", "experiment=e"]
    monkeypatch.setattr(sys, "argv", ["step_time", *words])
    step_time.main()
    assert asked == [("2", "6", 4)] * 2
    assert "time 3.00 s, 3.00 s" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["step_time", *("3" if word == "2" else word for word in words)])
    step_time.main()
    assert asked[2:] == [("3", "6", 4)] * 2  # runs of another validation interval are not taken for these


@pytest.mark.slow
def test_processor_seconds_count_what_a_run_has_started(tmp_path: Path):
    """A run whose child, long ended, used most of it: 0.6 s between its second step and its last."""
    run = RunDirectory.prepare(str(tmp_path), "e", "r")
    burn = "import time\nend = time.process_time() + {}\nwhile time.process_time() < end: pass"
    script = f"""
import json, subprocess, sys, time
def step(number):
    with open({str(run.path / "metrics.jsonl")!r}, "a") as file:
        file.write(json.dumps({{"step": number}}) + "\\n")
    time.sleep(1)
step(2)
subprocess.run([sys.executable, "-c", {burn.format(0.6)!r}])
step(5)
"""
    step_time.train([sys.executable, "-c", script], run, steps=5)
    assert (
        0.2 <= step_time.measures_after(2)["processor"](run) <= 0.6
    )  # 0.6 s and the start of an interpreter, over 3 steps


def test_too_few_steps_are_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["step_time", "--other", "x=1", "--steps", "2", "experiment=quickstart"])
    with pytest.raises(SystemExit):
        step_time.main()
    assert "--steps must be more than 2" in capsys.readouterr().err
