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
# The command itself: test_training.py.
VICTIMS = ("actor", "engine", "sandbox")

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(5400)]


def test_no_kill_loses_a_step_changes_a_number_or_leaves_anything_behind(micro_start: Path, tmp_path: Path):
    overrides = [word for word in quickstart(micro_start) if not word.startswith("experiment=")]
    options = ["--runs", str(len(VICTIMS)), "--out", str(tmp_path), "--victims", *VICTIMS]
    benchmark = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.chaos", *options, "--", *overrides],
        cwd=ROOT, env=without_ray(os.environ), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        printed, _ = benchmark.communicate(timeout=5000)
    except subprocess.TimeoutExpired:
        benchmark.terminate()  # it ends its runs; killed, it would leave them to the next tests
        printed, _ = benchmark.communicate()
    assert benchmark.returncode == 0, printed[-8000:]
    (record,) = tmp_path.glob("*/outcomes.jsonl")
    trials = [Trial.of(json.loads(line)) for line in record.read_text().splitlines()]
    assert [trial.victim for trial in trials] == list(VICTIMS)
    assert [wrong(trial, SAVED_EVERY) for trial in trials] == [[]] * len(VICTIMS)
    assert all(trial.kill and trial.kill.died for trial in trials)
    assert {trial.attempts[-1].recorded for trial in trials} == {STEPS}
