"""The promise of a run, counted and drawn from hand-made metrics."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from recipe.keep import _selected
from recipe.records import promise as module
from recipe.records.promise import Promise, constraint_names, draw_promise, promise


def row(step: int, verified: float = 1, undone: float = 0, **levels: tuple[float, float, float]) -> dict[str, float]:
    """An update's metrics; for each skill J before it, J after it, and its line, 0.25 below its anchor."""
    numbers = {"step": float(step), "actor/projection/verified_steps": verified}
    numbers |= {"actor/projection/undone_steps": undone, "actor/projection/shrunk_steps": 0.0}
    for name, (before, after, line) in levels.items():
        found = {"level": before, "verified_level": after, "line": line, "anchor": line + 0.25}
        found |= {"slack": before - line, "multiplier": 0.5}
        numbers |= {f"actor/projection/{metric}/{name}": value for metric, value in found.items()}
    return numbers


ROWS = [
    {"step": 1.0},
    row(2, write=(-1.0, -1.1, -1.25)),
    row(3, undone=1, write=(-1.1, -1.1, -1.25), sql=(-2.0, -2.25, -2.25)),
    row(4, verified=2, write=(-1.1, -1.5, -1.25), sql=(-2.25, -2.0, -2.25)),
]


def test_every_level_below_its_line_is_counted_and_one_on_it_is_not():
    found = promise(ROWS)
    assert found is not None
    assert found == Promise(verified=4, shrunk=0, undone=1, levels=5, below=1, lowest=-0.25)
    assert promise(ROWS[:1]) is None


def test_corrected_steps_kept_shares_and_constraints_without_an_anchor_are_counted():
    before, after = row(2, verified=0), row(3, verified=2, write=(-1.0, -1.1, -1.25))
    before |= {"actor/projection/kept_share": 1.0, "actor/projection/unprotected/write": 1.0}
    after |= {"actor/projection/kept_share": 0.5, "actor/projection/corrected_steps": 1.0}
    after |= {f"actor/projection/unprotected/{name}": 0.0 for name in ("write", "sql", "sql.rollouts")}
    after |= {"actor/projection/anchor/sql.rollouts": 0.5}
    after = _selected(after)  # what recipe.keep leaves
    found = promise([before, after])
    assert found is not None
    assert (found.corrected, found.kept, found.without) == (1, 0.5, 2)


def test_a_level_that_is_no_number_breaks_the_promise():
    found = promise([row(2, write=(-1.0, float("nan"), -1.25))])
    assert found is not None
    assert found.below == 1


def test_the_lowest_of_an_updates_steps_counts_and_not_only_the_last_one():
    last = row(2, write=(-1.0, -1.1, -1.25))
    found = promise([last | {"actor/projection/verified_margin/write": -0.05}])
    assert found is not None
    assert (found.below, found.lowest) == (1, -0.05)


def test_the_picture_has_a_column_per_constraint_and_gaps_where_it_is_not_protected(monkeypatch):
    drawn: list[Figure] = []
    monkeypatch.setattr(module, "save", lambda figure, path: drawn.append(figure))
    draw_promise(ROWS, Path("unused.png"))
    axes = drawn[0].get_axes()
    assert constraint_names(ROWS) == [each.get_title() for each in axes[:2]] == ["write", "sql"]
    assert [each.get_ylabel() for each in axes[::2]] == ["J", "slack", "multiplier"]
    level, after, anchor, line = (np.asarray(each.get_ydata()) for each in axes[1].lines)
    np.testing.assert_array_equal(level, [np.nan, np.nan, -2.0, -2.25])
    np.testing.assert_array_equal(after, [np.nan, np.nan, -2.25, -2.0])
    np.testing.assert_array_equal(anchor - line, [np.nan, np.nan, 0.25, 0.25])
    np.testing.assert_array_equal(np.asarray(axes[3].lines[0].get_ydata())[2:], [0.25, 0.0])


@pytest.mark.slow
def test_the_gain_that_is_asked_for_is_drawn_with_its_skill_and_has_no_column(monkeypatch):
    figures: list[Figure] = []
    monkeypatch.setattr(module, "save", lambda figure, path: figures.append(figure))
    asked = {"actor/projection/slack/write.gain": -0.75, "actor/projection/multiplier/write.gain": 2.0}
    draw_promise([*ROWS, row(5, write=(-1.0, -1.0, -1.25)) | asked], Path("unused.png"))
    draw_promise(ROWS, Path("unused.png"))
    axes = figures[0].get_axes()
    assert len(axes) == 6
    for first, value in zip(axes[2::2], (-0.75, 2.0), strict=True):
        assert value in [np.asarray(line.get_ydata())[-1] for line in first.lines]
    with_legend = [[each.get_legend() is not None for each in figure.get_axes()[2:]] for figure in figures]
    assert with_legend == [[True, False] * 2, [False] * 4]


@pytest.mark.slow
def test_the_picture_is_saved_in_two_formats_and_only_with_anchors(tmp_path: Path):
    assert draw_promise(ROWS[:1], tmp_path / "none.png") is None
    draw_promise(ROWS, tmp_path / "promise.png")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["promise.png", "promise.svg"]


def test_metrics_that_are_no_numbers_leave_a_promise_that_can_be_read():
    broken = row(2, write=(-1.0, -1.0, -1.25)) | {"actor/projection/undone_steps": float("nan")}
    assert promise([broken]) == Promise(1, 0, 0, levels=1, below=0, lowest=0.25)
    assert promise([dict.fromkeys(broken, float("inf"))]) is None
