"""The detector of repeats: exact at every period, place and count, and silent without consecutive repeats."""

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rewards.guardrails import repeats_itself

pytestmark = pytest.mark.slow


def repeats_by_definition(text: str) -> bool:
    return any(
        text[start : start + 4 * size] == text[start + size : start + 5 * size]
        for size in range(20, len(text) // 5 + 1)
        for start in range(len(text) - 5 * size + 1)
    )


def noise(length: int, seed: int = 0) -> str:
    return "".join(random.Random(seed).choices("abcdefghijklmnopqrstuvwxyz ", k=length))


@pytest.mark.parametrize("period", [*range(1, 42), 79, 80, 81, 159, 160, 161, 1000])
@pytest.mark.parametrize("offset", [0, 7, 500])
def test_five_times_is_a_repeat_and_one_character_less_is_not(period, offset):
    # Capitals, so that nothing around the run can lengthen it.
    piece = noise(period, seed=period).upper()
    size = period * -(-20 // period)
    run = (piece * (5 * size))[: 5 * size]
    before, after = noise(offset, seed=1), noise(300, seed=2)
    assert repeats_itself(before + run + after)
    assert repeats_itself(before + run)
    assert not repeats_itself(before + run[:-1] + after)


@settings(deadline=None)
@given(st.lists(st.tuples(st.text("ab", min_size=1, max_size=30), st.integers(1, 30)), max_size=8))
@example([("a", 99)])
@example([("a", 100)])
@example([("a" * 21 + "b", 5)])
def test_it_agrees_with_the_definition(pieces):
    text = "".join(piece * times for piece, times in pieces)
    assert repeats_itself(text) == repeats_by_definition(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a" * 99,
        ", ".join(f"({a}, {b})" for a in range(30) for b in range(30)),
        " - ".join(f"{noise(4, seed)} and the very same words" for seed in range(50)),
        "".join(f"{noise(30)} {noise(25, seed)}" for seed in range(20)),
        "\n".join(f"edge {number} joins node {number} to node {number + 1}" for number in range(200)),
        noise(32_768),
    ],
)
def test_text_repeated_elsewhere_is_not_a_repeat(text):
    assert not repeats_itself(text)


@pytest.mark.parametrize(
    "line", ["I will check this once more.\n", "等等，让我再想一想这个问题是不是对的。再来一次吧", "0, "]
)
def test_a_loop_is_found_in_the_middle_of_a_long_answer(line):
    assert repeats_itself(noise(20_000, seed=1) + line * 40 + noise(12_000, seed=2))
