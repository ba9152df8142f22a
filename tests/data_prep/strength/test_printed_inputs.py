"""New standard inputs keep sizes, places and ranges."""

import random

import pytest

from data_prep.strength.printed_inputs import free_words, new_inputs

pytestmark = pytest.mark.slow


def test_sizes_stay_and_numbers_stay_in_their_range():
    found = new_inputs(["3 7\n4 1 9\n", "2 5\n6 6\n"], random.Random(0), 50)
    assert len(set(found)) == 50
    for text in found:
        (size, limit), items = (list(map(int, line.split())) for line in text.strip().split("\n"))
        assert size == len(items)
        assert 5 <= limit <= 7
        assert all(1 <= item <= 9 for item in items)
        assert text.endswith("\n")


def test_a_list_gets_any_length_between_those_seen():
    found = new_inputs(["2 9\n1 0\n", "5 9\n1 0 0 1 1\n"], random.Random(0), 24)
    sizes = {int(text.split()[0]) for text in found}
    assert sizes == {2, 3, 4, 5}
    assert all(int(text.split()[0]) == len(text.split("\n")[1].split()) for text in found)
    both = new_inputs(["3 3\n1 0 1\n", "2 2\n0 1\n"], random.Random(0), 24)
    assert {text.split("\n")[0] for text in both} == {"3 3", "2 2"}


def test_a_first_line_without_a_size_stays_as_it_is():
    assert free_words(["5 x", "1 2"]) == [(1, 0), (1, 1)]
    assert free_words(["5 2"]) == [(0, 0), (0, 1)]
    assert {text.split("\n")[0] for text in new_inputs(["9\n1 8\n", "9\n3 7\n"], random.Random(0), 4)} == {"9"}


def test_a_number_seen_with_one_value_only_stays():
    assert new_inputs(["9\n3 8\n"], random.Random(0), 4) == []
    assert {text.split()[0] for text in new_inputs(["9 4\n", "9 8\n"], random.Random(0), 3)} == {"9"}


def is_tree(text):
    size, *edges = (list(map(int, line.split())) for line in text.split("\n")[:-1])
    reached = {1}
    for _ in edges:
        reached |= {end for edge in edges if reached & set(edge) for end in edge}
    return len(edges) == size[0] - 1 and reached == set(range(1, size[0] + 1))


def items(text, line=1):
    return list(map(int, text.split("\n")[line].split()))


def integers(words):
    return list(map(int, words))


PERMITTED = {
    "sorted": (["4\n1 3 3 9\n", "5\n0 2 4 7 8\n"], lambda text: items(text) == sorted(items(text))),
    "distinct": (["5\n4 1 7 9 2\n", "3\n5 8 6\n"], lambda text: len(set(items(text))) == len(items(text))),
    "permutation": (
        ["5\n3 1 2 5 4\n", "6\n1 6 2 5 4 3\n"],
        lambda text: sorted(items(text)) == list(range(1, items(text, 0)[0] + 1)),
    ),
    "total": (
        ["3 6\n1 2 3\n", "4 8\n2 2 3 1\n", "3 7\n2 4 1\n"],
        lambda text: sum(items(text)) == items(text, 0)[1],
    ),
    "intervals": (
        ["3\n1 4\n2 9\n5 6\n", "2\n1 3\n3 8\n", "1\n2 7\n"],
        lambda text: all(low < high for low, high in map(integers, map(str.split, text.split("\n")[1:-1]))),
    ),
    "tree": (
        ["4\n1 2\n2 3\n2 4\n", "5\n1 2\n1 3\n3 4\n5 3\n", "3\n3 1\n2 3\n", "4\n4 1\n1 3\n3 2\n"],
        is_tree,
    ),
    "index": (
        ["4 3\n5 1 7 7\n", "6 1\n2 3 2 2 8 9\n", "5 4\n1 1 2 3 4\n"],
        lambda text: items(text, 0)[1] < items(text, 0)[0],
    ),
    "commands": (
        ["4\npush 3\npush 5\npop\npush 1\n", "3\npush 9\npop\npush 2\n"],
        lambda text: all(line == "pop" or line.startswith("push ") for line in text.split("\n")[1:-1]),
    ),
    "bits": (["4\n1010\n", "4\n1100\n", "4\n1000\n"], lambda text: set(text.split()[1]) <= {"0", "1"}),
    "letter and number": (
        ["2\nL 4\nR 7\n", "1\nR 2\n", "3\nL 1\nL 3\nR 2\n"],
        lambda text: all(line[0] in "LR" and line[2:].isdecimal() for line in text.split("\n")[1:-1]),
    ),
    "one start": (["2 3\nS..\n#..\n", "2 3\n.#.\n.S#\n", "2 3\n.##\n..S\n"], lambda text: text.count("S") == 1),
    "blocks": (
        ["2\n3\n1 2\n2 9\n8 8\n1\n1 7\n", "1\n1\n3 3\n", "1\n2\n3 3\n4 6\n"],
        lambda text: [int(line) for line in text.split("\n")[1:] if len(line) == 1] in ([3, 1], [1], [2]),
    ),
}


@pytest.mark.parametrize("name", PERMITTED)
def test_what_all_inputs_share_holds_for_the_new_ones(name):
    given, permits = PERMITTED[name]
    assert all(map(permits, given))
    found = new_inputs(given, random.Random(0), 24)
    assert found
    assert [text for text in found if not permits(text)] == []


def test_long_inputs_are_left_out():
    assert new_inputs(["3\n" + "1 2 " * 600], random.Random(0), 4) == []


def test_words_are_made_of_their_own_letters():
    found = new_inputs(["abca\n", "ab\n"], random.Random(0), 10)
    assert found
    assert all(set(text.strip()) <= set("abc") and len(text.strip()) in (2, 4) for text in found)
