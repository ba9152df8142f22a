"""Entry points: a test that ignores the program is refused, and a library's name is never the program's by chance."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rewards import compute_score
from rewards.sandbox.inside.judge import free_names
from rewards.verifiers import entry_points
from rewards.verifiers.code import CodeTruth
from rewards.verifiers.entry_points import derived, of_solution, with_imports
from rewards.verifiers.refactor import RefactorTruth


@pytest.mark.parametrize(
    ("test", "names"),
    [
        ("assert f(2) == 4", {"f"}),
        ("import math\nassert f(math.pi) == g", {"f", "g"}),
        ("from a.b import c as d\nassert f(d, c) == 1", {"f", "c"}),
        ("x = Node(1)\nx.left = Node(2)\nassert f(x)", {"Node", "f"}),
        ("assert [y for y in f(3)] == [z(y) for y in (1, 2)]", {"f", "z"}),
        ("def check(candidate):\n    for i in range(3):\n        assert candidate(i)\ncheck(f)", {"f", "range"}),
        ("try:\n    f(1)\nexcept ValueError as error:\n    assert error.args", {"f", "ValueError"}),
        ("with open_it() as g:\n    assert g", {"open_it"}),
        ("assert (lambda x, *a, **k: x(y))(f)", {"y", "f"}),
        ("def h():\n    global made\n    made = f()\nh()\nassert made", {"f"}),
        ("for q in f():\n    assert q", {"f"}),
        ("assert (w := f(1)) and w", {"f"}),
        ("pass", set()),
    ],
)
def test_free_names_are_those_that_a_test_neither_binds_nor_imports(test, names):
    assert free_names(test) == names


@pytest.mark.parametrize(
    ("test", "names"),
    [
        ("assert f(1) == len([1])", ["f"]),
        ("assert sum([1, 2]) == 3", []),
        ("assert bisect([1], 1) == 1", []),
        ("assert f(np.array([1]), math.pi)", ["f"]),
    ],
)
def test_builtins_and_libraries_are_never_derived(test, names):
    assert derived([test]) == names


@pytest.mark.parametrize("model", [CodeTruth, RefactorTruth])
@pytest.mark.parametrize(
    ("tests", "reason"),
    [
        (["assert sum([1, 2]) == 3"], r"test 0 uses nothing that the program defines.*entry_points \(sum\?\)"),
        (["assert f(1)", "assert bisect([1], 1) == 1"], r"test 1 uses nothing.*\(bisect\?\)"),
        (["assert f(1)", "assert True"], r"test 1 uses nothing.*in entry_points"),
        (["import math\nassert math.isqrt(9) == 3"], "test 0 uses nothing"),
        (["assert (f := len)([]) == 0"], "test 0 uses nothing"),
        (["assert f(np.array([1])) == 1"], "test 0 uses np without importing it.*import it in the test"),
        (["assert f(1)", "assert pd.DataFrame(f(2)).empty"], "test 1 uses pd without importing it"),
    ],
)
def test_a_test_that_cannot_judge_the_program_is_refused(model, tests, reason):
    with pytest.raises(ValidationError, match=reason):
        model.model_validate({"tests": tests, "original": "x = 1"} if model is RefactorTruth else {"tests": tests})


@pytest.mark.parametrize(
    ("tests", "named"),
    [
        (["assert sum([1, 2]) == 3"], ["sum"]),
        (["assert f(1)", "assert bisect([1], 1) == 1"], ["bisect"]),
        (["assert np(1) == 2"], ["np"]),
        (["import numpy as np\nassert f(np.array([1])) == 1"], []),
    ],
)
def test_naming_the_entry_point_or_importing_the_library_makes_a_row_good(tests, named):
    truth = CodeTruth(tests=tests, entry_points=named)
    assert set(named) <= set(truth.all_entry_points())
    assert CodeTruth.model_validate_json(truth.model_dump_json()) == truth


@pytest.mark.parametrize("names", [["f g"], ["1"], [""]])
def test_an_entry_point_is_a_name(names):
    with pytest.raises(ValidationError, match="must be a Python identifier"):
        CodeTruth(tests=["assert f()"], entry_points=names)


def test_a_row_without_entry_points_keeps_its_bytes():
    assert CodeTruth(tests=["assert f()"]).model_dump_json() == '{"tests":["assert f()"],"visible":0}'
    written = CodeTruth(tests=["assert sum()"], entry_points=["sum"]).model_dump()
    assert written == {"tests": ["assert sum()"], "visible": 0, "entry_points": ["sum"]}


@pytest.mark.parametrize(
    ("solution", "tests", "bound", "named"),
    [
        ("def sum(a, b):\n    return a + b", ["assert sum(1, 2) == 3"], ["sum"], ["sum"]),
        ("import math\ndef f(x):\n    return x", ["assert f(math.pi)"], ["f"], []),
        ("if True:\n    class Stack:\n        pass", ["assert Stack()"], ["Stack"], []),
        ("sum = lambda a: a\nlen, f = 1, 2", ["assert sum(len(f))"], ["f", "len", "sum"], ["len", "sum"]),
        ("from bisect import bisect", ["assert bisect([], 1) == 0"], [], []),
        ("def f():\n    def sum(): pass", ["assert f() == sum([])"], ["f"], []),
        ("x = [len for len in ()]", ["assert x == len([])"], ["x"], []),
    ],
)
def test_a_solution_names_what_its_tests_take_from_it(solution, tests, bound, named):
    assert of_solution(solution, tests) == bound
    assert entry_points.named(solution, tests) == ({"entry_points": named} if named else {})


@pytest.mark.parametrize(
    ("solution", "before"),
    [
        ("import numpy as np\nimport os\ndef f(x): return x", "import numpy as np\n"),
        ("from numpy import pi as np, e\ndef f(x): return x", "from numpy import pi as np\n"),
        ("import os.path\ndef f(x): return x", ""),
        ("import numpy as np\ndef np(x): return x\nf = np", ""),
    ],
)
def test_a_library_that_only_the_solution_imported_is_imported_by_the_test(solution, before):
    test = "assert f(np(1))"
    assert with_imports(solution, test) == before + test


@pytest.mark.slow
@given(st.text(max_size=60))
def test_what_is_no_python_raises_syntax_or_value_error_only(text):
    try:
        free_names(text)
    except (SyntaxError, ValueError):
        return


@pytest.mark.slow  # with the sandbox
@pytest.mark.parametrize(
    ("truth", "program", "score"),
    [
        ({"tests": ["assert sum(1, 2) == 3"], "entry_points": ["sum"]}, "def sum(a, b): return a + b", 1.0),
        ({"tests": ["assert sum([1, 2]) == 3"], "entry_points": ["sum"]}, "x = 1", 0.0),
        ({"tests": ["assert bisect(4) == 2"], "entry_points": ["bisect"]}, "def bisect(a): return a // 2", 1.0),
        ({"tests": ["assert np(4) == 2"], "entry_points": ["np"]}, "def np(a): return a // 2", 1.0),
        ({"tests": ["assert f([1, 2]) == sum([1, 2])"]}, "def sum(a): return 0\ndef f(a): return 0", 0.0),
        ({"tests": ["assert f(2) == math.floor(4.5)"]}, "class math:\n floor = int\ndef f(a): return a * 2", 1.0),
    ],
)
async def test_the_program_supplies_its_entry_points_and_nothing_else(truth, program, score):
    assert (await compute_score("code", program, json.dumps(truth)))["score"] == score
