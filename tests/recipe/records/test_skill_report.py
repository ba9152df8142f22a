"""Tables, JSON and pictures of a hand-made matrix with backward transfer and an unmeasured skill."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from recipe.records import skill_pictures
from recipe.records.skill_pictures import draw_mean_interference, write_pareto_report, write_skill_report
from recipe.records.skill_report import (
    InterferenceRow,
    SkillRecord,
    interference_table,
    mean_interference,
    measures,
    pareto_points,
    plain,
    skill_table,
)

INITIAL = [0.2, 0.1, 0.3]
ACCURACY = [
    [0.8, 0.3, 0.3],
    [0.5, 0.6, 0.2],
    [0.6, 0.7, 0.9],
]
RECORD = SkillRecord(["write", "trace", "sql"], ACCURACY, INITIAL, trained=[[0], [1], [2]])


def is_png(path: Path) -> bool:
    return path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 5000


def drawn(monkeypatch: pytest.MonkeyPatch, draw: Callable, of: Any) -> Figure:
    """The figure that would be saved."""
    found: list[Figure] = []
    monkeypatch.setattr(skill_pictures, "save", lambda figure, path, colours=40: found.append(figure))
    draw(of, Path("unused.png"))
    return found[0]


def means(rows: list[InterferenceRow]) -> list[list[float]]:
    return [[change.estimate for change in row.changes.values()] for row in rows]


def learner(kept: float, new: float) -> SkillRecord:
    """A run in which `write` falls from 0.8 to this, and `sql` rises from 0.1 to that."""
    return SkillRecord(["write", "sql"], [[0.8, 0.1], [kept, new]], [0.2, 0.1], trained=[[0], [1]])


def bars(axes: Axes) -> list[float]:
    """Lengths of all visible error bars."""
    segments = [np.asarray(part) for lines in axes.collections for part in cast(LineCollection, lines).get_segments()]
    return [float(np.ptp(part, axis=0).max()) for part in segments if part.size and np.isfinite(part).all()]


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
    # Their stages ended at 0.8, 0.6 and 0.9; write ends 0.2 lower, trace 0.1 higher.
    assert numbers["learned"] == pytest.approx(2.3 / 3)
    assert numbers["lost_since_stage"] == pytest.approx(0.05)
    assert numbers["forward_transfer"] == [None, pytest.approx(0.2), pytest.approx(-0.1)]
    assert numbers["interference"]["measured"][1] == pytest.approx([-0.3, 0.3, -0.1])
    assert numbers["interference"]["predicted"] is None
    assert numbers["stages"] == ["1 write", "2 trace", "3 sql"]
    assert numbers["trained"] == [["write"], ["trace"], ["sql"]]


def test_a_skill_trained_again_last_is_not_an_earlier_one() -> None:
    record = SkillRecord(["write", "trace"], [[0.8, 0.1], [0.5, 0.6], [0.9, 0.4]], [0.2, 0.1], trained=[[0], [1], [0]])
    assert record.earlier == [1]
    assert record.mean_forgetting == pytest.approx(0.2)
    assert record.learned == pytest.approx(0.75)


def test_levels_of_several_skills_forget_those_of_earlier_levels_and_learn_all_of_the_last_one() -> None:
    """The last level trains b for the second time and c for the first; a falls from 0.8 to 0.5."""
    accuracy = [[0.8, 0.4, 0.1], [0.5, 0.6, 0.9]]
    record = SkillRecord(["a", "b", "c"], accuracy, [0.2, 0.2, 0.0], trained=[[0, 1], [1, 2]])
    assert record.stages == ["1 a + b", "2 b + c"]
    assert record.earlier == [0]
    assert record.mean_forgetting == pytest.approx(0.3)
    assert record.new_skill == pytest.approx((0.6 + 0.9) / 2)
    np.testing.assert_allclose(record.forward_transfer, [np.nan, np.nan, 0.1])
    assert measures(record)["trained"] == [["a", "b"], ["b", "c"]]


@pytest.mark.slow
def test_stages_that_train_the_same_skills_together_share_a_row_of_the_interference(tmp_path: Path) -> None:
    first = SkillRecord(["a", "b", "c"], [[0.8, 0.4, 0.1], [0.5, 0.6, 0.9]], [0.2, 0.2, 0.0], trained=[[0], [1, 2]])
    other = SkillRecord(["c", "b", "a"], [[0.5, 0.5, 0.1]], [0.0, 0.0, 0.2], trained=[[0, 1]])
    rows = mean_interference([first, other])
    assert [(row.label, row.runs) for row in rows] == [("b + c", 1), ("a, first", 1), ("b + c, first", 1)]
    np.testing.assert_allclose(means(rows), [[-0.3, 0.2, 0.8], [0.6, 0.2, 0.1], [-0.1, 0.5, 0.5]], atol=1e-12)
    assert is_png(draw_mean_interference([first, other], tmp_path / "interference.png"))


def test_one_stage_forgets_the_skills_that_are_named_to_be_protected() -> None:
    """Training sql takes `write` from 0.9 to 0.3 and `repair` from 0.5 to 0.6; `trace` is not protected."""
    skills, accuracy, initial = ["write", "repair", "trace", "sql"], [[0.3, 0.6, 0.0, 0.8]], [0.9, 0.5, 0.4, 0.2]
    record = SkillRecord(skills, accuracy, initial, trained=[[3]], protected=["write", "repair", "poetry"])
    assert record.earlier == [0, 1]
    assert record.mean_forgetting == pytest.approx((0.6 - 0.1) / 2)
    assert record.most_forgotten == pytest.approx(0.6)
    assert measures(record)["mean_forgetting_of_earlier_skills"] == pytest.approx(0.25)


def test_a_named_skill_that_the_last_stage_trains_is_not_forgotten() -> None:
    record = SkillRecord(["write", "sql"], [[0.8, 0.1], [0.5, 0.9]], [0.2, 0.1], [[0], [1]], protected=["sql"])
    assert record.earlier == [0]


def test_the_most_forgotten_skill_is_one_of_the_earlier_ones() -> None:
    assert RECORD.most_forgotten == pytest.approx(0.2)  # write, from 0.8 to 0.6; trace got better, sql is new
    assert math.isnan(SkillRecord(["sql"], [[0.5]], [0.2], trained=[[0]]).most_forgotten)


def test_interference_is_averaged_over_runs_with_other_orders_of_the_skills() -> None:
    """The changes of (write, trace, sql) in one run are (60, 20, 0), (-30, 30, -10), (10, 10, 70) points."""
    swapped = SkillRecord(["sql", "write", "trace"], [[0.5, 0.4, 0.0]], [0.2, 0.2, 0.0], trained=[[0]])
    rows = mean_interference([RECORD, swapped])
    assert [row.label for row in rows] == ["sql", "trace", "sql, first", "write, first"]
    assert list(rows[0].changes) == ["sql", "trace", "write"]
    expected = [[0.7, 0.1, 0.1], [-0.1, 0.3, -0.3], [0.3, 0.0, 0.2], [0.0, 0.2, 0.6]]
    np.testing.assert_allclose(means(rows), expected, atol=1e-12)


def test_a_first_stage_that_helps_every_skill_does_not_hide_what_later_ones_cost() -> None:
    """As second stage of two runs, sql costs write 30 points on average; as first stage of a third, write gains 50.

    The mean over all three would be -3.3; the mean of -40 and -20 has an interval of 12.706 standard errors of 10.
    """
    later = [SkillRecord(["write", "sql"], [[0.9, 0.2], [end, 0.8]], [0.4, 0.2], [[0], [1]]) for end in (0.5, 0.7)]
    first = SkillRecord(["sql", "write"], [[0.8, 0.9], [0.7, 0.9]], [0.2, 0.4], [[0], [1]])
    rows = {row.label: row for row in mean_interference([*later, first])}
    assert list(rows) == ["sql", "write", "sql, first", "write, first"]
    change = rows["sql"].changes["write"]
    assert rows["sql"].runs == 2
    assert change.estimate == pytest.approx(-0.3)
    assert change.low == pytest.approx(-0.3 - 1.2706, abs=1e-4)
    assert change.high == pytest.approx(-0.3 + 1.2706, abs=1e-4)
    assert rows["sql, first"].changes["write"].estimate == pytest.approx(0.5)
    assert interference_table([*later, first]).splitlines()[2:5] == [
        "| trained in the stage | runs | sql | write |",
        "|---|---:|---:|---:|",
        "| sql | 2 | +60.0 [+60.0, +60.0] | -30.0 [-157.1, +97.1] |",
    ]


def test_the_interference_has_intervals_from_three_runs_on_and_a_colour_bar_for_each_panel(monkeypatch) -> None:
    def cells(*ends: float) -> list[str]:
        runs = [SkillRecord(["write", "sql"], [[0.9, 0.2], [end, 0.8]], [0.4, 0.2], [[0], [1]]) for end in ends]
        panel, bar = drawn(monkeypatch, skill_pictures.draw_mean_interference, runs).axes
        assert bar.get_label() == "<colorbar>"
        assert [text.get_text() for text in panel.get_yticklabels()] == [
            f"sql ({len(ends)})",
            f"write, first ({len(ends)})",
        ]
        return [text.get_text() for text in panel.texts]

    assert cells(0.5, 0.7) == ["+60.0", "-30.0", "+0.0", "+50.0"]
    # Of -40, -20, -30: a standard error of 5.77, times 4.303.
    assert cells(0.5, 0.7, 0.6)[1] == "-30.0\n[-54.8, -5.2]"


@pytest.mark.slow
def test_what_gradients_foresaw_is_averaged_over_the_runs_that_know_it(tmp_path: Path) -> None:
    nan = math.nan
    one = SkillRecord(["a", "b"], [[0.8, 0.4], [0.5, 0.6]], [0.2, 0.2], [[0], [1]], [[nan, nan], [-0.3, 0.1]])
    other = SkillRecord(["b", "a"], [[0.8, 0.4], [0.5, 0.6]], [0.2, 0.2], [[0], [1]], [[nan, 0.5], [nan, -0.2]])
    rows = mean_interference([one, other], predicted=True)
    assert [row.label for row in rows] == ["a", "b", "b, first"]
    assert [{name: round(change.estimate, 6) for name, change in row.changes.items()} for row in rows] == [
        {"a": -0.2}, {"a": -0.3, "b": 0.1}, {"a": 0.5}
    ]  # fmt: skip
    assert is_png(draw_mean_interference([one], tmp_path / "interference.png", predicting=[one, other]))


def test_mixed_training_forgets_any_skill_and_has_no_new_one() -> None:
    record = SkillRecord(["write", "trace"], [[0.8, 0.1], [0.5, 0.6]], [0.2, 0.1])
    assert record.stages == ["1", "2"]
    assert record.mean_forgetting == pytest.approx((0.3 - 0.5) / 2)
    assert math.isnan(record.new_skill)
    assert skill_table(record).splitlines()[-1] == "| forward transfer | - | - | - | - |"


@pytest.mark.slow
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
    assert "<svg" in (tmp_path / "report/interference.svg").read_text()


@pytest.mark.parametrize(("source", "unit"), [("rollouts", "advantages"), ("solutions", "(nats)")])
def test_the_panel_of_predictions_says_what_they_are_of(monkeypatch, source, unit: str) -> None:
    record = SkillRecord(RECORD.skills, ACCURACY, INITIAL, RECORD.trained, np.ones((3, 3)), source)
    _, panel, *_ = drawn(monkeypatch, skill_pictures.draw_interference, record).axes
    assert unit in panel.get_title()
    assert "reward" not in panel.get_title()
    assert measures(record)["interference"]["predicted_by"] == source


@pytest.mark.slow
def test_what_was_not_measured_is_null_and_a_dash_and_is_drawn(tmp_path: Path) -> None:
    record = SkillRecord(["write", "sql"], [[0.8, math.nan]], [0.2, math.nan], trained=[[0]])
    write_skill_report(record, tmp_path)
    numbers = json.loads((tmp_path / "skills.json").read_text())
    assert numbers["accuracy"] == [[0.8, None]]
    assert (numbers["average"], numbers["mean_forgetting_of_earlier_skills"]) == (None, None)
    assert "| 1 write | 80.0 | - | - | - |" in (tmp_path / "skills.md").read_text()
    assert is_png(tmp_path / "interference.png")


@pytest.mark.slow
def test_pareto_points_are_means_over_seeds_in_the_order_of_epsilon(tmp_path: Path) -> None:
    runs = {
        0.1: [learner(0.5, 0.9), learner(0.7, 0.7)],
        0.0: [learner(0.8, 0.5), learner(0.8, 0.4), learner(0.8, math.nan)],  # two runs have both measurements
        math.inf: [learner(0.2, 0.9)],
        0.3: [learner(math.nan, 0.9)],
    }
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


def test_the_curve_joins_means_of_runs_and_not_single_runs(monkeypatch) -> None:
    one, two = [learner(0.5, 0.9)], [learner(0.5, 0.9), learner(0.7, 0.7)]
    for runs, joined, lengths, words in (
        ({0.0: one, 0.1: one}, "None", [], "by epsilon (number of runs); hollow: one run, no interval"),
        ({0.0: one, 0.1: two}, "None", [20, 20], "no interval; bars from the lowest to the highest run"),
        ({0.0: two, 0.1: two}, "-", [20, 20, 20, 20], "bars from the lowest to the highest run"),
    ):
        (axes,) = drawn(monkeypatch, skill_pictures.draw_pareto, pareto_points(runs)).axes
        assert axes.lines[0].get_linestyle() == joined
        assert bars(axes) == pytest.approx(lengths)
        points = [line for line in axes.lines if line.get_marker() == "o"]
        assert [line.get_markerfacecolor() == "white" for line in points] == [len(own) == 1 for own in runs.values()]
        assert axes.get_title().endswith(words)
        assert [text.get_text() for text in axes.texts] == [
            f"{epsilon:g} ({len(own)})" for epsilon, own in runs.items()
        ]


def test_the_arms_say_how_many_runs_they_are_and_one_has_no_bars(monkeypatch) -> None:
    """An interval of two runs is thirteen standard errors long; it must not shrink the rest of the picture."""
    arms = {"grpo": [learner(0.2, 0.9)], "qp": [learner(0.5, 0.9), learner(0.7, 0.7), learner(0.7, math.nan)]}
    figure = drawn(monkeypatch, skill_pictures.draw_arms, arms)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["grpo (1)", "qp (2)"]
    (axes,) = figure.axes
    assert bars(axes) == pytest.approx([2 * 12.706 * 10] * 2, rel=1e-4)
    left, right = axes.get_xlim()
    assert 0 < left < 10 < 60 < right < 70


def test_one_seed_has_no_deviation() -> None:
    (point,) = pareto_points({0.0: [learner(0.7, 0.9)]})
    assert plain(point.forgetting.deviation) is None


def test_accuracies_that_do_not_fit_the_skills_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"accuracy must be \(stages, 2\) for \['write', 'sql'\], got \(3, 3\)"):
        write_skill_report(SkillRecord(["write", "sql"], ACCURACY, INITIAL), tmp_path)
    with pytest.raises(ValueError, match="some of 3 skills for each of 3 stages"):
        write_skill_report(SkillRecord(RECORD.skills, ACCURACY, INITIAL, trained=[[0], [1]]), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_every_arm_has_its_own_shape(monkeypatch) -> None:
    arms = {f"arm{number}": [learner(0.5, 0.9), learner(0.7, 0.7)] for number in range(12)}
    (axes,) = drawn(monkeypatch, skill_pictures.draw_arms, arms).axes
    faint = [line.get_marker() for line in axes.lines if line.get_markersize() == 3]
    assert len(set(faint)) == len(faint) == 12


@pytest.mark.slow
def test_a_picture_is_saved_in_two_formats_and_equal_data_give_equal_files(tmp_path: Path) -> None:
    one, other = tmp_path / "one.png", tmp_path / "other.png"
    for path in (one, other):
        skill_pictures.draw_arms({"grpo": [learner(0.5, 0.9)]}, path)
    assert one.with_suffix(".svg").read_bytes() == other.with_suffix(".svg").read_bytes()
    assert "grpo (1)" in one.with_suffix(".svg").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.png", "one.svg", "other.png", "other.svg"]


def test_skills_of_forgetting_curves_differ_by_shape_and_have_intervals_where_errors_are_known(monkeypatch):
    known = replace(RECORD, errors=np.full((4, 3), 0.05))
    left, right = drawn(monkeypatch, skill_pictures.draw_forgetting, known).axes
    assert bars(left) == pytest.approx([2 * 1.96 * 0.05] * 12)
    assert len({line.get_marker() for line in right.lines if line.get_marker() != "None"}) == 3
    assert bars(drawn(monkeypatch, skill_pictures.draw_forgetting, RECORD).axes[0]) == []
