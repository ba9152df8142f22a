"""A Ray cluster of two nodes on this machine, and the job that test_cluster.py and test_node_death.py submit to it."""

import json
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from recipe.records.run_directory import RunDirectory
from tests.e2e.conftest import quickstart, wait_for, without_ray
from tests.processes import PATIENCE

RAY = str(Path(sys.executable).with_name("ray"))
# Two skills in sequence, two steps each; a checkpoint after the first step of the second skill.
STAGES, SAVED_AFTER = ["write", "sql"], 3
Start = Callable[..., subprocess.Popen]


def free_port() -> int:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        return reserved.getsockname()[1]


def two_nodes(start: Start, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment of two nodes of one logical GPU each, with token authentication, Ray's default."""
    port, dashboard, agent = free_port(), free_port(), free_port()
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
    wait_for(lambda: listens(dashboard) and listens(agent), head, seconds=PATIENCE)
    reached = access | {"RAY_API_SERVER_ADDRESS": f"http://127.0.0.1:{dashboard}", "ADDRESS": f"127.0.0.1:{port}"}
    return reached | {"SECOND": str(join(start, reached).pid)}


def join(start: Start, cluster: dict[str, str]) -> subprocess.Popen:
    """Let a second node join the cluster."""
    address = cluster["ADDRESS"]
    second = start(
        RAY, "start", "--block", f"--address={address}", "--num-gpus=1", "--num-cpus=32",
        "--object-store-memory=1000000000", "--disable-usage-stats", **cluster,
    )  # fmt: skip
    wait_for(lambda: "/2.0 GPU" in ray("status", "--address", address, environment=cluster), second, seconds=PATIENCE)
    return second


def ray(*arguments: str, environment: dict[str, str]) -> str:
    return subprocess.run(
        [RAY, *arguments], env=without_ray(os.environ) | environment, capture_output=True, text=True
    ).stdout


def nodes_of_actors(cluster: dict[str, str]) -> dict[str, set[str]]:
    """The nodes on which actors of each class have run."""
    server = cluster["RAY_API_SERVER_ADDRESS"]
    listed = ray("list", "actors", "--address", server, "--format=json", "--limit=1000", environment=cluster)
    nodes: dict[str, set[str]] = {}
    for actor in json.loads(listed):
        nodes.setdefault(actor["class_name"].rpartition(".")[2], set()).add(actor["node_id"])
    return nodes


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def submit(start: Start, cluster: dict[str, str], micro_start: Path, root: Path) -> subprocess.Popen:
    """Submit a staged run on two nodes with credit, projection and a reward function that fails for some samples."""
    return start(
        "bash", "scripts/ray_submit.sh", "recipe.train", *quickstart(micro_start), f"run.root={root}", "run.name=job",
        "trainer.nnodes=2", "trainer.n_gpus_per_node=1", "trainer.test_freq=2", f"trainer.save_freq={SAVED_AFTER}",
        "protocol=sequential", f"protocol.skill_sequence=[{','.join(STAGES)}]", "protocol.stage_steps=2",
        "protocol.memory_per_protected=2", "projection=qp", "projection.constraint_source=both",
        # More gain than an unprojected step has, up to `recovery`, a cosine: it binds.
        "projection.closed_loop=true", "projection.gain=9", "projection.recovery=0.5", "projection.verify=true",
        "reward.custom_reward_function.path=pkg://tests.e2e.flaky_reward", "data.val_max_samples=32",
        "credit=counterfactual", "run.generations_per_step=128",  # all: a few might include none with several steps
        PYTHON=sys.executable, **cluster,
    )  # fmt: skip


def assert_stages_and_solutions(run: RunDirectory) -> None:
    """Fail unless the second stage follows the first and protects it; stored solutions stay, also after a restart."""
    rows = run.metrics()[1:]
    assert [row["protocol/stage"] for row in rows] == [1, 1, 2, 2]
    assert [row["projection/active_constraints"] for row in rows] == [0, 0, 1, 1]
    # The first stage's solutions stay, and the second stage keeps adding its own.
    kept = [[row[f"solutions/{skill}"] for row in rows] for skill in STAGES]
    assert kept[0][1] == kept[0][2] == kept[0][3] > 0
    assert kept[1][3] >= kept[1][2] > 0
    table = json.loads((run.path / "skills" / "skills.json").read_text())
    assert table["stages"] == ["1 write", "2 sql"]


def assert_anchor_stays_and_holds(run: RunDirectory) -> None:
    """Fail unless the second stage keeps its anchor, also after a restart, and no level ends below its floor."""
    first, second = run.metrics()[SAVED_AFTER:]
    for key in ("write.solutions", "write.rollouts"):
        assert first[f"actor/projection/anchor/{key}"] == first[f"actor/projection/level/{key}"]
        assert second[f"actor/projection/anchor/{key}"] == first[f"actor/projection/anchor/{key}"]
    # The second step starts where the first one ended; after a restart its level is measured anew.
    ended = first["actor/projection/verified_level/write.solutions"]
    assert second["actor/projection/level/write.solutions"] == pytest.approx(ended, abs=1e-3)
    lost = second["actor/projection/anchor/write.solutions"] - second["actor/projection/level/write.solutions"]
    assert second["actor/projection/slack/write.solutions"] == pytest.approx(-lost)
    assert second["actor/projection/slack/write.solutions.gain"] == pytest.approx(-9 - lost)
    for row in (first, second):
        assert row["actor/projection/verified_steps"] == 1
        level = row["actor/projection/verified_level/write.solutions"]
        # A gain of 9 is out of reach; promised is the anchor, as epsilon is 0.
        assert level >= row["actor/projection/line/write.solutions"] == row["actor/projection/anchor/write.solutions"]
