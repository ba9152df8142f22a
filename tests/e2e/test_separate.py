"""The trainer with engines apart on the real stack: stages, credit and projection, two updates of a step, continued."""

from pathlib import Path

import pytest

from recipe.records.run_directory import RunDirectory
from tests.e2e.conftest import AGREEMENT
from tests.e2e.staged import (
    SAVED_EVERY,
    STEPS,
    assert_both_ideas_worked,
    assert_each_batch_is_the_plans,
    assert_generation_ran_ahead,
    assert_it_resumed_after,
    killed_and_continued,
    of_steps,
)

# The time limit of a module's first test includes its fixtures: the supervised start and whole runs.
pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.night, pytest.mark.timeout(3600)]

UPDATES = 2
"""Optimiser steps of a step, after which the engine gets weights."""


@pytest.fixture(scope="module")
def staged(micro_start: Path, tmp_path_factory: pytest.TempPathFactory, start) -> RunDirectory:
    return killed_and_continued(
        micro_start, tmp_path_factory.mktemp("outputs"), start,
        "trainer.v1.trainer_mode=skillcredit_separate_async", "projection.constraint_source=solutions",
        f"trainer.v1.separate_async.parameter_sync_step={UPDATES}", updates=UPDATES,
    )  # fmt: skip


def test_it_continues_after_the_checkpoint_and_ends_with_the_plan(staged: RunDirectory):
    assert_it_resumed_after(staged, SAVED_EVERY)


def test_the_engine_computes_with_the_trained_weights_after_each_step(staged: RunDirectory):
    events = [event for event in staged.events() if event["event"] in ("ready", "weights")]
    (_, again) = [place for place, event in enumerate(events) if event["event"] == "ready"]
    killed, continued = ([event for event in part if "compared" in event] for part in (events[:again], events[again:]))
    steps = [event["step"] for event in killed]
    assert steps == list(range(len(steps)))
    assert len(steps) > SAVED_EVERY + 1
    assert [event["step"] for event in continued] == list(range(SAVED_EVERY, STEPS + 1))
    assert all(event["compared"] > 20 for event in (*killed, *continued))
    first, *_ = of_steps(staged, "training/rollout_probs_diff_mean")  # later answers are of earlier weights
    assert first < AGREEMENT


def test_generation_ran_ahead_of_training(staged: RunDirectory):
    assert_generation_ran_ahead(staged)


def test_each_batch_is_the_plans(staged: RunDirectory):
    assert_each_batch_is_the_plans(staged)


def test_credit_and_projection_work_on_the_answers_that_arrive(staged: RunDirectory):
    assert_both_ideas_worked(staged)
