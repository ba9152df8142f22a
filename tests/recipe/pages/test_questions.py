"""The three questions of a page: their answers follow from a run's numbers and nothing else."""

import math

from recipe.pages.questions import questions
from recipe.records.experiment_page import SkillRow
from recipe.records.promise import Promise


def rows(before: dict[str, float], after: dict[str, float], error: float | None = 0.02) -> list[dict[str, float]]:
    """Metrics of two validations."""
    found = []
    for step, values in ((0.0, before), (12.0, after)):
        row = {"step": step} | {f"skill/{skill}/accuracy": value for skill, value in values.items()}
        if error is not None:
            row |= {f"skill/{skill}/standard_error": error for skill in values}
        found.append(row)
    return found


def table(before: dict[str, float], after: dict[str, float]) -> list[SkillRow]:
    return [SkillRow(skill, before[skill], after[skill]) for skill in before]


BEFORE = {"write": 0.4, "sql": 0.6, "mean": 0.5}
RISEN = {"write": 0.6, "sql": 0.61, "mean": 0.605}
FALLEN = {"write": 0.3, "sql": 0.5, "mean": 0.4}


def asked(before=BEFORE, after=RISEN, error=0.02, promise=None, credit=False, protects=False, samples=()):
    return questions(rows(before, after, error), table(before, after), promise, credit, protects, samples)


def test_a_mean_that_rose_beyond_noise_is_learning_and_its_interval_is_that_of_two_validations():
    learned, _, lost = asked()
    assert (learned.answer, learned.mark) == ("yes", "up")
    # 1.96 * sqrt(2) * 2 points = 5.5 points.
    assert "50.0% before, 60.5% now: +10.5 points [+5.0, +16.0]" in learned.facts[0]
    assert learned.facts[-1] == "1 of 2 skills rose beyond noise: write."
    assert (lost.answer, lost.mark) == ("nothing beyond noise", "up")
    assert lost.facts[0] == "Smallest change: sql, +1.0 points [-4.5, +6.5]."


def test_a_change_within_noise_is_neither_learnt_nor_lost():
    learned, _, lost = asked(error=0.06)
    assert (learned.answer, learned.mark) == ("not beyond noise", "")
    assert lost.mark == "up"


def test_what_fell_beyond_noise_was_lost():
    learned, _, lost = asked(after=FALLEN)
    assert (learned.answer, learned.mark) == ("no: it got worse", "down")
    assert lost.mark == "down"
    assert lost.answer == "write -10.0 points, sql -10.0 points from the peak"


def test_what_a_skill_gained_in_the_run_can_be_lost_too():
    levels = [{"write": write, "sql": 0.6, "mean": (write + 0.6) / 2} for write in (0.2, 0.9, 0.5)]
    metrics = [*rows(levels[0], levels[1]), rows(levels[0], levels[2])[1] | {"step": 24.0}]
    lost = questions(metrics, table(levels[0], levels[2]), None, False, False, [])[2]
    assert (lost.answer, lost.mark) == ("write -40.0 points from the peak", "down")


def test_without_standard_errors_no_verdict_is_given():
    learned, _, lost = asked(error=None)
    assert learned.answer == "by how much is not known: one validation has no standard error"
    assert lost.answer == "by how much is not known: skills have no standard errors"
    assert (learned.mark, lost.mark) == ("", "")


def test_one_validation_measures_no_change():
    found = questions(rows(BEFORE, RISEN)[:1], table(BEFORE, BEFORE), None, False, False, [])
    assert [one.answer for one in found] == ["not measured yet", "not measured", "not measured yet"]
    assert {one.mark for one in found} == {"open"}


def sample(*pieces, skill="write", verdict="wrong"):
    listed = [list(piece) for piece in pieces]
    return {"pieces": listed, "skill": skill, "step": 3, "verdict": verdict, "prompt": len(listed)}


def test_steps_are_counted_by_the_sign_of_their_credit_and_a_sample_with_both_signs_is_the_example():
    plain = sample(("a",), ("b\n", 1.0, []))
    both = sample(("x\n", 0.5, []), ("y\n", -0.25, []), ("z",), ("w", None, []))
    (_, earned, _) = asked(credit=True, samples=[plain, both, sample(("no step",))])
    assert earned.answer == "2 steps helped, 1 did harm"
    assert earned.facts[0].startswith("3 steps of 2 samples were replayed")
    assert "67% had raised the share of passed tests, 33% lowered it, the rest made no difference" in earned.facts[0]
    assert list(earned.example) == [("x\n", 0.5), ("y\n", -0.25), ("z", None), ("w", None)]
    assert earned.facts[-1] == "An example: write, update 3, wrong."
    assert earned.prompt == both["prompt"]


def test_the_example_is_a_right_answer_where_one_shows_a_difference():
    wrong = sample(("x", 0.5, []), ("y", -0.25, []))
    right = sample(("a", 0.25, []), ("b", 0.0, []), verdict="right")
    plain = sample(("c", 1.0, []), verdict="right")
    assert list(asked(credit=True, samples=[wrong, right, plain])[1].example) == [("a", 0.25), ("b", 0.0)]


def test_credit_that_tells_nothing_is_said_to_tell_nothing():
    equal = sample(("x", 0.0, []), ("y", 0.0, []))
    assert asked(credit=True, samples=[equal])[1].answer == "no step made a difference"
    assert asked(credit=True)[1].answer == "not measured yet"
    assert asked()[1].facts == ["`credit=counterfactual` measures it."]


def test_what_protection_kept_is_reported_with_what_was_lost():
    assert asked()[2].facts[-1] == "No skill was protected: `projection=qp` protects them."
    assert asked(promise=Promise(10, 2, 1, 40, 0, 0.1, corrected=3), protects=True)[2].facts[-1] == (
        "Of 40 levels J of protected skills after an update, 0 ended below their line; "
        "of 10 verified optimiser steps 3 were corrected, 2 shrunk, 1 undone."
    )


def test_the_least_change_of_greedy_answers_is_reported():
    rows_of = [SkillRow("write", 0.4, 0.6, (1.0, 0.9)), SkillRow("sql", 0.6, 0.61, (0.9, 0.95)),
               SkillRow("mean", 0.5, 0.605, (0.95, 0.925))]  # fmt: skip
    lost = questions(rows(BEFORE, RISEN), rows_of, None, False, True, [])[2]
    assert lost.facts[1] == "Of greedy answers: write, -10.0 points."


def test_an_accuracy_that_is_no_number_gets_no_verdict():
    learned, _, lost = asked(after={"write": math.nan, "sql": 0.6, "mean": math.nan})
    assert (learned.answer, learned.mark) == ("not known: an accuracy is no number", "open")
    assert (lost.answer, lost.mark) == ("not known: an accuracy is no number (write)", "open")
    assert [fact for fact in (*learned.facts, *lost.facts) if "nan" in fact] == []
