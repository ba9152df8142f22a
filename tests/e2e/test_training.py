"""Training on the real stack: it learns, survives SIGTERM and its engine's SIGKILL, is recorded and exported."""

import os
import re
import signal
from pathlib import Path
from statistics import median

import pytest

from recipe.records.digests import weights_digest
from recipe.records.experiment_page import skill_table
from recipe.records.pictures import series
from recipe.records.run_directory import RunDirectory, read_jsonl
from tests.e2e.conftest import assert_engine_agrees, assert_exported, end_by_kill, quickstart, train, wait_for
from tests.e2e.wandb_file import history
from tests.processes import PATIENCE

# The time limit of a module's first test includes its fixtures: the supervised start and whole runs.
pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(3600)]

STEPS, KILLED_AFTER, SAVED_EVERY = 12, 5, 4
ASKED_AFTER = 6
"""Steps of the second start, after which SIGTERM asks it to stop: no step that it would have saved."""
ONE_CORE = ("taskset", "-c", str(min(os.sched_getaffinity(0))))


@pytest.fixture(scope="module")
def killed_and_continued(micro_start: Path, tmp_path_factory: pytest.TempPathFactory, start) -> RunDirectory:
    """A short run of the quickstart whose engine is killed, started again, asked to stop, and started on one core."""
    root = tmp_path_factory.mktemp("outputs")
    run = RunDirectory(root / "quickstart" / "r")
    command = train(
        *quickstart(micro_start), f"run.root={root}", "run.name=r", "trainer.logger=[console,wandb]",
        f"trainer.total_training_steps={STEPS}", f"trainer.save_freq={SAVED_EVERY}", f"trainer.test_freq={STEPS}",
    )  # fmt: skip
    first = start(*command, WANDB_MODE="offline")
    wait_for(lambda: any(row["step"] >= KILLED_AFTER for row in run.metrics()), first, seconds=PATIENCE)
    end_by_kill(first, "engine")
    second = start(*command, WANDB_MODE="offline")
    wait_for(lambda: len(_after_start(run, 1)) >= ASKED_AFTER - SAVED_EVERY, second, seconds=PATIENCE)
    second.terminate()
    output, _ = second.communicate(timeout=PATIENCE)
    assert second.returncode == 128 + signal.SIGTERM, output[-4000:]
    assert "the run stopped: SIGTERM ended it after step" in output
    third = start(*ONE_CORE, *command, WANDB_MODE="offline")
    output, _ = third.communicate(timeout=PATIENCE)
    assert third.returncode == 0, output[-4000:]
    assert str(run.path) in output
    return run


def _after_start(run: RunDirectory, number: int) -> list[int]:
    """The steps that ended in the start with this number."""
    events = run.events()
    starts = [*(place for place, event in enumerate(events) if event["event"] == "start"), len(events), len(events)]
    return [event["step"] for event in events[starts[number] : starts[number + 1]] if event["event"] == "step"]


def _events(run: RunDirectory, kind: str) -> list[dict]:
    return [event for event in run.events() if event["event"] == kind]


def test_the_second_start_continues_with_the_step_after_the_checkpoint(killed_and_continued: RunDirectory):
    first, second, third = _events(killed_and_continued, "ready")
    assert (first["step"], first["resumed"]) == (0, False)
    assert (second["step"], second["resumed"]) == (SAVED_EVERY, True)
    before, between, after = (_after_start(killed_and_continued, number) for number in range(3))
    assert before == list(range(1, len(before) + 1))
    assert len(before) >= KILLED_AFTER
    assert between == list(range(SAVED_EVERY + 1, third["step"] + 1))
    assert after == list(range(third["step"] + 1, STEPS + 1))
    assert [row["step"] for row in killed_and_continued.metrics()] == list(range(STEPS + 1))


def test_sigterm_saves_the_step_under_way_and_none_is_trained_again(killed_and_continued: RunDirectory):
    (stop,), (stopped,) = _events(killed_and_continued, "stop"), _events(killed_and_continued, "stopped")
    assert ASKED_AFTER <= stop["step"] < STEPS
    assert f"after step {stop['step']}, with a checkpoint" in stopped["reason"]
    assert _events(killed_and_continued, "ready")[2]["step"] == stop["step"]


def test_starts_name_the_weights_that_training_began_with_and_the_threads(
    killed_and_continued: RunDirectory, micro_start: Path
):
    digest = weights_digest(micro_start / "model")
    assert digest
    assert [event["weights"] for event in _events(killed_and_continued, "start")] == 3 * [digest]
    report = (killed_and_continued.path / "EXPERIMENT.md").read_text()
    assert digest in report
    assert re.search(r", threads: \d+, ", report)
    assert 'id="data-samples"' in (killed_and_continued.path / "run.html").read_text()


