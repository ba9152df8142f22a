"""The command itself, with bad input: one clear message, exit status 2, and no Ray."""

import subprocess
from pathlib import Path

import pytest

from tests.e2e.conftest import ROOT, train
from tests.processes import PATIENCE

# The time limit of a module's first test includes its fixtures: the supervised start and whole runs.
pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trainer.total_trainig_steps=4"], "Did you mean total_training_steps?"),
        (["data.train_files=/nowhere/train.parquet"], "/nowhere/train.parquet: no such file"),
    ],
)
def test_bad_input_ends_in_one_message_before_ray_starts(
    tiny_arguments: list[str], tmp_path: Path, arguments: list[str], message: str
):
    answer = subprocess.run(
        train(*tiny_arguments, *arguments), cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE
    )
    assert answer.returncode == 2
    assert message in answer.stderr
    assert "Traceback" not in answer.stderr
    assert not list(tmp_path.glob("outputs/*/*/events.jsonl"))
