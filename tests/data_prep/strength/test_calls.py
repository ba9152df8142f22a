"""Unit tests are read as calls, and tests of other inputs have the same form."""

import pytest

from data_prep.strength.calls import assertion_of, expected_literal, read_test


@pytest.mark.parametrize(
    ("test", "arguments", "again"),
    [
        ("assert f(1, [2]) == 3", (1, [2]), "f(7, [8])"),
        ("assert f(1, step=2) == [3]", (1, 2), "f(7, step=8)"),
        ("assert 3 == f(1)", (1,), "f(7)"),
        ("assert f(1)[0][2] == 3", (1,), "f(7)"),
        ("assert set(f((1, 2))) == {1}", ((1, 2),), "set(f(7))"),
        ("assert not f('a b')", ("a b",), "bool(not f(7))"),
        ("assert f(1) is True", (1,), "f(7)"),
        ("assert abs(f(1.5) - 0.5) < 1e-6", (1.5,), "f(7)"),
        ("import math\nassert math.isclose(f(-1), 2.0)", (-1,), "f(7)"),
        ("candidate = f\nassert candidate(1) == 2", (1,), "f(7)"),
    ],
)
def test_a_test_gives_its_arguments_and_its_form(test, arguments, again):
    found = read_test(test, ["f"])
    assert found is not None
    form, read = found
    assert read == arguments
    assert (
        form.expression([7, 8] if len(read) == 2 and "step" in test else [7, [8]] if len(read) == 2 else [7]) == again
    )
    assert form.imports == ("import math" if "math" in test else "")


@pytest.mark.parametrize(
    "test",
    [
        "assert f(x) == 1",  # no literal
        "assert f(1) == f(2)",  # two calls
        "assert f(1) < 3",  # no value is known
        "assert g(1) == 3",  # another function
        "assert f(*[1]) == 3",
        "x = f(1)\nassert x == 3",
        "for n in range(3):\n    assert f(n) == n",
        "assert max(f(1), key=f) == 3",
        "assert (f(1) - 2) == 0 or True",
    ],
)
def test_other_tests_are_left_alone(test):
    assert read_test(test, ["f"]) is None


@pytest.mark.parametrize(
    ("output", "assertion"),
    [
        ("[1, 'a', None]", "assert f(7) == [1, 'a', None]"),
        ("True", "assert f(7) == True"),
        ("0.5", "import math\nassert math.isclose(f(7), 0.5, rel_tol=1e-06, abs_tol=1e-09)"),
        ("[2.0]", "assert f(7) == [2.0]"),
        ("{'a': (1, 0.1)}", None),  # the last digit of a float inside is no requirement
    ],
)
def test_a_new_test_states_the_output(output, assertion):
    found = read_test("assert f(1) == 2", ["f"])
    assert found is not None
    assert assertion_of(found[0], "f(7)", output) == assertion


def test_only_calls_compared_with_literals_have_a_constant_answer():
    assert expected_literal("assert f(1) == [2, 'a']") == "[2, 'a']"
    assert expected_literal("assert f(1)[0] == 2") is None
    assert expected_literal("assert f(1) == g(2)") is None
    assert expected_literal("assert f(1)") is None
