"""New standard inputs keep sizes, places and ranges."""

import random

from data_prep.strength.printed_inputs import free_words, new_inputs


def test_sizes_stay_and_numbers_stay_in_their_range():
    found = new_inputs(["3 7\n4 1 9\n", "2 5\n6 6\n"], random.Random(0), 50)
    assert len(set(found)) == 50
    for text in found:
        (size, limit), items = (list(map(int, line.split())) for line in text.strip().split("\n"))
        assert size == len(items)
        assert 5 <= limit <= 7
        assert all(1 <= item <= 9 for item in items)
        assert text.endswith("\n")


def test_a_first_line_without_a_size_stays_as_it_is():
    assert free_words(["5 x", "1 2"]) == [(1, 0), (1, 1)]
    assert free_words(["5 2"]) == [(0, 0), (0, 1)]
    assert {text.split("\n")[0] for text in new_inputs(["9\n1 8\n"], random.Random(0), 4)} == {"9"}
    assert new_inputs(["9\n0 1\n"], random.Random(0), 4) == []


def test_words_are_made_of_their_own_letters():
    found = new_inputs(["abca\n", "ab\n"], random.Random(0), 10)
    assert found
    assert all(set(text.strip()) <= set("abc") and len(text.strip()) in (2, 4) for text in found)
