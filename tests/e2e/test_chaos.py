"""Three runs whose processes are killed at random times: each continues, or names the cause and resumes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.chaos.__main__ import SAVED_EVERY, STEPS
from benchmarks.chaos.checks import Trial, wrong
from tests.e2e.conftest import quickstart, without_ray

ROOT = Path(__file__).parents[2]
VICTIMS = ("actor", "engine", "sandbox")  # the command itself: test_training.py

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(5400)]


def test_no_kill_loses_a_step_changes_a_number_or_leaves_anything_behind(micro_start: Path, tmp_path: Path):
    overrides = [word for word in quickstart(micro_start) if not word.startswith("experiment=")]
    options = ["--runs", str(len(VICTIMS)), "--out", str(tmp_path), "--victims", *VICTIMS]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.chaos", *options, "--", *overrides],
        cwd=ROOT, env=without_ray(os.environ), capture_output=True, text=True, timeout=5000,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-6000:]}{done.stderr[-2000:]}"
    (record,) = tmp_path.glob("*/outcomes.jsonl")
    trials = [Trial.of(json.loads(line)) for line in record.read_text().splitlines()]
    assert [trial.victim for trial in trials] == list(VICTIMS)
    assert [wrong(trial, SAVED_EVERY) for trial in trials] == [[]] * len(VICTIMS)
    assert all(trial.kill and trial.kill.died for trial in trials)
    assert {trial.attempts[-1].recorded for trial in trials} == {STEPS}
