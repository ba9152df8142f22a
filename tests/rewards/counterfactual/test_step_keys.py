"""Keys of steps: the same step has the same key wherever it stands, whatever its names and its layout."""

import ast
import time
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewards.counterfactual.alignment import aligned_keys
from rewards.counterfactual.segments import NoSteps, Unit, segment
from rewards.counterfactual.siblings import renamed
from rewards.counterfactual.step_keys import parts_of, state_keys

pytestmark = pytest.mark.slow


def keyed(*solutions: str, unit: Unit = "statement", asked: Sequence[str] = ()) -> list[dict[str, str]]:
    """For each solution its steps, as written, by key; a step without a key is left out."""
    steps = [segment(solution, unit) for solution in solutions]
    group = [parts_of(solution, own, frozenset(asked)) for solution, own in zip(solutions, steps, strict=True)]
    found = aligned_keys(group)
    return [
        {key: solution[step.start : step.end] for key, step in zip(keys, own, strict=True) if key}
        for solution, own, keys in zip(solutions, steps, found, strict=True)
    ]


def codes(solution: str) -> list[str]:
    return [part.code for part in parts_of(solution, segment(solution, "statement")) if part]


FUNCTION = """
def f(values, low):
    total = 0
    for value in values:
        if value > low:
            total += value
        else:
            print(value)
    try:
        check(total)
    except ValueError:
        return None
    return total
"""


def test_a_key_says_what_a_step_defines_or_calls_and_where_it_stands():
    (found,) = keyed(FUNCTION)
    assert found == {
        "define f": "def f(values, low):",
        "define f/total =": "total = 0",
        "define f/for": "for value in values:",
        "define f/for/if": "if value > low:",
        "define f/for/if/total changes": "total += value",
        "define f/for/if/else: call print": "print(value)",
        "define f/try": "try:",
        "define f/try/call check": "check(total)",
        "define f/try/except ValueError: return": "return None",
        "define f/return": "return total",
    }


def test_the_definition_in_force_is_the_same_step_and_an_overridden_one_is_another():
    first, second = keyed("a=lambda x:x+3\nb=1", "b=2\na=lambda x:x+3\na=lambda x:x+5")
    assert first == {"a =": "a=lambda x:x+3", "b =": "b=1"}
    assert second == {"b =": "b=2", "a = #2": "a=lambda x:x+3", "a =": "a=lambda x:x+5"}


BRANCHES = ("if low:\n    print(low)", "if high:\n    print(high)", "if mid:\n    check(mid)")


@given(st.permutations(BRANCHES), st.permutations(BRANCHES))
def test_independent_steps_of_one_role_have_the_keys_of_equal_code_in_any_order(first, second):
    one, other = keyed("\n".join(first), "\n".join(second))
    assert one == other
    assert len(one) == 6


def test_a_guard_before_other_branches_leaves_their_keys():
    plain, guarded = keyed("if a:\n    f(a)\nif b:\n    f(b)", "if not n:\n    g(n)\nif a:\n    f(a)\nif b:\n    f(b)")
    assert plain.items() <= guarded.items()
    assert guarded["if #3"] == "if not n:"
    (alone,) = keyed("if not n:\n    g(n)\nif a:\n    f(a)\nif b:\n    f(b)")
    assert alone == guarded


NAMES = ("values", "low", "total", "value")
IDENTIFIERS = st.from_regex(r"[g-z]_[a-z0-9]{1,3}", fullmatch=True)


@given(st.lists(IDENTIFIERS, min_size=4, max_size=4, unique=True))
def test_renaming_what_a_function_binds_leaves_the_keys(names):
    new = dict(zip(NAMES, names, strict=True))
    tree = ast.parse(FUNCTION)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = new.get(node.id, node.id)
        elif isinstance(node, ast.arg):
            node.arg = new[node.arg]
    first, second = keyed(FUNCTION, ast.unparse(tree))
    assert list(first) == list(second)