def test_the_data_come_in_the_order_that_they_would_have_had(killed_and_continued: RunDirectory):
    digests: dict[int, list[str]] = {}
    for event in _events(killed_and_continued, "prompts"):
        digests.setdefault(event["step"], []).append(event["digest"])
    repeated = {step: found for step, found in digests.items() if len(found) == 2}
    assert set(repeated) >= set(range(SAVED_EVERY + 1, KILLED_AFTER + 1))
    assert all(before == after for before, after in repeated.values())
    assert len({found[0] for found in digests.values()}) == STEPS


def test_steps_that_are_trained_again_are_the_same_to_the_last_bit(killed_and_continued: RunDirectory):
    rows: dict[int, list[dict]] = {}
    for row in read_jsonl(killed_and_continued.path / "metrics.jsonl"):
        rows.setdefault(int(row["step"]), []).append(row)
    again = [found for found in rows.values() if len(found) == 2]
    assert len(again) >= KILLED_AFTER - SAVED_EVERY
    for before, after in again:
        for name in ("critic/score/mean", "response_length/mean", "actor/entropy", "actor/grad_norm"):
            assert before[name] == after[name], (before["step"], name)


def test_sampled_accuracy_on_held_out_prompts_rises(killed_and_continued: RunDirectory):
    mean = {row.skill: row for row in skill_table(killed_and_continued)}["mean"]
    # 204 samples per validation: the standard error of an unpaired difference is about 0.05; the measured rise is 0.2.
    assert mean.change >= 0.05, mean


def test_rollout_and_actor_agree_on_the_probabilities_of_every_sampled_token(killed_and_continued: RunDirectory):
    """If LoRA weights did not reach vLLM, this would fail from the first update on."""
    steps, differences = series(killed_and_continued.metrics(), "training/rollout_probs_diff_max")
    assert len(steps) == STEPS
    assert max(differences) < 0.02
    _, differences = series(killed_and_continued.metrics(), "rollout_corr/log_ppl_abs_diff")
    assert len(differences) == STEPS
    # All in float32. Rounding grows as the policy gets surer: in one update to 1.5e-4, without AVX-512.
    assert median(differences) < 1e-4
    assert max(differences) < 3e-4
    assert_engine_agrees(killed_and_continued, STEPS)
    _, correlations = series(killed_and_continued.metrics(), "training/rollout_actor_probs_pearson_corr")
    assert min(correlations) > 0.999


def test_nothing_was_masked_and_every_update_moved_the_adapter(killed_and_continued: RunDirectory):
    _, masked = series(killed_and_continued.metrics(), "reward/masked_share")
    assert masked == [0.0] * STEPS
    _, moved = series(killed_and_continued.metrics(), "actor/projection/displacement_norm")
    assert len(moved) == STEPS
    assert min(moved) > 0


def test_both_starts_wrote_to_the_same_wandb_run_and_it_can_be_read_back(killed_and_continued: RunDirectory):
    files = sorted(killed_and_continued.path.glob("wandb/offline-run-*/*.wandb"))
    assert len(files) == 3
    assert {file.stem for file in files} == {f"run-{killed_and_continued.wandb_id()}"}
    rows = [row for file in files for row in history(file)]
    measured = {"skill/mean/accuracy", "skill/mean/greedy_accuracy", "critic/score/mean", "actor/grad_norm"}
    assert measured <= set().union(*rows)
    logged = {int(row["_step"]): float(row["critic/score/mean"]) for row in rows if "critic/score/mean" in row}
    expected = dict(zip(*series(killed_and_continued.metrics(), "critic/score/mean"), strict=True))
    # W&B buffers: metrics that the killed process had not flushed are only in metrics.jsonl.
    assert set(range(SAVED_EVERY + 1, STEPS + 1)) <= set(logged) <= set(expected)
    assert logged[STEPS] == pytest.approx(expected[STEPS])


def test_the_run_directory_holds_what_a_user_looks_for(killed_and_continued: RunDirectory):
    run = killed_and_continued
    assert run.last_checkpoint == STEPS
    assert (run.path / "plots" / "learning_curve.png").stat().st_size > 5_000
    text = (run.path / "EXPERIMENT.md").read_text()
    assert f"after {STEPS} policy updates" in text
    assert "| restarts | 2 |" in text
    rows = list(read_jsonl(run.path / "generations" / f"train_{STEPS:06d}.jsonl"))
    assert len(rows) == 16
    columns = {"prompt", "response", "ground_truth", "score", "acc", "format", "error", "pass_ratio", "skill", "masked"}
    assert columns <= set(rows[0])
    assert list((run.path / "logs").glob("worker-*"))


def test_the_model_is_exported(killed_and_continued: RunDirectory, micro_start: Path, start):
    assert_exported(start, micro_start, killed_and_continued)
