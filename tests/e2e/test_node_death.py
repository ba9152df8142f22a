"""One of a cluster's two nodes dies in the middle of a job; the same command is refused, then resumes on a new node."""

from pathlib import Path

import psutil
import pytest

from benchmarks.chaos.checks import names_cause
from recipe.records.run_directory import RunDirectory
from tests.e2e.conftest import assert_engine_agrees, wait_for, wait_until_gone, without_checkpoint
from tests.e2e.on_cluster import (
    SAVED_AFTER,
    STAGES,
    Start,
    assert_anchor_stays_and_holds,
    assert_stages_and_solutions,
    join,
    nodes_of_actors,
    submit,
)
from tests.processes import PATIENCE

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.night, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def resumed(cluster: dict[str, str], micro_start: Path, start: Start, tmp_path_factory) -> RunDirectory:
    """The job whose second node dies in its second stage; refused while a node is missing, it resumes on a new one."""
    root = tmp_path_factory.mktemp("outputs")
    run = RunDirectory(root / "quickstart" / "job")
    with without_checkpoint(run, 2 * len(STAGES)):  # killed late, it has not come to its end
        first = submit(start, cluster, micro_start, root)
        # A step's metrics are written after its checkpoint: a crash in between would lose them.
        wait_for(lambda: any(row["step"] == SAVED_AFTER for row in run.metrics()), first, seconds=PATIENCE)
        node = psutil.Process(int(cluster["SECOND"])).children(recursive=True)
        (raylet,) = (process for process in node if process.name() == "raylet")
        # With `attrs`, processes that end meanwhile are left out.
        listed = psutil.process_iter(["name"])
        work = [one for one in listed if (one.info["name"] or "").startswith(("ray::WorkerDict", "VLLM::EngineCore"))]
        raylet.kill()
        output, _ = first.communicate(timeout=PATIENCE)
    assert first.returncode != 0
    assert names_cause(output, "raylet"), output[-6000:]
    assert f"its last checkpoint, of step {SAVED_AFTER}, is complete" in output
    assert [event["event"] for event in run.events()][-1] == "failed"
    wait_until_gone([*node, *work])  # ranks and engines of the other node, too
    refused, _ = submit(start, cluster, micro_start, root).communicate(timeout=PATIENCE)
    assert "this run needs 2 times 1 on one node" in refused, refused[-6000:]
    join(start, cluster)
    output, _ = (second := submit(start, cluster, micro_start, root)).communicate(timeout=PATIENCE)
    assert second.returncode == 0, output[-6000:]
    return run


def test_a_run_stopped_within_a_stage_continues_in_it(resumed: RunDirectory):
    assert [row["step"] for row in resumed.metrics()] == [0, 1, 2, 3, 4]
    _, refused = (event["error"] for event in resumed.events() if event["event"] == "failed")
    assert "refused before training: the Ray cluster has nodes with" in refused
    _, second = (event for event in resumed.events() if event["event"] == "ready")
    assert (second["step"], second["resumed"]) == (SAVED_AFTER, True)


def test_what_the_run_knew_survives_the_restart(resumed: RunDirectory):
    assert_stages_and_solutions(resumed)
    assert_anchor_stays_and_holds(resumed)
    assert_engine_agrees(resumed, 2 * len(STAGES))


def test_the_head_the_node_that_died_and_the_new_one_had_a_rank_and_an_engine(
    cluster: dict[str, str], resumed: RunDirectory
):
    nodes = nodes_of_actors(cluster)
    assert {"WorkerDict", "vLLMHttpServer"} <= {name for name, found in nodes.items() if len(found) == 3}, nodes
