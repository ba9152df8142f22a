"""The three questions that a page opens with: did it learn, which step earned it, what was lost."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from recipe.health.record import fall_from_peak
from recipe.records.experiment_page import SkillRow
from recipe.records.intervals import NORMAL_QUANTILE
from recipe.records.promise import Promise

Mark = Literal["up", "down", "open", ""]
SampleRow = Mapping[str, Any]
"""A row of `recipe.pages.page_samples`."""

_NO_NUMBER, _LOOK = "not known: an accuracy is no number", "`metrics.jsonl` has NaN or infinity in a validation."
_ANCHORS = {"Did it learn?": "accuracy", "Which step earned it?": "samples", "What was lost?": "protection"}


@dataclass(frozen=True)
class PageQuestion:
    """A question with its answer in a word, and what it rests on.

    mark: whether the answer is good (up), bad (down), not measured (open) or neither. facts: sentences. example: a
    response as (text, credit or None), where one shows the answer; prompt: its place in the texts of the page.
    """

    asked: str
    answer: str
    mark: Mark
    facts: Sequence[str]
    example: Sequence[tuple[str, float | None]] = ()
    prompt: int | None = None

    @property
    def anchor(self) -> str:
        """The page's section that has the rest."""
        return _ANCHORS[self.asked]


@dataclass(frozen=True)
class SkillChange:
    """Change of an accuracy from the first validation to the last, in points; low, high: its 95% interval if known.

    The two validations count as independent, though they share their prompts: the interval is rather too wide.
    """

    row: SkillRow
    low: float | None = None
    high: float | None = None

    @property
    def beyond_noise(self) -> bool:
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)

    def __str__(self) -> str:
        interval = "" if self.low is None else f" [{self.low:+.1f}, {self.high:+.1f}]"
        return f"{100 * self.row.change:+.1f} points{interval}"


def questions(
    rows: Sequence[Mapping[str, float]],
    table: Sequence[SkillRow],
    promise: Promise | None,
    credit: bool,
    protects: bool,
    samples: Sequence[SampleRow],
) -> list[PageQuestion]:
    """The questions and how a run answers them.

    rows: metrics of each step. table: of its skills, their mean last. promise: of its verified steps. credit,
    protects: whether the run's settings ask for credit, and for projected steps. samples: those on the page.
    """
    validated = sum("skill/mean/accuracy" in row for row in rows) > 1
    changes = [_change(rows, row) for row in table] if validated else []
    return [_learned(changes), _earned(credit, samples), _lost(rows, changes[:-1], promise, protects)]


def _change(rows: Sequence[Mapping[str, float]], row: SkillRow) -> SkillChange:
    key = f"skill/{row.skill}/standard_error"
    errors = [one[key] for one in rows if f"skill/{row.skill}/accuracy" in one and key in one]
    count = sum(f"skill/{row.skill}/accuracy" in one for one in rows)
    if len(errors) < max(2, count) or not all(map(math.isfinite, errors)):
        return SkillChange(row)
    reach = 100 * NORMAL_QUANTILE * math.hypot(errors[0], errors[-1])
    return SkillChange(row, 100 * row.change - reach, 100 * row.change + reach)


def _learned(changes: Sequence[SkillChange]) -> PageQuestion:
    asked = "Did it learn?"
    if not changes:
        return PageQuestion(asked, "not measured yet", "open", ["The run has not validated twice."])
    mean = changes[-1]
    if not math.isfinite(mean.row.change):
        return PageQuestion(asked, _NO_NUMBER, "open", [_LOOK])
    facts = [
        f"Sampled validation answers, mean of the skills: {100 * mean.row.before:.1f}% before, "
        f"{100 * mean.row.after:.1f}% now: {mean}."
    ]
    if mean.row.greedy:
        before, after = mean.row.greedy
        facts.append(
            f"Greedy answers: {100 * before:.1f}% before, {100 * after:.1f}% now. Where only sampled answers gain, the "
            "policy became more confident in what it could do."
        )
    skills = changes[:-1]
    if len(skills) > 1 and all(one.low is not None for one in skills):
        rose = [one.row.skill for one in skills if one.beyond_noise and one.row.change > 0]
        facts.append(f"{len(rose)} of {len(skills)} skills rose beyond noise{': ' if rose else ''}{', '.join(rose)}.")
    if mean.low is None:
        return PageQuestion(asked, "by how much is not known: one validation has no standard error", "", facts)
    if not mean.beyond_noise:
        return PageQuestion(asked, "not beyond noise", "", facts)
    if mean.row.change > 0:
        return PageQuestion(asked, "yes", "up", facts)
    return PageQuestion(asked, "no: it got worse", "down", facts)


