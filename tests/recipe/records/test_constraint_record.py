"""The constraint record from metrics of three steps: one without constraints, two with those of `write` and `trace`."""

import math

import pytest

from recipe.records.skill_record import constraint_means


def steps(**metrics: tuple[float, float]) -> list[dict[str, float]]:
    """A step without protected skills, and two with these metrics (``__`` and ``_of_`` stand for ``/`` and ``.``)."""
    names = {name: name.replace("__", "/").replace("_of_", ".") for name in metrics}
    rows = [{f"actor/projection/{names[name]}": pair[step] for name, pair in metrics.items()} for step in (0, 1)]
    return [{"projection/active_constraints": 0.0}, *rows]


def test_a_skill_with_one_live_constraint_of_two_is_protected():
    """`write` has solutions in both steps; `trace` has nothing in the second."""
    found = constraint_means(
        steps(
            unprotected__write_of_rollouts=(1.0, 1.0),
            unprotected__write_of_solutions=(0.0, 0.0),
            unprotected__trace_of_rollouts=(0.0, 1.0),
            unprotected__trace_of_solutions=(0.0, 1.0),
            unprotected_skills=(1.0, 3.0),
        ),
        "both",
    )
    assert found["unprotected skills a step"] == 0.5


def test_with_one_source_each_zero_constraint_is_an_unprotected_skill():
    found = constraint_means(steps(unprotected__write=(1.0, 0.0), unprotected__trace=(1.0, 0.0)), "rollouts")
    assert found["unprotected skills a step"] == 1.0


def test_the_split_half_cosines_of_two_sources_are_two_numbers():
    metrics = steps(
        split_half_cosine__write_of_rollouts=(0.0, 0.1),
        split_half_cosine__write_of_solutions=(0.5, 0.7),
        split_half_cosine__trace_of_solutions=(0.6, 0.6),
        moved=(0.1, 0.3),
    )
    found = constraint_means(metrics, "both")
    assert found["split-half cosine, rollouts"] == pytest.approx(0.05)
    assert found["split-half cosine, solutions"] == pytest.approx(0.6)
    assert found["moved"] == pytest.approx(0.2)
    assert math.isnan(found["unprotected skills a step"])


@pytest.mark.parametrize(("source", "other"), [("rollouts", "solutions"), ("solutions", "rollouts")])
def test_a_single_source_has_its_number_and_the_other_none(source: str, other: str):
    asked = {"split_half_cosine__write_of_gain": (0.9, 0.9)}  # of other solutions: not averaged with it
    found = constraint_means(steps(split_half_cosine__write=(0.2, 0.4), **asked), source)
    assert found[f"split-half cosine, {source}"] == pytest.approx(0.3)
    assert math.isnan(found[f"split-half cosine, {other}"])