def test_code_is_equal_up_to_parameters_and_loop_variables_but_not_up_to_names_that_others_use():
    loop = "def f({0}):\n for {1} in {0}:\n  g({1}+1)"
    assert codes(loop.format("a", "b")) == codes(loop.format("x", "y")) != codes(loop.format("b", "a")[:-1] + "*2)")
    assert codes("a=lambda x:x+3") == codes("a = lambda y : (y + 3)  # adds")
    assert codes("a=[x for x in b]") == codes("a=[y for y in b]") != codes("a=[x for x in c]")
    after = "for {0} in range(3):\n pass\nprint({0})"
    assert codes(after.format("i")) != codes(after.format("j"))


LINES = st.lists(st.sampled_from("abcdefgh"), min_size=2, max_size=8, unique=True)


@given(LINES, st.randoms(use_true_random=False), st.data())
def test_reordering_independent_lines_and_blank_lines_and_comments_leave_the_keys(names, random, data):
    lines = [f"{name} = {data.draw(st.integers(0, 9))}" for name in names]
    (expected,) = keyed("\n".join(lines))
    shuffled = random.sample(lines, len(lines))
    spaced = [text for line in shuffled for text in ("", "# a comment", f"{line}   # another")]
    (found,) = keyed("\n".join(spaced))
    assert found == expected
    (by_line,) = keyed("\n".join(shuffled), unit="line")
    assert by_line == expected


PROGRAMS = st.sampled_from(
    [FUNCTION, "a=1\nb=2", "a=1;b=2\nif a:\n x=1\nelse: y=2", "def f(:", "", "print(", "x", "é=1"]
)


@given(st.lists(PROGRAMS | st.text("ab=:\n ()lambdxif", max_size=30), min_size=1, max_size=6), st.sampled_from(
    ["statement", "line", "paragraph"]))  # fmt: skip
def test_whatever_siblings_write_keys_are_unique_and_code_that_does_not_parse_has_none(texts, unit):
    solutions = []
    for text in texts:
        try:
            solutions.append((text, segment(text, unit)))
        except NoSteps:
            continue
    keys = aligned_keys([parts_of(text, steps) for text, steps in solutions])
    for (text, steps), own in zip(solutions, keys, strict=True):
        named = [key for key in own if key]
        assert len(named) == len(set(named))
        assert len(own) == len(steps)
        try:
            ast.parse(text)
        except SyntaxError:
            assert unit == "paragraph" or not named
        else:
            assert all(own)


def test_a_step_of_another_name_is_aligned_with_the_step_in_its_place():
    first, second = keyed(
        "def f(n):\n    total = 0\n    seen = []\n    for i in n:\n        total += i\n    return total",
        "def f(n):\n    s = 0\n    seen = []\n    for i in n:\n        s += i\n    return s",
    )
    assert list(first) == list(second)
    assert second["define f/total ="] == "s = 0"
    assert second["define f/for/total changes"] == "s += i"


INITIAL = ("total = 0", "product = 1", "seen = []")
CHANGES = ("total += i", "product *= i + 1", "seen.append(i)")
SUPERFLUOUS = ("spare = 7", "spare = 0", "spare = n", "print(n)", "if n:\n        print(n)")


@given(
    st.permutations(INITIAL), st.permutations(CHANGES), st.lists(IDENTIFIERS, min_size=3, max_size=3, unique=True),
    st.sampled_from(SUPERFLUOUS), st.integers(0, 3),
)  # fmt: skip
def test_renamed_and_reordered_steps_with_one_more_keep_their_keys(initial, changes, names, superfluous, place):
    def program(initial: Sequence[str], changes: Sequence[str]) -> str:
        lines = [*(f"    {line}" for line in initial), "    for i in n:", *(f"        {line}" for line in changes)]
        return "\n".join(["def f(n):", *lines, "    return total, product, seen"])

    new = dict(zip(("total", "product", "seen"), names, strict=True))
    more = [*initial[:place], superfluous, *initial[place:]]
    plain, other = keyed(program(INITIAL, CHANGES), renamed(program(more, changes), new) or "")
    assert {key: renamed(code, new) for key, code in plain.items()}.items() <= other.items()