def _earned(credit: bool, samples: Sequence[SampleRow]) -> PageQuestion:
    asked = "Which step earned it?"
    if not credit:
        return PageQuestion(asked, "not measured", "open", ["`credit=counterfactual` measures it."])
    measured = [row for row in samples if _credits(row)]
    values = [value for row in measured for value in _credits(row)]
    if not values:
        return PageQuestion(asked, "not measured yet", "open", ["No sample on this page has a step with credit."])
    signs = [sum(value > 0 for value in values), sum(value < 0 for value in values)]
    gained, lost = (share / len(values) for share in signs)
    facts = [
        f"{len(values):,} steps of {len(measured):,} samples were replayed without them, or with another in their "
        f"place: {gained:.0%} had raised the share of passed tests, {lost:.0%} lowered it, the rest made no difference."
    ]
    best = max(measured, key=_informativeness)
    if not _informativeness(best)[0]:
        return PageQuestion(asked, "no step made a difference", "", facts)
    pieces = [(piece[0], piece[1] if len(piece) > 1 else None) for piece in best["pieces"]]
    facts.append(f"An example: {best['skill']}, update {best['step']}, {best['verdict']}.")
    return PageQuestion(asked, f"{signs[0]:,} steps helped, {signs[1]:,} did harm", "", facts, pieces, best["prompt"])


def _credits(row: SampleRow) -> list[float]:
    return [piece[1] for piece in row["pieces"] if len(piece) > 1 and piece[1] is not None]


def _informativeness(row: SampleRow) -> tuple[bool, bool, bool, float, float]:
    """How much a sample shows: credits that differ first, then a right answer, both signs, the spread, a short text."""
    credits = _credits(row)
    spread = max(credits) - min(credits) if len(credits) > 1 else 0.0
    both = bool(credits) and min(credits) < 0 < max(credits)
    return spread > 0, row["verdict"] == "right", both, spread, -sum(len(piece[0]) for piece in row["pieces"])


def _lost(
    rows: Sequence[Mapping[str, float]], skills: Sequence[SkillChange], promise: Promise | None, protects: bool
) -> PageQuestion:
    asked = "What was lost?"
    if not skills:
        return PageQuestion(asked, "not measured yet", "open", ["The run has not validated twice."])
    if broken := [one.row.skill for one in skills if not math.isfinite(one.row.change)]:
        return PageQuestion(asked, f"{_NO_NUMBER} ({', '.join(broken)})", "open", [_LOOK])
    worst = min(skills, key=lambda one: one.row.change)
    facts = [f"Smallest change: {worst.row.skill}, {worst}."]
    if greedy := [one.row for one in skills if one.row.greedy]:
        least, change = min(((row.skill, _greedy_change(row)) for row in greedy), key=lambda pair: pair[1])
        facts.append(f"Of greedy answers: {least}, {change:+.1f} points.")
    falls = {one.row.skill: fall_from_peak(rows, one.row.skill) for one in skills}
    fell = [f"{skill} {-100 * fall:.1f} points" for skill, (fall, noise) in falls.items() if fall > noise]
    if promise:
        facts.append(
            f"Of {promise.levels} levels J of protected skills after an update, {promise.below} ended below "
            f"their line; of {promise.verified} verified optimiser steps {promise.corrected} were corrected, "
            f"{promise.shrunk} shrunk, {promise.undone} undone."
        )
    elif not protects:
        facts.append("No skill was protected: `projection=qp` protects them.")
    if fell:
        return PageQuestion(asked, f"{', '.join(fell)} from the peak", "down", facts)
    if any(math.isnan(noise) for _, noise in falls.values()):
        return PageQuestion(asked, "by how much is not known: skills have no standard errors", "", facts)
    return PageQuestion(asked, "nothing beyond noise", "up", facts)


def _greedy_change(row: SkillRow) -> float:
    """Percentage points."""
    assert row.greedy is not None
    return 100 * (row.greedy[1] - row.greedy[0])
