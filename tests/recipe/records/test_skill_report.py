"""Tables, JSON and pictures of a matrix made by hand, with backward transfer and a skill that was not measured."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from recipe.records import skill_pictures
from recipe.records.skill_pictures import draw_mean_interference, write_pareto_report, write_skill_report
from recipe.records.skill_report import SkillRecord, mean_interference, measures, pareto_points, plain, skill_table

INITIAL = [0.2, 0.1, 0.3]
ACCURACY = [
    [0.8, 0.3, 0.3],
    [0.5, 0.6, 0.2],
    [0.6, 0.7, 0.9],
]
RECORD = SkillRecord(["write", "trace", "sql"], ACCURACY, INITIAL, trained=[[0], [1], [2]])


def is_png(path: Path) -> bool:
    return path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 5000


def test_the_table_has_accuracies_and_measures_in_percent() -> None:
    assert skill_table(RECORD).splitlines() == [
        "| stage | write | trace | sql | average | worst |",
        "|---|---:|---:|---:|---:|---:|",
        "| start | 20.0 | 10.0 | 30.0 | 20.0 | 10.0 |",
        "| 1 write | 80.0 | 30.0 | 30.0 | 46.7 | 30.0 |",
        "| 2 trace | 50.0 | 60.0 | 20.0 | 43.3 | 20.0 |",
        "| 3 sql | 60.0 | 70.0 | 90.0 | 73.3 | 60.0 |",
        "| forgetting | +20.0 | -10.0 | -60.0 | +5.0 | - |",
        "| forward transfer | - | +20.0 | -10.0 | - | - |",
    ]


def test_measures_are_those_of_the_definitions() -> None:
    numbers = measures(RECORD)
    assert numbers["average"] == pytest.approx(2.2 / 3)
    assert numbers["worst_skill"] == 0.6
    assert numbers["new_skill"] == 0.9
    assert numbers["forgetting"] == pytest.approx([0.2, -0.1, -0.6])
    # Only write and trace were trained before the last stage.
    assert numbers["mean_forgetting_of_earlier_skills"] == pytest.approx(0.05)
    assert numbers["forward_transfer"] == [None, pytest.approx(0.2), pytest.approx(-0.1)]
    assert numbers["interference"]["measured"][1] == pytest.approx([-0.3, 0.3, -0.1])
    assert numbers["interference"]["predicted"] is None
    assert numbers["stages"] == ["1 write", "2 trace", "3 sql"]
    assert numbers["trained"] == [["write"], ["trace"], ["sql"]]


def test_a_skill_trained_again_last_is_not_an_earlier_one() -> None:
    record = SkillRecord(["write", "trace"], [[0.8, 0.1], [0.5, 0.6], [0.9, 0.4]], [0.2, 0.1], trained=[[0], [1], [0]])
    assert record.earlier == [1]
    assert record.mean_forgetting == pytest.approx(0.2)


def test_levels_of_several_skills_forget_those_of_earlier_levels_and_learn_all_of_the_last_one() -> None:
    """The last level trains b for the second time and c for the first; a falls from 0.8 to 0.5 in it."""
    accuracy = [[0.8, 0.4, 0.1], [0.5, 0.6, 0.9]]
    record = SkillRecord(["a", "b", "c"], accuracy, [0.2, 0.2, 0.0], trained=[[0, 1], [1, 2]])
    assert record.stages == ["1 a + b", "2 b + c"]
    assert record.earlier == [0]
    assert record.mean_forgetting == pytest.approx(0.3)
    assert record.new_skill == pytest.approx((0.6 + 0.9) / 2)
    np.testing.assert_allclose(record.forward_transfer, [np.nan, np.nan, 0.1])
    assert measures(record)["trained"] == [["a", "b"], ["b", "c"]]


def test_stages_that_train_the_same_skills_together_share_a_row_of_the_interference(tmp_path: Path) -> None:
    first = SkillRecord(["a", "b", "c"], [[0.8, 0.4, 0.1], [0.5, 0.6, 0.9]], [0.2, 0.2, 0.0], trained=[[0], [1, 2]])
    other = SkillRecord(["c", "b", "a"], [[0.5, 0.5, 0.1]], [0.0, 0.0, 0.2], trained=[[0, 1]])
    trained, names, changes = mean_interference([first, other])
    assert (trained, names) == (["a", "b + c"], ["a", "b", "c"])
    np.testing.assert_allclose(changes, [[0.6, 0.2, 0.1], [-0.2, 0.35, 0.65]], atol=1e-12)
    assert is_png(draw_mean_interference([first, other], tmp_path / "interference.png"))


def test_the_most_forgotten_skill_is_one_of_the_earlier_ones() -> None:
    assert RECORD.most_forgotten == pytest.approx(0.2)  # write, from 0.8 to 0.6; trace got better, sql is new
    assert math.isnan(SkillRecord(["sql"], [[0.5]], [0.2], trained=[[0]]).most_forgotten)


def test_interference_is_averaged_over_runs_with_other_orders_of_the_skills() -> None:
    """In one run the changes of (write, trace, sql) are (60, 20, 0), (-30, 30, -10), (10, 10, 70) points."""
    swapped = SkillRecord(["sql", "write", "trace"], [[0.5, 0.4, 0.0]], [0.2, 0.2, 0.0], trained=[[0]])
    trained, names, changes = mean_interference([RECORD, swapped])
    assert trained == names == ["sql", "trace", "write"]
    np.testing.assert_allclose(changes, [[0.5, 0.05, 0.15], [-0.1, 0.3, -0.3], [0.0, 0.2, 0.6]], atol=1e-12)


def test_mixed_training_forgets_any_skill_and_has_no_new_one() -> None:
    record = SkillRecord(["write", "trace"], [[0.8, 0.1], [0.5, 0.6]], [0.2, 0.1])
    assert record.stages == ["1", "2"]
    assert record.mean_forgetting == pytest.approx((0.3 - 0.5) / 2)
    assert math.isnan(record.new_skill)
    assert skill_table(record).splitlines()[-1] == "| forward transfer | - | - | - | - |"


def test_the_folder_holds_json_table_and_pictures(tmp_path: Path) -> None:
    predicted = 0.1 * (np.diff(np.vstack([INITIAL, ACCURACY]), axis=0) - np.eye(3))
    record = SkillRecord(RECORD.skills, ACCURACY, INITIAL, RECORD.trained, predicted)
    write_skill_report(record, tmp_path / "report")
    numbers = json.loads((tmp_path / "report/skills.json").read_text())
    assert numbers == measures(record)
    assert numbers["interference"]["correlation"] == pytest.approx(1)
    assert (tmp_path / "report/skills.md").read_text() == skill_table(record) + "\n"
    assert is_png(tmp_path / "report/forgetting.png")
    assert is_png(tmp_path / "report/interference.png")


@pytest.mark.parametrize(("source", "unit"), [("rollouts", "advantages"), ("solutions", "nats a token")])
def test_the_panel_of_predictions_says_what_they_are_of(tmp_path: Path, monkeypatch, source, unit: str) -> None:
    titles: list[str] = []

    def kept(figure, path: Path) -> Path:
        titles.extend(axes.get_title() for axes in figure.axes)
        return path

    monkeypatch.setattr(skill_pictures, "save", kept)
    record = SkillRecord(RECORD.skills, ACCURACY, INITIAL, RECORD.trained, np.ones((3, 3)), source)
    skill_pictures.draw_interference(record, tmp_path / "interference.png")
    assert unit in titles[1]
    assert "reward" not in titles[1]
    assert measures(record)["interference"]["predicted_by"] == source


def test_what_was_not_measured_is_null_and_a_dash_and_is_drawn(tmp_path: Path) -> None:
    record = SkillRecord(["write", "sql"], [[0.8, math.nan]], [0.2, math.nan], trained=[[0]])
    write_skill_report(record, tmp_path)
    numbers = json.loads((tmp_path / "skills.json").read_text())
    assert numbers["accuracy"] == [[0.8, None]]
    assert (numbers["average"], numbers["mean_forgetting_of_earlier_skills"]) == (None, None)
    assert "| 1 write | 80.0 | - | - | - |" in (tmp_path / "skills.md").read_text()
    assert is_png(tmp_path / "interference.png")


def test_pareto_points_are_means_over_seeds_in_the_order_of_epsilon(tmp_path: Path) -> None:
    def run(kept: float, new: float) -> SkillRecord:
        return SkillRecord(["write", "sql"], [[0.8, 0.1], [kept, new]], [0.2, 0.1], trained=[[0], [1]])

    runs = {0.1: [run(0.5, 0.9), run(0.7, 0.7)], 0.0: [run(0.8, 0.5), run(0.8, 0.4)], math.inf: [run(0.2, 0.9)]}
    assert [point.epsilon for point in pareto_points(runs)] == [0.0, 0.1, math.inf]
    write_pareto_report(runs, tmp_path)
    assert (tmp_path / "pareto.md").read_text().splitlines()[2:] == [
        "| 0 | 2 | 45.0 ± 7.1 | 0.0 ± 0.0 |",
        "| 0.1 | 2 | 80.0 ± 14.1 | 20.0 ± 14.1 |",
        "| inf | 1 | 90.0 | 60.0 |",
    ]
    numbers = json.loads((tmp_path / "pareto.json").read_text())
    assert [point["new_skill"]["mean"] for point in numbers] == pytest.approx([0.45, 0.8, 0.9])
    assert numbers[2]["epsilon"] is None
    assert numbers[1]["forgetting"]["low"] == pytest.approx(0.1)
    assert is_png(tmp_path / "pareto.png")


def test_one_seed_has_no_deviation() -> None:
    record = SkillRecord(["write", "sql"], [[0.8, 0.1], [0.7, 0.9]], [0.2, 0.1], trained=[[0], [1]])
    (point,) = pareto_points({0.0: [record]})
    assert plain(point.forgetting.deviation) is None


def test_accuracies_that_do_not_fit_the_skills_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"accuracy must be \(stages, 2\) for \['write', 'sql'\], got \(3, 3\)"):
        write_skill_report(SkillRecord(["write", "sql"], ACCURACY, INITIAL), tmp_path)
    with pytest.raises(ValueError, match="some of 3 skills for each of 3 stages"):
        write_skill_report(SkillRecord(RECORD.skills, ACCURACY, INITIAL, trained=[[0], [1]]), tmp_path)
    assert not list(tmp_path.iterdir())
