"""A run whose disk cannot be written, then is full, then has room again."""

import os
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from recipe.records.run_directory import RunDirectory
from tests.e2e.conftest import ROOT, quickstart, train, without_ray

# The time limit of a module's first test includes its fixtures: the supervised start and whole runs.
pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.night, pytest.mark.timeout(3600)]

STEPS, SAVED_EVERY = 4, 2
SCRIPT = """
set -u
disk=$1 kept=$2; shift 2
attempt() { "$@" > $kept/$name.txt 2>&1; echo $? > $kept/$name.status; cp -r $disk/. $kept/$name; }
fill() { # once the first checkpoint is complete
    until grep -qs '"step": 2' $disk/quickstart/r/metrics.jsonl; do sleep 0.1; done
    cat /dev/zero > $disk/filler
}
mount -t tmpfs -o ro none $disk
name=read_only; attempt "$@"
mount -o remount,rw,size=64m $disk
fill 2> /dev/null & name=full; attempt "$@"
rm $disk/filler
name=roomy; attempt "$@"
"""


class Attempt(NamedTuple):
    """status: of the command; output: all of it; run: a copy of its directory as the command left it."""

    status: int
    output: str
    run: RunDirectory


@pytest.fixture(scope="module")
def attempts(micro_start: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Attempt]:
    """The same command on a read-only disk, on one that gets full, and on one with room, in a mount namespace."""
    disk, kept = tmp_path_factory.mktemp("disk"), tmp_path_factory.mktemp("kept")
    command = train(
        *quickstart(micro_start), f"run.root={disk}", "run.name=r", f"trainer.total_training_steps={STEPS}",
        f"trainer.save_freq={SAVED_EVERY}", f"trainer.test_freq={STEPS}", "trainer.val_before_train=false",
        "data.val_max_samples=8", "run.greedy_validation=false", "credit=counterfactual",
    )  # fmt: skip
    script = ["bash", "-c", SCRIPT, "attempts", str(disk), str(kept), *command]
    own_mounts = ["unshare", "--user", "--map-root-user", "--mount", "--propagation", "private"]
    subprocess.run([*own_mounts, *script], cwd=ROOT, env=without_ray(os.environ), check=True, timeout=3000)
    return {
        name: Attempt(
            int((kept / f"{name}.status").read_text()),
            (kept / f"{name}.txt").read_text(),
            RunDirectory(kept / name / "quickstart" / "r"),
        )
        for name in ("read_only", "full", "roomy")
    }


def test_a_disk_that_cannot_be_written_is_refused_before_ray_starts(attempts: dict[str, Attempt]):
    status, output, run = attempts["read_only"]
    assert status == 2
    assert "Read-only file system" in output
    assert "Traceback" not in output
    assert not run.path.exists()


def test_a_disk_that_gets_full_ends_the_run_with_its_cause_and_keeps_the_last_checkpoint(attempts: dict[str, Attempt]):
    status, output, run = attempts["full"]
    assert status == 1
    (why,) = [line for line in output.splitlines() if line.startswith("the run failed: ")]
    assert "No space left on device" in why, output[-3000:]
    assert "its last checkpoint, of step 2, is complete: the run can resume from there" in output
    assert not list(run.path.rglob("*.partial"))
    assert (run.checkpoints / "latest_checkpointed_iteration.txt").read_text() == str(SAVED_EVERY)


def test_with_room_again_the_command_resumes_and_nothing_that_was_recorded_is_lost(attempts: dict[str, Attempt]):
    status, output, run = attempts["roomy"]
    assert status == 0, output[-6000:]
    assert [event["step"] for event in run.events() if event["event"] == "ready"] == [0, SAVED_EVERY]
    assert [row["step"] for row in run.metrics()] == [1, 2, 3, 4]
    assert run.finished
    before, after = (attempts[name].run.metrics() for name in ("full", "roomy"))
    assert before[:SAVED_EVERY] == after[:SAVED_EVERY]
