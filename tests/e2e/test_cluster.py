"""Jobs on a running Ray cluster of two nodes: submission, a rank on each node, failing verifiers, refusals."""

import json
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from benchmarks.chaos.checks import names_cause
from recipe.records.pictures import series
from recipe.records.run_directory import RunDirectory
from tests.e2e.conftest import (
    ROOT,
    assert_engine_agrees,
    quickstart,
    train,
    wait_for,
    wait_until_gone,
    without_checkpoint,
    without_ray,
)

# The time limit of a module's first test includes its fixtures: the supervised start and whole runs.
pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(3600)]

RAY = str(Path(sys.executable).with_name("ray"))


def _free_port() -> int:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        return reserved.getsockname()[1]


@pytest.fixture(scope="module")
def cluster(start: Callable[..., subprocess.Popen], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment of two nodes of one logical GPU each, with token authentication, Ray's default."""
    port, dashboard, agent = _free_port(), _free_port(), _free_port()
    token = tmp_path_factory.mktemp("token") / "auth_token"
    token.write_text(secrets.token_hex(32))
    access = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
    # Ray's sockets are in its folder, and their paths must not exceed 107 characters.
    folder = tmp_path_factory.getbasetemp().parent / "ray"
    head = start(
        RAY, "start", "--head", "--block", f"--port={port}", "--include-dashboard=true",
        f"--dashboard-port={dashboard}", f"--dashboard-agent-listen-port={agent}", "--num-gpus=1", "--num-cpus=32",
        f"--temp-dir={folder}", "--disable-usage-stats", **access,
    )  # fmt: skip
    # Jobs go through the head's agent, for which the dashboard waits only ten seconds.
    wait_for(lambda: _listens(dashboard) and _listens(agent), head, seconds=240)
    reached = access | {"RAY_API_SERVER_ADDRESS": f"http://127.0.0.1:{dashboard}", "ADDRESS": f"127.0.0.1:{port}"}
    return reached | {"SECOND": str(_join(start, reached).pid)}


def _join(start: Callable[..., subprocess.Popen], cluster: dict[str, str]) -> subprocess.Popen:
    """Let a second node join the cluster."""
    address = cluster["ADDRESS"]
    second = start(
        RAY, "start", "--block", f"--address={address}", "--num-gpus=1", "--num-cpus=32",
        "--object-store-memory=1000000000", "--disable-usage-stats", **cluster,
    )  # fmt: skip
    wait_for(lambda: "/2.0 GPU" in _ray("status", "--address", address, environment=cluster), second, seconds=120)
    return second


def _ray(*arguments: str, environment: dict[str, str]) -> str:
    return subprocess.run(
        [RAY, *arguments], env=without_ray(os.environ) | environment, capture_output=True, text=True
    ).stdout


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


# Two skills in sequence, two steps each; a node dies after the first step of the second skill.
STAGES, STOPPED_AFTER = ["write", "sql"], 3


@pytest.fixture(scope="module")
def submitted(
    cluster: dict[str, str], micro_start: Path, start: Callable[..., subprocess.Popen], tmp_path_factory
) -> RunDirectory:
    """A staged run on two nodes with credit, projection and a reward function that fails for some samples.

    One of its nodes dies in the middle of the second stage. The same command is refused while the cluster lacks a node,
    and resumes once another one has joined.
    """
    root = tmp_path_factory.mktemp("outputs")
    run = RunDirectory(root / "quickstart" / "job")
    words = [
        "bash", "scripts/ray_submit.sh", "recipe.train", *quickstart(micro_start), f"run.root={root}", "run.name=job",
        "trainer.nnodes=2", "trainer.n_gpus_per_node=1", "trainer.test_freq=2", f"trainer.save_freq={STOPPED_AFTER}",
        "protocol=sequential", f"protocol.skill_sequence=[{','.join(STAGES)}]", "protocol.stage_steps=2",
        "protocol.memory_per_protected=2", "projection=qp", "projection.constraint_source=both",
        # More gain than an unprojected step has, up to `recovery`, a cosine: it binds.
        "projection.closed_loop=true", "projection.epsilon=-9", "projection.recovery=0.5", "projection.verify=true",
        "reward.custom_reward_function.path=pkg://tests.e2e.flaky_reward", "data.val_max_samples=32",
        "credit=counterfactual", "run.generations_per_step=128",  # all: a few might include none with several steps
    ]  # fmt: skip
    with without_checkpoint(run, 2 * len(STAGES)):  # killed late, it has not come to its end
        first = start(*words, PYTHON=sys.executable, **cluster)
        # A step's metrics are written after its checkpoint: a crash in between would lose them.
        wait_for(lambda: any(row["step"] == STOPPED_AFTER for row in run.metrics()), first, seconds=900)
        node = psutil.Process(int(cluster["SECOND"])).children(recursive=True)
        (raylet,) = (process for process in node if process.name() == "raylet")
        # With `attrs`, processes that end meanwhile are left out.
        listed = psutil.process_iter(["name"])
        work = [one for one in listed if (one.info["name"] or "").startswith(("ray::WorkerDict", "VLLM::EngineCore"))]
        raylet.kill()
        output, _ = first.communicate(timeout=600)
    assert first.returncode != 0
    assert names_cause(output, "raylet"), output[-6000:]
    assert f"its last checkpoint, of step {STOPPED_AFTER}, is complete" in output
    assert [event["event"] for event in run.events()][-1] == "failed"
    wait_until_gone([*node, *work])  # ranks and engines of the other node, too
    refused, _ = start(*words, PYTHON=sys.executable, **cluster).communicate(timeout=300)
    assert "this run needs 2 times 1 on one node" in refused, refused[-6000:]
    _join(start, cluster)
    second = start(*words, PYTHON=sys.executable, **cluster)
    output, _ = second.communicate(timeout=900)
    assert second.returncode == 0, output[-6000:]
    assert "succeeded" in output
    return run


def test_a_submitted_job_trains_on_two_ranks_and_leaves_its_run_directory(submitted: RunDirectory):
    assert [row["step"] for row in submitted.metrics()] == [0, 1, 2, 3, 4]
    assert "| mean |" in (submitted.path / "EXPERIMENT.md").read_text()
    assert submitted.read_config().trainer.nnodes == 2


def test_each_node_had_a_rank_that_trained_and_an_engine_that_sampled(cluster: dict[str, str], submitted: RunDirectory):
    server = cluster["RAY_API_SERVER_ADDRESS"]
    listed = json.loads(
        _ray("list", "actors", "--address", server, "--format=json", "--limit=1000", environment=cluster)
    )
    nodes: dict[str, set[str]] = {}
    for actor in listed:
        nodes.setdefault(actor["class_name"].rpartition(".")[2], set()).add(actor["node_id"])
    # verl's names of the training process and of the one that runs vLLM: on the head, the node that died, the new one.
    assert {"WorkerDict", "vLLMHttpServer"} <= {name for name, found in nodes.items() if len(found) == 3}, nodes


def test_a_run_stopped_within_a_stage_continues_in_it(submitted: RunDirectory):
    _, refused = (event["error"] for event in submitted.events() if event["event"] == "failed")
    assert "refused before training: the Ray cluster has nodes with" in refused
    _, second = (event for event in submitted.events() if event["event"] == "ready")
    assert (second["step"], second["resumed"]) == (STOPPED_AFTER, True)
    rows = submitted.metrics()[1:]
    assert [row["protocol/stage"] for row in rows] == [1, 1, 2, 2]
    assert [row["projection/active_constraints"] for row in rows] == [0, 0, 1, 1]
    # The first stage's solutions survive the restart, and the second stage keeps adding its own.
    kept = [[row[f"solutions/{skill}"] for row in rows] for skill in STAGES]
    assert kept[0][1] == kept[0][2] == kept[0][3] > 0
    assert kept[1][3] >= kept[1][2] > 0
    table = json.loads((submitted.path / "skills" / "skills.json").read_text())
    assert table["stages"] == ["1 write", "2 sql"]


def test_both_ranks_hold_the_policy_that_both_engines_sample_from(submitted: RunDirectory):
    """Also after projected steps and after the restart."""
    assert_engine_agrees(submitted, len(series(submitted.metrics(), "actor/grad_norm")[0]))
    _, differences = series(submitted.metrics(), "training/rollout_probs_diff_max")
    assert len(differences) == 4
    assert max(differences) < 0.02
    _, projected = series(submitted.metrics(), "actor/projection/projected_steps")
    assert projected == [1, 1]  # in the second stage: the last samples are drawn after a projected step


def test_samples_that_could_not_be_verified_are_masked_counted_and_reported(submitted: RunDirectory):
    _, shares = series(submitted.metrics(), "reward/masked_share")
    assert all(0 < share < 0.5 for share in shares), shares  # on average a quarter; few answers are distinct
    events = [event for event in submitted.events() if event["event"] == "masked"]
    assert {event["step"] for event in events} == {1, 2, 3, 4}
    samples = [json.loads(line) for line in (submitted.path / "generations" / "train_000002.jsonl").open()]
    hidden = [sample for sample in samples if sample["masked"]]
    assert all(sample["error"] == "infrastructure" for sample in hidden)
    assert all(sample["score"] == 0.0 for sample in hidden)


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
    for row in submitted.metrics()[STOPPED_AFTER:]:
        assert row["actor/projection/skipped_steps"] == 0
        for constraint in ("write.rollouts", "write.solutions"):
            gradient = row[f"actor/projection/gradient_norm/{constraint}"]
            scale = gradient * row["actor/projection/displacement_norm"]
            assert row[f"actor/projection/predicted_change/{constraint}"] >= -1e-4 * scale
            assert row[f"actor/projection/multiplier/{constraint}"] >= 0
        assert row["actor/projection/gradient_norm/write.solutions"] > 0


def test_the_anchor_survives_the_restart_and_no_step_ends_below_its_line(submitted: RunDirectory):
    first, second = submitted.metrics()[STOPPED_AFTER:]
    for key in ("write.solutions", "write.rollouts"):
        assert first[f"actor/projection/anchor/{key}"] == first[f"actor/projection/level/{key}"]
        assert second[f"actor/projection/anchor/{key}"] == first[f"actor/projection/anchor/{key}"]
    # The second step starts where the first one ended: measured anew after the restart.
    ended = first["actor/projection/verified_level/write.solutions"]
    assert second["actor/projection/level/write.solutions"] == pytest.approx(ended, abs=1e-3)
    lost = second["actor/projection/anchor/write.solutions"] - second["actor/projection/level/write.solutions"]
    assert second["actor/projection/slack/write.solutions"] == pytest.approx(-9 - lost)
    for row in (first, second):
        assert row["actor/projection/verified_steps"] == 1
        level = row["actor/projection/verified_level/write.solutions"]
        # With an epsilon of -9 the line is out of reach: no step may end below where it began.
        assert level >= row["actor/projection/floor/write.solutions"]


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
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert answer.returncode == 2, answer.stderr[-3000:]
    assert "the Ray cluster has nodes with 1, 1 GPUs, this run needs 1 times 4 on one node" in answer.stderr
    assert "Traceback" not in answer.stderr


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
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert answer.returncode == 2, answer.stderr[-3000:]
    assert answer.stderr.count(f"which differs from the driver's {ROOT / 'rewards'}") == 2  # one per node
    assert "Traceback" not in answer.stderr


def test_what_the_studies_ask_of_a_cluster(cluster: dict[str, str]):
    """`room` counts the runs that fit on the free GPUs; `run` runs a command on one, with its output and status."""
    access = without_ray(os.environ) | cluster | {"RAY_ADDRESS": cluster["ADDRESS"]}

    def ask(*words: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "recipe.cluster", *words]
        return subprocess.run(command, cwd=ROOT, env=access, capture_output=True, text=True, timeout=300)

    assert ask("room", "experiment=quickstart", "trainer.nnodes=1").stdout == "2\n"
    assert ask("room", "experiment=quickstart", "trainer.nnodes=2").stdout == "1\n"
    answer = ask("run", "sh", "-c", "echo gpu $CUDA_VISIBLE_DEVICES in $PWD; exit 3")
    assert (answer.returncode, answer.stdout) == (3, f"gpu 0 in {ROOT}\n"), answer.stderr
