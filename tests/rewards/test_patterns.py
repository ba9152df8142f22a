"""Every regular expression of rewards/ takes steps linear in the text, in the way in which it is used."""

import math
import re

import pytest

import rewards
from benchmarks.answers.patterns import Used, hostile_texts, patterns_of
from tests.rewards.regex_steps import MOST, Steps

pytestmark = pytest.mark.slow

PATTERNS = patterns_of(rewards)
SHORT, LONG = 40, 160
# Steps grow as the text does, with room for what a match costs however long the text is.
MOST_GROWTH = 1.3 * LONG / SHORT


def growth(used: Used) -> tuple[float, str]:
    """The most that steps grow from a short text to a long one of the same kind, and the short text."""
    whole = used.methods == ("fullmatch",)
    pairs = zip(hostile_texts(used.pattern, SHORT), hostile_texts(used.pattern, LONG), strict=True)
    found = []
    for short, long in pairs:
        steps = [Steps(used.pattern, text).of(searches=used.searches, whole=whole) for text in (short, long)]
        found.append((math.inf if steps[0] > MOST else (steps[1] + 20) / (steps[0] + 20), short))
        if found[-1][0] > MOST_GROWTH:
            break
    return max(found)


def test_patterns_are_found_in_every_corner_of_the_package():
    places = {used.place for used in PATTERNS}
    assert {
        *("rewards.extraction._FENCE", "rewards.verifiers.graphs.task._LIST", "rewards.sandbox.inside.compare._NUMBER"),
        *("rewards.verifiers.answer_numbers._TOKEN", "rewards.verifiers.countdown._EXPRESSION"),
    } <= places


@pytest.mark.parametrize("used", PATTERNS, ids=lambda used: used.place)
def test_steps_grow_no_faster_than_the_text(used):
    most, text = growth(used)
    assert most < MOST_GROWTH, text


@pytest.mark.parametrize(
    ("pattern", "methods"),
    [
        (r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", ("fullmatch",)),
        (r"\s+x", ("search",)),
        (r"\s++x", ("search",)),
        (r"(a+)+b", ("match",)),
        (r"[ \t]*([\w+-]*)[ \t]*\n", ("search",)),
        (r"[0-9]{1,3}(?:,[0-9]{3})++(?![0-9])", ("finditer",)),
        (r"(.*?),(.*?),x", ("match",)),
    ],
)
def test_what_is_not_linear_is_found_by_the_same_law(pattern, methods):
    assert growth(Used("a test", re.compile(pattern), methods))[0] > MOST_GROWTH


@pytest.mark.parametrize(
    ("pattern", "methods"),
    [
        (r"[0-9]++(?:\.[0-9]++)?+", ("finditer",)),
        (r"x\s++y", ("search",)),
        (r"\s*x", ("match",)),
        (r"a{2,5}b", ("search",)),
    ],
)
def test_what_is_linear_passes_the_law(pattern, methods):
    assert growth(Used("a test", re.compile(pattern), methods))[0] < MOST_GROWTH


@pytest.mark.parametrize("used", PATTERNS, ids=lambda used: used.place)
def test_the_counting_matcher_finds_what_python_finds(used):
    for text in hostile_texts(used.pattern, 12):
        counted = next(Steps(used.pattern, text)._ways(Steps(used.pattern, text).items, 0), None)
        found = used.pattern.match(text)
        assert counted == (None if found is None else found.end()), text
