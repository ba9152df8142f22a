import json
from pathlib import Path

import numpy as np
import pytest

from recipe.records.run_directory import RunDirectory
from recipe.records.skill_record import read_skill_record, stage_metrics, update_skill_report

STAGES = [["write"], ["sql"]]


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """Two stages of two steps, validated at the start and after each; the second step was measured twice."""
    run = RunDirectory.prepare(str(tmp_path), "paper_b", "r")
    for step, write, sql in ((0, 0.4, 0.2), (2, 0.1, 0.1), (2, 0.8, 0.3), (4, 0.5, 0.9)):
        accuracy = {"skill/write/accuracy": write, "skill/sql/accuracy": sql, "skill/mean/accuracy": (write + sql) / 2}
        change = {"actor/projection/predicted_change/write": -0.5} if step == 4 else {}
        run.log_metrics(step, accuracy | change)
    run.log_metrics(3, {"actor/projection/predicted_change/write.rollouts": 0.25})
    return run


def test_the_ends_of_the_stages_make_the_matrix(run: RunDirectory):
    record = read_skill_record(run, STAGES, 2)
    assert record is not None
    assert list(record.skills) == ["write", "sql"]
    assert np.array_equal(record.accuracy, [[0.8, 0.3], [0.5, 0.9]])
    assert np.array_equal(record.initial, [0.4, 0.2])
    assert record.trained == [[0], [1]]
    assert record.mean_forgetting == pytest.approx(0.3)
    np.testing.assert_array_equal(record.predicted, [[np.nan, np.nan], [-0.25, np.nan]])


def test_a_stage_that_is_not_finished_is_left_out_and_before_the_first_there_is_no_record(run: RunDirectory):
    record = read_skill_record(run, [*STAGES, ["write"]], 2)
    assert record is not None
    assert len(record.matrix) == 2
    assert read_skill_record(run, STAGES, 3) is None
    assert update_skill_report(run, STAGES, 3) is None


def test_stages_after_one_that_was_not_measured_do_not_take_its_place(run: RunDirectory):
    record = read_skill_record(run, [["write"], ["sql"], ["write"], ["sql"]], 1)
    assert record is None
    run.log_metrics(8, {"skill/write/accuracy": 0.9, "skill/sql/accuracy": 0.9, "skill/mean/accuracy": 0.9})
    record = read_skill_record(run, [*STAGES, ["write"], ["sql"]], 2)
    assert record is not None
    assert np.array_equal(record.accuracy, [[0.8, 0.3], [0.5, 0.9]])


def test_without_stages_every_stage_trains_all_skills(run: RunDirectory):
    mixed = read_skill_record(run, None, 2000)
    assert mixed is not None
    assert mixed.trained is None
    assert sorted(mixed.skills) == ["sql", "write"]
    assert mixed.matrix.shape == (2, 2)


def test_levels_of_several_skills_have_the_measures_of_stages(tmp_path: Path):
    """In the last level `a` falls from 0.8 to 0.5, and `b` and `c` are learnt."""
    run = RunDirectory.prepare(str(tmp_path), "paper_b", "r")

    def row(step: int, *accuracies: float) -> dict[str, float]:
        found = {f"skill/{skill}/accuracy": value for skill, value in zip("abc", accuracies, strict=True)}
        return found | {"step": step, "skill/mean/accuracy": sum(accuracies) / 3}

    run.log_metrics(0, row(0, 0.4, 0.2, 0.1))
    run.log_metrics(2, row(2, 0.8, 0.3, 0.3))
    found = stage_metrics(run, row(4, 0.5, 0.9, 0.7), [["a"], ["b", "c"]], 2)
    # Just before their level b and c were 0.1 and 0.2 above the start.
    assert found == pytest.approx({"skill/forgetting": 0.3, "skill/new_skill": 0.8, "skill/forward_transfer": 0.15})


def test_the_end_of_a_stage_has_its_measures_as_metrics(tmp_path: Path):
    run = RunDirectory.prepare(str(tmp_path), "paper_b", "r")

    def row(step: int, write: float, sql: float) -> dict[str, float]:
        return {"step": step, "skill/write/accuracy": write, "skill/sql/accuracy": sql, "skill/mean/accuracy": 0.5}

    for step, write, sql in ((0, 0.4, 0.2), (2, 0.8, 0.3)):
        run.log_metrics(step, row(step, write, sql))
    assert stage_metrics(run, row(3, 0.5, 0.9), STAGES, 2) == {}  # in the middle of a stage
    found = stage_metrics(run, row(4, 0.5, 0.9), STAGES, 2)
    assert found == pytest.approx({"skill/forgetting": 0.3, "skill/new_skill": 0.9, "skill/forward_transfer": 0.1})
    assert len(run.metrics()) == 2  # the trainer writes the row, not this


def test_the_report_is_written_with_its_pictures(run: RunDirectory):
    folder = update_skill_report(run, STAGES, 2)
    assert folder == run.path / "skills"
    assert json.loads((folder / "skills.json").read_text())["mean_forgetting_of_earlier_skills"] == pytest.approx(0.3)
    assert {path.name for path in folder.iterdir()} == {
        "skills.json",
        "skills.md",
        "forgetting.png",
        "interference.png",
    }
