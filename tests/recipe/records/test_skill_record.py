import json
from pathlib import Path

import numpy as np
import pytest

from recipe.records.run_directory import RunDirectory
from recipe.records.skill_record import read_skill_record, stage_metrics, update_skill_report
from recipe.settings import Settings
from tests.typed_settings import settings

SKILLS = ["write", "trace", "sql"]


def in_stages(*skills: str, steps: int = 2, **projection: str) -> Settings:
    """Settings of a run that trains skills in sequence."""
    return settings(projection, names=SKILLS, stage_steps=steps, skill_sequence=list(skills))


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """Two stages of two steps, validated at the start and after each; the second step was measured twice.

    In the second stage, constraints from rollouts and from solutions predict the change of `write`.
    """
    run = RunDirectory.prepare(str(tmp_path), "paper_b", "r")
    for step, write, sql in ((0, 0.4, 0.2), (2, 0.1, 0.1), (2, 0.8, 0.3), (4, 0.5, 0.9)):
        accuracy = {"skill/write/accuracy": write, "skill/sql/accuracy": sql, "skill/mean/accuracy": (write + sql) / 2}
        run.log_metrics(step, accuracy | (predicted("", -0.5) | predicted(".rollouts", -0.25) if step == 4 else {}))
    run.log_metrics(3, predicted("", 0.25) | predicted(".rollouts", 1.0) | predicted(".solutions", 5.0))
    return run


def predicted(ending: str, change: float) -> dict[str, float]:
    return {f"actor/projection/predicted_change/write{ending}": change}


def test_the_ends_of_the_stages_make_the_matrix(run: RunDirectory):
    record = read_skill_record(run, in_stages("write", "sql"))
    assert record is not None
    assert list(record.skills) == ["write", "sql"]
    assert np.array_equal(record.accuracy, [[0.8, 0.3], [0.5, 0.9]])
    assert np.array_equal(record.initial, [0.4, 0.2])
    assert record.trained == [[0], [1]]
    assert record.mean_forgetting == pytest.approx(0.3)


def test_a_single_stage_forgets_what_was_named_and_known_before_it(run: RunDirectory):
    """Only `sql` is trained: `write` falls from 0.4 at the start to 0.1 after the first of two steps."""
    run.log_metrics(1, {"skill/write/accuracy": 0.1, "skill/sql/accuracy": 0.7, "skill/mean/accuracy": 0.4})
    for method in ("qp", "off"):  # the arm without protection is measured on the same skills
        named = settings(
            {"protected": ["write"], "method": method}, names=SKILLS, stage_steps=1, skill_sequence=["sql"]
        )
        record = read_skill_record(run, named)
        assert record is not None
        assert record.mean_forgetting == pytest.approx(0.3)
        end = {"step": 1, "skill/write/accuracy": 0.1, "skill/sql/accuracy": 0.7, "skill/mean/accuracy": 0.4}
        assert stage_metrics(run, end, named)["skill/forgetting"] == pytest.approx(0.3)


@pytest.mark.parametrize(("source", "change"), [("rollouts", -0.25), ("solutions", -0.25), ("both", 0.75)])
def test_predictions_are_sums_over_a_stage_of_one_source(run: RunDirectory, source: str, change: float):
    """With two sources, the constraints from rollouts count; a single source has no suffix in its metrics."""
    record = read_skill_record(run, in_stages("write", "sql", constraint_source=source))
    assert record is not None
    np.testing.assert_array_equal(record.predicted, [[np.nan, np.nan], [change, np.nan]])
    assert record.predicted_by == ("solutions" if source == "solutions" else "rollouts")


def test_a_loop_that_asks_for_gain_predicts_by_the_constraint_of_all_solutions(run: RunDirectory):
    run.log_metrics(3, predicted("", 0.25) | predicted(".gain", 2.0))
    record = read_skill_record(run, in_stages("write", "sql", constraint_source="solutions"))
    assert record is not None
    np.testing.assert_array_equal(record.predicted, [[np.nan, np.nan], [1.5, np.nan]])


def test_predictions_of_the_gradient_are_none_of_the_step(run: RunDirectory):
    record = read_skill_record(run, in_stages("write", "sql", space="gradient"))
    assert record is not None
    assert record.predicted is None


def test_a_stage_that_is_not_finished_is_left_out_and_before_the_first_there_is_no_record(run: RunDirectory):
    record = read_skill_record(run, in_stages("write", "sql", "write"))
    assert record is not None
    assert len(record.matrix) == 2
    assert read_skill_record(run, in_stages("write", "sql", steps=3)) is None
    assert update_skill_report(run, in_stages("write", "sql", steps=3)) is None


def test_stages_after_one_that_was_not_measured_do_not_take_its_place(run: RunDirectory):
    assert read_skill_record(run, in_stages("write", "sql", "write", "sql", steps=1)) is None
    run.log_metrics(8, {"skill/write/accuracy": 0.9, "skill/sql/accuracy": 0.9, "skill/mean/accuracy": 0.9})
    record = read_skill_record(run, in_stages("write", "sql", "write", "sql"))
    assert record is not None
    assert np.array_equal(record.accuracy, [[0.8, 0.3], [0.5, 0.9]])


