"""A report states the precision of its accuracies, and which greedy ones are missing."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import FillBetweenPolyCollection

from recipe.records.experiment_page import skill_table
from recipe.records.pictures import draw_learning_curve
from recipe.records.run_directory import RunDirectory
from recipe.records.tables import LARGEST_ERROR, cautions
from recipe.training.skill_accuracy import share_error
from tests.composing import composed

SAMPLES_PER_SKILL = 625
STUDIES = {"paper_b": 51, "evidence_a": 51, "paper_b_real": 157}  # held-out prompts of each skill


def finished(folder: Path, name: str, *errors: float | None, greedy: bool = True) -> RunDirectory:
    """A run with one validation per standard error of `sql`; None: not recorded."""
    run = RunDirectory.prepare(str(folder), "study", name)
    for step, error in enumerate(errors):
        row = {"skill/sql/accuracy": 0.5, "skill/mean/accuracy": 0.5, "skill/worst/accuracy": 0.5}
        row |= {} if error is None else {"skill/sql/standard_error": error, "skill/mean/standard_error": error}
        row |= {"skill/sql/greedy_accuracy": 0.75, "skill/mean/greedy_accuracy": 0.75} if greedy else {}
        run.log_metrics(step, row)
    return run


def test_nothing_is_to_be_said_of_runs_that_measured_enough(tmp_path: Path):
    assert cautions([finished(tmp_path, "a", 0.0, 0.02), finished(tmp_path, "b", 0.0199)]) == []


def test_what_was_measured_too_roughly_or_not_at_all_is_counted(tmp_path: Path):
    runs = [
        finished(tmp_path, "a", 0.01, 0.0495),
        finished(tmp_path, "b", 0.021, greedy=False),
        finished(tmp_path, "c", 0.01, None),
        finished(tmp_path, "d", 0.01),
    ]
    assert cautions(runs) == [
        "An accuracy's standard error exceeds 2 points in 2 of 4 runs: up to 5.0.",
        "The standard error of an accuracy was not recorded in 1 of 4 runs.",
        "Greedy accuracy was not measured in 1 of 4 runs.",
    ]


def test_validations_between_may_be_rough_and_the_first_and_last_may_not(tmp_path: Path):
    assert cautions([finished(tmp_path, "a", 0.01, 0.0495, 0.02)]) == []
    assert "up to 5.0" in cautions([finished(tmp_path, "b", 0.0495, 0.01, 0.02)])[0]


@pytest.mark.slow
def test_the_studies_of_the_papers_ask_for_enough_samples_of_each_skill():
    halves = [float(number % 2) for number in range(SAMPLES_PER_SKILL - 1)]
    assert share_error(halves) > LARGEST_ERROR >= share_error([*halves, 0.0])
    for study, prompts in STUDIES.items():
        config = composed(f"experiment={study}")
        assert prompts * config.actor_rollout_ref.rollout.val_kwargs.n >= SAMPLES_PER_SKILL, study
        assert config.run.greedy_validation, study


def test_the_report_of_a_run_has_greedy_accuracy_and_its_curve_has_intervals(tmp_path: Path, monkeypatch):
    run = finished(tmp_path, "a", 0.02, 0.01)
    assert [row.greedy for row in skill_table(run)] == [(0.75, 0.75), (0.75, 0.75)]
    figures = []
    monkeypatch.setattr("recipe.records.pictures.save", lambda figure, path: figures.append(figure))
    draw_learning_curve(run)
    (axes,) = figures[0].axes
    lengths = [float(abs(top[1] - low[1])) for lines in axes.collections for low, top in lines.get_segments()]
    assert lengths == pytest.approx([0.0784, 0.0392] * 2)  # of `sql`, and of the mean
    (dashed,) = [line for line in axes.lines if line.get_linestyle() == "--"]
    assert list(dashed.get_ydata()) == [0.75, 0.75]


def test_the_learning_curve_has_every_step_with_a_band_of_the_standard_error(tmp_path: Path, monkeypatch):
    run = finished(tmp_path, "a", 0.02)
    for step, accuracy in enumerate((0.5, 0.7, 0.5, 0.7, 0.5), start=1):
        run.log_metrics(step, {"reward/acc": accuracy})
    figures = []
    monkeypatch.setattr("recipe.records.pictures.save", lambda figure, path: figures.append(figure))
    draw_learning_curve(run)
    (axes,) = figures[0].axes
    line = axes.lines[0]
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([0, 1, 2, 3, 4], [0.5, 0.7, 0.5, 0.7, 0.5])
    (band,) = [one for one in axes.collections if isinstance(one, FillBetweenPolyCollection)]
    corners = np.asarray(band.get_paths()[0].vertices)
    reach = [np.ptp(corners[corners[:, 0] == step, 1]) for step in range(5)]
    assert reach == pytest.approx([2 * 0.2 / 2**0.5] * 5)  # successive steps differ by 0.2: sqrt(0.2**2 / 2) each


def test_skills_differ_by_the_shape_of_their_validations(tmp_path: Path, monkeypatch):
    run = RunDirectory.prepare(str(tmp_path), "study", "a")
    run.log_metrics(0, {f"skill/{skill}/accuracy": 0.5 for skill in ("sql", "trace", "write", "mean")})
    figures = []
    monkeypatch.setattr("recipe.records.pictures.save", lambda figure, path: figures.append(figure))
    draw_learning_curve(run)
    (axes,) = figures[0].axes
    markers = [line.get_marker() for line in axes.lines if line.get_marker() != "_"]  # without the caps of intervals
    assert len(markers) == len(set(markers)) == 4