def test_an_alignment_by_place_gives_no_name_two_meanings():
    plain, other = keyed("a = 1\nif c:\n    b = 2", "x = 4\nif c:\n    x = 5")
    assert list(plain) == ["a =", "if", "if/b ="]
    assert list(other) == ["a =", "if", "if/a ="]


ITEMS = ("d['a'] = 1", "d['b'] = 2", "d['c'] = 3", "d[i] = 4", "d[j] = 5", "d[-1], e = 6")


@given(st.permutations(ITEMS), st.permutations(ITEMS), st.integers(1, 6))
def test_independent_items_have_the_same_keys_in_any_order(first, second, number):
    one, other = keyed("\n".join(first), "\n".join(second))
    assert one == other
    assert [one[f"d['{name}'] ="] for name in "abc"] == list(ITEMS[:3])
    (alone,) = keyed("\n".join(second[:number]))
    assert {key: line for key, line in alone.items() if "'" in key}.items() <= one.items()


def test_names_that_the_problem_asks_for_are_never_aligned_with_others():
    solutions = ("a=1\nc=3", "b=2\nc=3")
    assert [list(found) for found in keyed(*solutions)] == [["a =", "c ="]] * 2
    assert [list(found) for found in keyed(*solutions, asked=("a", "b"))] == [["a =", "c ="], ["b =", "c ="]]


def test_steps_that_one_solution_has_both_of_stay_apart():
    found = keyed("a=1\nc=3", "b=2\nc=3", "a=1\nb=2\nc=3")
    assert [list(keys) for keys in found] == [["a =", "c ="], ["b =", "c ="], ["a =", "b =", "c ="]]


@given(st.lists(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=6, unique=True), min_size=1, max_size=6))
def test_a_group_of_asked_names_has_the_keys_that_each_solution_has_alone(group):
    solutions = ["\n".join(f"{name}=1" for name in names) for names in group]
    together = keyed(*solutions, asked=tuple("abcdef"))
    assert together == [keyed(solution)[0] for solution in solutions]


def test_states_of_turns_depend_on_what_was_observed_and_not_on_what_was_said():
    text, other = "go left|wall|go right", "go up|wall|leave"
    first = state_keys(text, [(0, 7), (13, 21)])
    second = state_keys(other, [(0, 5), (11, 16)])
    assert first == second
    assert first[0] != first[1]
    assert state_keys("go left|door|go right", [(0, 7), (13, 21)])[1] != first[1]


@pytest.mark.parametrize(
    ("solution", "unreached"),
    [
        ("def f():\n    return 1\n    print(2)", ["print(2)"]),
        ("def f():\n    return 1\n    x = 2", []),  # makes x a local name
        ("if False:\n    print(1)\nelse:\n    print(2)", ["print(1)"]),
        ("while 0:\n    print(1)", ["print(1)"]),
        ("for i in a:\n    continue\n    print(i)\nprint(a)", ["print(i)"]),
        ("def f():\n    return 1\n    yield", []),
    ],
)
def test_statements_that_no_run_can_reach_are_known(solution, unreached):
    steps = segment(solution, "statement")
    parts = parts_of(solution, steps)
    found = [
        solution[step.start : step.end]
        for step, part in zip(steps, parts, strict=True)
        if part is not None and not part.reached
    ]
    assert found == unreached


def test_thousands_of_steps_are_keyed_fast():
    def program(own: int) -> str:
        targets = [f"{'xyz'[(number + own) % 3]}{number % 7}" for number in range(950)]
        return "\n".join(f"if a{number}:\n    {target} = f(a{number})" for number, target in enumerate(targets))

    started = time.process_time()
    found = keyed(*map(program, range(4)))
    assert [len(keys) for keys in found] == [1900] * 4
    assert time.process_time() - started < 4.0


def test_deep_nesting_gives_short_keys():
    deep = "\n".join(" " * depth + f"if a{depth}:" for depth in range(90)) + "\n" + " " * 90 + "x = 1"
    (found,) = keyed(deep)
    assert len(found) == 91
    assert max(map(len, found)) <= 64