@pytest.mark.slow
def test_a_skill_that_validation_has_no_prompt_of_is_not_measured_and_the_others_are(run: RunDirectory):
    """As a small `data.val_max_samples` can cause."""
    record = read_skill_record(run, in_stages("write", "trace"))
    assert record is not None
    assert list(record.skills) == ["write", "trace", "sql"]
    np.testing.assert_array_equal(record.accuracy, [[0.8, np.nan, 0.3], [0.5, np.nan, 0.9]])
    assert record.mean_forgetting == pytest.approx(0.3)
    assert np.isnan(record.new_skill)
    folder = update_skill_report(run, in_stages("write", "trace"))
    assert folder is not None
    assert json.loads((folder / "skills.json").read_text())["average"] is None
    end = {"step": 4, "skill/write/accuracy": 0.5, "skill/sql/accuracy": 0.9, "skill/mean/accuracy": 0.7}
    assert stage_metrics(run, end, in_stages("write", "trace")).keys() == {"skill/forgetting"}


def test_without_stages_every_stage_trains_all_skills(run: RunDirectory):
    mixed = read_skill_record(run, settings(names=SKILLS, kind="mixed"))
    assert mixed is not None
    assert mixed.trained is None
    assert sorted(mixed.skills) == ["sql", "write"]
    assert mixed.matrix.shape == (2, 2)


def test_levels_of_several_skills_have_the_measures_of_stages(tmp_path: Path):
    """In the last level, `write` falls from 0.8 to 0.5, and the run learns the two others."""
    run = RunDirectory.prepare(str(tmp_path), "paper_b", "r")

    def row(step: int, *accuracies: float) -> dict[str, float]:
        found = {f"skill/{skill}/accuracy": value for skill, value in zip(SKILLS, accuracies, strict=True)}
        return found | {"step": step, "skill/mean/accuracy": sum(accuracies) / 3}

    levels = settings(names=SKILLS, kind="curriculum", stage_steps=2, levels=[["write"], ["trace", "sql"]])

    run.log_metrics(0, row(0, 0.4, 0.2, 0.1))
    run.log_metrics(2, row(2, 0.8, 0.3, 0.3))
    found = stage_metrics(run, row(4, 0.5, 0.9, 0.7), levels)
    # Just before their level, trace and sql are 0.1 and 0.2 above the start.
    assert found == pytest.approx({"skill/forgetting": 0.3, "skill/new_skill": 0.8, "skill/forward_transfer": 0.15})


def test_the_end_of_a_stage_has_its_measures_as_metrics(tmp_path: Path):
    run = RunDirectory.prepare(str(tmp_path), "paper_b", "r")

    def row(step: int, write: float, sql: float) -> dict[str, float]:
        return {"step": step, "skill/write/accuracy": write, "skill/sql/accuracy": sql, "skill/mean/accuracy": 0.5}

    for step, write, sql in ((0, 0.4, 0.2), (2, 0.8, 0.3)):
        run.log_metrics(step, row(step, write, sql))
    assert stage_metrics(run, row(3, 0.5, 0.9), in_stages("write", "sql")) == {}  # in the middle of a stage
    found = stage_metrics(run, row(4, 0.5, 0.9), in_stages("write", "sql"))
    assert found == pytest.approx({"skill/forgetting": 0.3, "skill/new_skill": 0.9, "skill/forward_transfer": 0.1})
    assert len(run.metrics()) == 2  # the trainer writes the row, not this


@pytest.mark.slow
def test_the_report_is_written_with_its_pictures(run: RunDirectory):
    folder = update_skill_report(run, in_stages("write", "sql"))
    assert folder == run.path / "skills"
    assert json.loads((folder / "skills.json").read_text())["mean_forgetting_of_earlier_skills"] == pytest.approx(0.3)
    assert {path.name for path in folder.iterdir()} == {
        "skills.json",
        "skills.md",
        "forgetting.png",
        "forgetting.svg",
        "interference.png",
        "interference.svg",
    }


def halved(run: RunDirectory, step: int, first: float, second: float) -> None:
    """A validation of `write` alone, with the accuracies of its halves."""
    numbers = {"skill/write/accuracy": (first + second) / 2, "skill/mean/accuracy": (first + second) / 2}
    run.log_metrics(step, numbers | {"skill/write/half_accuracy/0": first, "skill/write/half_accuracy/1": second})


def test_forgetting_reads_the_best_stage_of_one_half_on_the_other_where_all_were_measured(tmp_path: Path):
    run = RunDirectory.prepare(str(tmp_path), "paper_b", "halves")
    for step, first, second in ((0, 0.9, 0.5), (2, 0.6, 0.8), (4, 0.7, 0.7)):
        halved(run, step, first, second)
    record = read_skill_record(run, in_stages("write", "sql"))
    assert record is not None
    assert record.mean_forgetting == pytest.approx(-0.15)  # 0.5 and 0.6 less 0.7
    assert record.forgetting_after(1)[0] == pytest.approx((0.5 - 0.8 + 0.9 - 0.6) / 2)
    run.log_metrics(4, {"skill/write/accuracy": 0.7, "skill/mean/accuracy": 0.7})  # without its halves
    record = read_skill_record(run, in_stages("write", "sql"))
    assert record is not None
    assert record.halves is None
    assert record.mean_forgetting == pytest.approx(0.0)


def test_standard_errors_stand_beside_the_accuracies_that_have_them(run: RunDirectory):
    record = read_skill_record(run, in_stages("write", "sql"))
    assert record is not None
    assert record.errors is None
    run.log_metrics(4, {"skill/write/accuracy": 0.5, "skill/mean/accuracy": 0.7, "skill/write/standard_error": 0.02})
    record = read_skill_record(run, in_stages("write", "sql"))
    assert record is not None
    errors = np.asarray(record.errors)
    assert errors.shape == (3, 2)
    assert errors[2, 0] == 0.02
    assert np.isnan(errors).sum() == 5
