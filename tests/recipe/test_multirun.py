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


def test_finished_runs_are_left_alone_and_a_failing_one_does_not_stop_the_others(tmp_path: Path):
    finished = RunDirectory.prepare(str(tmp_path), "b", "grpo.s1")
    finished.write_config(composed("experiment=paper_b", "arm=grpo", "data.seed=1", "data.train_files=nowhere.parquet"))
    finished.log_event("end")
    done = train(
        tmp_path, "run.experiment=b", "arm=ewc,grpo", "data.seed=1", "data.train_files=nowhere.parquet",
        "run.name=${hydra:runtime.choices.arm}.s${data.seed}",
    )  # fmt: skip
    assert done.returncode != 0
    assert done.stdout.splitlines()[0] == "== ewc.s1"
    assert "nowhere.parquet" in done.stderr  # the separate process was refused, and reported the reason
    assert "ewc.s1 failed: see" in done.stderr
    assert "== grpo.s1: finished before" in done.stdout
    assert (tmp_path / "b" / "ewc.s1").is_dir()


def test_a_finished_run_with_other_settings_is_not_taken_for_this_one(tmp_path: Path):
    finished = RunDirectory.prepare(str(tmp_path), "b", "grpo.s1")
    finished.write_config(composed("experiment=paper_b", "arm=grpo", "data.seed=1", "data.train_files=nowhere.parquet"))
    finished.log_event("end")
    done = train(
        tmp_path, "run.experiment=b", "arm=grpo,ewc", "data.seed=1", "actor_rollout_ref.actor.optim.lr=0.5",
        "data.train_files=nowhere.parquet", "run.name=${hydra:runtime.choices.arm}.s${data.seed}",
    )  # fmt: skip
    assert done.returncode != 0
    assert (
        "grpo.s1 finished before with other settings (actor_rollout_ref.actor.optim.lr: 0.004, now 0.5)" in done.stderr
    )
    assert "== ewc.s1" in done.stdout  # the others still run


def test_a_finished_run_of_a_later_release_is_not_taken_for_this_one(tmp_path: Path):
    finished = RunDirectory.prepare(str(tmp_path), "b", "grpo.s1")
    (finished.path / "config.yaml").write_text("records_version: 99\n")
    finished.log_event("end")
    done = train(
        tmp_path, "run.experiment=b", "arm=grpo", "data.seed=1", "run.name=${hydra:runtime.choices.arm}.s${data.seed}"
    )
    assert done.returncode != 0
    assert f"== grpo.s1: {finished.path} has version 99 of the records" in done.stderr


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
