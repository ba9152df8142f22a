"""Hydra multiruns: each run is a separate process and runs once; a failure does not stop the others."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from recipe.records.run_directory import RunDirectory
from tests.composing import composed

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow  # composes configurations in separate processes


def train(folder: Path, *words: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "recipe.train", "--multirun", "experiment=paper_b", f"run.root={folder}", *words],
        cwd=ROOT, capture_output=True, text=True, env={**os.environ, "HYDRA_FULL_ERROR": "0"},
    )  # fmt: skip


ARMS = ("ewc", "grpo", "qp_rollouts", "qp_solutions")
SAME = ("data.seed=1", "data.train_files=nowhere.parquet")


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess]:
    """A sweep of a run that fails, and of finished ones: with these settings, other ones, and of a later release."""
    folder = tmp_path_factory.mktemp("sweep")
    for arm, more in (("grpo", []), ("qp_rollouts", ["actor_rollout_ref.actor.optim.lr=0.5"]), ("qp_solutions", [])):
        finished = RunDirectory.prepare(str(folder), "b", f"{arm}.s1")
        finished.write_config(composed("experiment=paper_b", f"arm={arm}", *SAME, *more))
        finished.log_event("end")
    (folder / "b/qp_solutions.s1/config.yaml").write_text("records_version: 99\n")
    done = train(
        folder, "run.experiment=b", f"arm={','.join(ARMS)}", *SAME,
        "run.name=${hydra:runtime.choices.arm}.s${data.seed}",
    )  # fmt: skip
    assert done.returncode != 0
    return folder / "b", done


def test_finished_runs_are_left_alone_and_a_failing_one_does_not_stop_the_others(sweep):
    folder, done = sweep
    assert done.stdout.splitlines()[0] == "== ewc.s1"
    assert "nowhere.parquet" in done.stderr  # the separate process was refused, and reported the reason
    assert "ewc.s1 failed: see above" in done.stderr
    assert "== grpo.s1: finished before" in done.stdout
    assert not (folder / "ewc.s1").exists()


def test_a_finished_run_with_other_settings_is_not_taken_for_this_one(sweep):
    message = "qp_rollouts.s1 finished before with other settings (actor_rollout_ref.actor.optim.lr: 0.5, now 0.004)"
    assert message in sweep[1].stderr


def test_a_finished_run_of_a_later_release_is_not_taken_for_this_one(sweep):
    folder, done = sweep
    assert f"== qp_solutions.s1: {folder / 'qp_solutions.s1'} has version 99 of the records" in done.stderr


def test_runs_that_would_share_a_name_are_refused(tmp_path: Path):
    done = train(tmp_path, "arm=ewc,grpo", "run.name=same")
    assert done.returncode == 2
    assert "--multirun needs a reproducible run.name" in done.stderr
    assert not list(tmp_path.glob("paper_b"))


@pytest.mark.parametrize(("script", "words"), [("run_paper_b.sh", ["huge"]), ("run_paper_b.sh", [])])
def test_a_launcher_says_what_it_takes(script: str, words: list[str]):
    done = subprocess.run(["bash", f"scripts/{script}", *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert "run_paper_b.sh toy" in done.stderr
