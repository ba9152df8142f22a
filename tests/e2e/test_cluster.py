"""Jobs on a running Ray cluster of two nodes: submission, a rank on each node, failing verifiers, refusals."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from recipe.records.pictures import series
from recipe.records.run_directory import RunDirectory
from tests.e2e.conftest import ROOT, assert_engine_agrees, quickstart, train, without_ray
from tests.e2e.flaky_reward import fails_on
from tests.e2e.on_cluster import (
    SAVED_AFTER,
    Start,
    assert_anchor_stays_and_holds,
    assert_stages_and_solutions,
    nodes_of_actors,
    submit,
)
from tests.processes import PATIENCE

# The time limit of a module's first test includes its fixtures: the supervised start and whole runs.
pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def submitted(cluster: dict[str, str], micro_start: Path, start: Start, tmp_path_factory) -> RunDirectory:
    root = tmp_path_factory.mktemp("outputs")
    output, _ = (job := submit(start, cluster, micro_start, root)).communicate(timeout=PATIENCE)
    assert job.returncode == 0, output[-6000:]
    assert "succeeded" in output
    return RunDirectory(root / "quickstart" / "job")


def test_a_submitted_job_trains_on_two_ranks_and_leaves_its_run_directory(submitted: RunDirectory):
    assert [row["step"] for row in submitted.metrics()] == [0, 1, 2, 3, 4]
    assert "| mean |" in (submitted.path / "EXPERIMENT.md").read_text()
    assert submitted.read_config().trainer.nnodes == 2


def test_each_node_had_a_rank_that_trained_and_an_engine_that_sampled(cluster: dict[str, str], submitted: RunDirectory):
    nodes = nodes_of_actors(cluster)
    # verl's names of the training process and of the one that runs vLLM.
    assert {"WorkerDict", "vLLMHttpServer"} <= {name for name, found in nodes.items() if len(found) == 2}, nodes


def test_the_second_stage_protects_what_the_first_learned(submitted: RunDirectory):
    assert_stages_and_solutions(submitted)
    assert_anchor_stays_and_holds(submitted)


def test_both_ranks_hold_the_policy_that_both_engines_sample_from(submitted: RunDirectory):
    """Also after projected steps."""
    assert_engine_agrees(submitted, len(series(submitted.metrics(), "actor/grad_norm")[0]))
    _, differences = series(submitted.metrics(), "training/rollout_probs_diff_max")
    assert len(differences) == 4
    assert max(differences) < 0.02
    _, projected = series(submitted.metrics(), "actor/projection/projected_steps")
    assert projected == [1, 1]  # in the second stage: the last samples are drawn after a projected step


def test_samples_that_could_not_be_verified_are_masked_counted_and_reported(submitted: RunDirectory):
    steps, shares = series(submitted.metrics(), "reward/masked_share")
    for step, share in zip(steps, shares, strict=True):
        lines = (submitted.path / "generations" / f"train_{step:06d}.jsonl").read_text().splitlines()
        samples = [json.loads(line) for line in lines]
        hidden = [sample for sample in samples if fails_on(sample["response"])]
        assert hidden == [sample for sample in samples if sample["masked"]]
        assert share == pytest.approx(len(hidden) / len(samples))
        assert all(sample["error"] == "infrastructure" for sample in hidden)
        assert all(sample["score"] == 0.0 for sample in hidden)
    assert any(0 < share < 1 for share in shares), shares
    events = [event for event in submitted.events() if event["event"] == "masked"]
    assert {event["step"] for event in events} == {step for step, share in zip(steps, shares, strict=True) if share}


def test_solutions_were_replayed_and_the_page_shows_their_credit(submitted: RunDirectory):
    rows = submitted.metrics()[1:3]  # of the stage with programs: queries have no Python statements
    assert all(row["credit/replays"] > 0 for row in rows)
    assert all(0 < row["credit/advantage_shift"] < 1 for row in rows)
    # Replays that the flaky function fails on leave their steps without credit.
    assert all(0 < row["credit/unjudged_share"] < 1 for row in rows)
    samples = [json.loads(line) for line in (submitted.path / "generations" / "train_000002.jsonl").open()]
    credited = [sample for sample in samples if len(sample["credit_spans"]) > 1]
    assert credited
    for sample in credited:
        assert len(sample["credit_spans"]) == len(sample["credit_values"])
        assert set(sample["credit_steps"]) <= set(range(-1, len(sample["credit_spans"])))
    assert "<mark" in (submitted.path / "plots" / "credit_000002.html").read_text()


def test_no_protected_skill_loses_by_the_update_to_first_order(submitted: RunDirectory):
    for row in submitted.metrics()[SAVED_AFTER:]:
        assert row["actor/projection/skipped_steps"] == 0
        for constraint in ("write.rollouts", "write.solutions"):
            gradient = row[f"actor/projection/gradient_norm/{constraint}"]
            scale = gradient * row["actor/projection/displacement_norm"]
            assert row[f"actor/projection/predicted_change/{constraint}"] >= -1e-4 * scale
            assert row[f"actor/projection/multiplier/{constraint}"] >= 0
        assert row["actor/projection/gradient_norm/write.solutions"] > 0


def test_a_cluster_with_too_few_resources_is_refused_in_one_message(
    cluster: dict[str, str], micro_start: Path, tmp_path: Path
):
    command = train(
        *quickstart(micro_start), f"run.root={tmp_path}", "trainer.n_gpus_per_node=4",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=32",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=32",
    )  # fmt: skip
    answer = subprocess.run(
        command, cwd=ROOT, env=without_ray(os.environ) | cluster | {"RAY_ADDRESS": cluster["ADDRESS"]},
        capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert answer.returncode == 2, answer.stderr[-3000:]
    assert "the Ray cluster has nodes with 1, 1 GPUs, this run needs 1 times 4 on one node" in answer.stderr
    assert "Traceback" not in answer.stderr


@pytest.mark.night
def test_workers_with_packages_of_another_checkout_are_refused_in_one_message(
    cluster: dict[str, str], micro_start: Path, tmp_path: Path
):
    foreign = tmp_path / "other" / "rewards"
    foreign.mkdir(parents=True)
    (foreign / "__init__.py").touch()
    command = train(
        *quickstart(micro_start),
        f"run.root={tmp_path}",
        f"+ray_kwargs.ray_init.runtime_env.working_dir={foreign.parent}",
    )
    answer = subprocess.run(
        command, cwd=ROOT, env=without_ray(os.environ) | cluster | {"RAY_ADDRESS": cluster["ADDRESS"]},
        capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert answer.returncode == 2, answer.stderr[-3000:]
    assert answer.stderr.count(f"which differs from the driver's {ROOT / 'rewards'}") == 2  # one per node
    assert "Traceback" not in answer.stderr


def test_what_the_studies_ask_of_a_cluster(cluster: dict[str, str]):
    """`room` counts the runs that fit on the free GPUs; `run` runs a command on one, with its output and status."""
    access = without_ray(os.environ) | cluster | {"RAY_ADDRESS": cluster["ADDRESS"]}

    def ask(*words: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "recipe.cluster", *words]
        return subprocess.run(command, cwd=ROOT, env=access, capture_output=True, text=True, timeout=PATIENCE)

    assert ask("room", "experiment=quickstart", "trainer.nnodes=1").stdout == "2\n"
    assert ask("room", "experiment=quickstart", "trainer.nnodes=2").stdout == "1\n"
    answer = ask("run", "sh", "-c", "echo gpu $CUDA_VISIBLE_DEVICES in $PWD; exit 3")
    assert (answer.returncode, answer.stdout) == (3, f"gpu 0 in {ROOT}\n"), answer.stderr
