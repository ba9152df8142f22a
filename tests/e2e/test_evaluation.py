"""An evaluation in several turns that starts its own vLLM with the quickstart's model."""

import subprocess
import sys
from pathlib import Path

import pytest

from data_prep.sources.agents import main as make_rows
from recipe.evaluation.folder import EvaluationFolder
from tests.e2e.conftest import ROOT

# The time limit of a module's first test includes its fixtures: the supervised start and whole runs.
pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(3600)]

# A batch holds fewer tokens than the concurrent prompts have: prompts queue, and none may be split into chunks.
FEW_TOKENS = "--max-model-len=512 --max-num-batched-tokens=512"


@pytest.fixture(scope="module")
def evaluated(micro_start: Path, tmp_path_factory: pytest.TempPathFactory) -> EvaluationFolder:
    """Four sampled episodes for each of 48 problems, a dozen per skill."""
    folder = tmp_path_factory.mktemp("evaluation")
    assert make_rows([str(micro_start / "val.parquet"), "--out", str(folder / "rows.parquet")]) == 0
    command = [sys.executable, "-m", "recipe.evaluate", "--model", str(micro_start / "model"), "--agents", "micro"]
    command += ["--data", f"micro={folder / 'rows.parquet'}", "--limit", "48", "--out", str(folder / "out")]
    command += ["--protocol", "eval@k", "--samples", "4", "--max-tokens", "64", f"--vllm={FEW_TOKENS}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    return EvaluationFolder(folder / "out")


def test_the_folder_tells_how_often_the_first_turn_was_right_and_what_became_of_the_others(evaluated: EvaluationFolder):
    everything, found = evaluated.metrics["micro"], evaluated.metrics["micro/write"]
    assert (everything["problems"], everything["samples"], everything["not_judged"]) == (48, 192, 0)
    # At temperature 1 about half of the model's answers are right with any seed.
    assert 0.2 < found["first_turn_accuracy"]["estimate"] < 0.9
    # The model has never seen a second turn: this test does not check whether it fixes its answer.
    assert 0 <= found["recovery_rate"]["estimate"] <= 1
    assert found["accepted@1"]["estimate"] >= found["first_turn_accuracy"]["estimate"]


def test_an_episode_of_the_code_agent_goes_on_while_visible_tests_fail(evaluated: EvaluationFolder):
    turns: set[tuple[int, bool]] = set()
    for sample in evaluated.journal().samples.values():
        if sample.skill in ("write", "repair"):
            spoken = [message for message in sample.answer.conversation if message["role"] == "assistant"]
            turns.add((len(spoken), sample.answer.first_failed))
    # Two turns if the second program is right, which may never happen; three is the limit.
    assert {(1, False), (3, True)} <= turns <= {(1, False), (2, True), (3, True)}
