"""Normal forms and MinHash: laws of the set algebra, and pairs that are and are not alike."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.governance.likeness import jaccard, likeness, prompt_tokens, shingles, similar_pairs, solution_tokens

pytestmark = pytest.mark.slow

TOKENS = st.lists(st.sampled_from("abcdefgh"), max_size=30)

PROGRAM = '''
import math  # used below
def area(radius: float):
    """The area."""
    names = ["a # b",
             "c"]
    return math.pi * radius ** 2
'''
RENAMED = """
import math
def f(x: float):
    l = ["a # b", "c"]

    return math.pi*x**2
"""


def test_names_comments_and_layout_of_a_program_do_not_count():
    assert solution_tokens(PROGRAM) == solution_tokens(RENAMED)
    assert '"a # b"' in solution_tokens(PROGRAM)
    assert solution_tokens("x.sort()")[-3:] == ["sort", "(", ")"]


@pytest.mark.parametrize(
    ("left", "right"),
    [("a + b", "a - b"), ("a.append(b)", "a.remove(b)"), ("f(a, a)", "f(a, b)"), ("x == 1", "x == 2")],
)
def test_what_a_program_does_counts(left, right):
    assert solution_tokens(left) != solution_tokens(right)


def test_a_prompt_is_its_words_numbers_and_operators():
    assert prompt_tokens("Find ﬁve, **NOT** 4-3.") == ["find", "five", "*", "*", "not", "*", "*", "4", "-", "3"]
    assert prompt_tokens("") == []


@given(TOKENS, st.integers(1, 6))
def test_shingles_are_the_runs_of_a_text(tokens, width):
    runs = {tuple(tokens[start : start + width]) for start in range(max(1, len(tokens) - width + 1))} if tokens else ()
    values = shingles(tokens, width)
    assert len(values) == len(runs)
    assert np.array_equal(values, np.unique(values))


@given(TOKENS, TOKENS)
def test_similarity_is_that_of_the_sets(left, right):
    expected = len({*left} & {*right}) / len({*left} | {*right}) if left or right else 0.0
    assert jaccard(shingles(left, 1), shingles(right, 1)) == pytest.approx(expected)


def test_planted_pairs_are_found_and_no_others():
    rng = random.Random(0)
    texts = [[str(rng.randrange(10_000)) for _ in range(200)] for _ in range(60)]
    near = [[*text[:100], "changed", *text[101:]] for text in texts[:30]]
    pairs = {(first, second) for first, second, _ in similar_pairs([shingles(t, 5) for t in texts + near], 0.8)}
    assert pairs == {(number, 60 + number) for number in range(30)}
    assert list(similar_pairs([shingles([], 5)], 0.8)) == []


def test_many_copies_are_one_connected_group():
    copies = [shingles([f"word{place}" for place in range(40)], 5)] * 200
    pairs = list(similar_pairs(copies, 0.8))
    assert {(number, number + 1) for number in range(199)} <= {(first, second) for first, second, _ in pairs}
    assert len(pairs) < 200 * 64
    assert {similarity for *_, similarity in pairs} == {1.0}


def test_the_wording_of_a_template_does_not_make_texts_alike():
    rng = random.Random(0)
    frame = "Using every one of these numbers exactly once, write an expression that has the value asked for: {} and {}"
    texts = [frame.format(rng.randrange(10**6), rng.randrange(10**6)) for _ in range(120)]
    found = likeness([*texts, texts[3].upper()], prompt_tokens, width=5, minimum=1, threshold=0.8)
    assert found.near == {}
    assert found.class_of == [*range(120), 3]


def test_texts_with_too_little_to_tell_have_no_class():
    assert likeness(["a b", None, "a b c"], str.split, width=2, minimum=3, threshold=0.8).class_of == [None, None, 0]
