"""A failing program can't make itself pass by any means; a correct one passes, however the test is written."""

# Programs stand here as they are sent, in one piece.
# ruff: noqa: E501, RUF005

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from rewards.sandbox import AssertCase, CallCase, Program, Sandbox, StdioCase
from rewards.sandbox.cases import Case
from tests.rewards.sandbox.conftest import ServerProcess, assert_nothing_left

# A server of its own for each module, and time limits: these run one after another.
pytestmark = pytest.mark.slow


@pytest_asyncio.fixture(autouse=True)
async def nothing_is_left(server: ServerProcess, sandbox: Sandbox) -> AsyncIterator[None]:
    """After every check of this file: no process and no file of its program."""
    yield
    await assert_nothing_left(server, sandbox)


WRONG = "def add(a, b): return 0\n"

FORGERIES = {
    "exit code 0 while loading": "import sys\nsys.exit(0)",
    "exit code 0 in the call": "import sys\ndef add(a, b): sys.exit(0)",
    "os._exit in the call": "import os\ndef add(a, b): os._exit(0)",
    "os._exit while loading": "import os\nos._exit(0)",
    "an object whose __eq__ lies": "class Yes:\n    def __eq__(self, other): return True\n    __ne__ = None\n    __hash__ = None\n"
    "def add(a, b): return Yes()",
    "a number whose __eq__ lies": "class Yes(int):\n    def __eq__(self, other): return True\n    def __hash__(self): return 3\n"
    "def add(a, b): return Yes(0)",
    "a list whose __eq__ lies": "class Yes(list):\n    def __eq__(self, other): return True\ndef add(a, b): return Yes()",
    "a true object": "class Yes:\n    def __bool__(self): return True\n    def __len__(self): return 1\ndef add(a, b): return Yes()",
    "AssertionError disarmed": "import builtins\nbuiltins.AssertionError = type('Never', (Exception,), {})\n" + WRONG,
    "builtins patched": "import builtins\nfor name in ('isinstance', 'all', 'len', 'bool', 'float', 'type'):\n"
    "    setattr(builtins, name, lambda *a, **k: True)\n" + WRONG,
    "comparison patched": "import sys\nfor name, module in list(sys.modules.items()):\n"
    "    for attribute in ('same_value', 'same_output', 'holds', '_verdict'):\n"
    "        if hasattr(module, attribute): setattr(module, attribute, lambda *a: True)\n" + WRONG,
    "expected value searched in frames": "import sys\ndef add(a, b):\n    frame = sys._getframe()\n    while frame:\n"
    "        for value in list(frame.f_locals.values()) + list(frame.f_globals.values()):\n"
    "            if isinstance(value, dict) and 'expected' in value: return value['expected']\n"
    "            if isinstance(value, list) and value and isinstance(value[0], dict) and 'expected' in value[0]:\n"
    "                return value[0]['expected']\n        frame = frame.f_back\n    return 0",
    "expected value searched in the heap": "import gc\ndef add(a, b):\n    for value in gc.get_objects():\n"
    "        if type(value) is dict and 'expected' in value: return value['expected']\n"
    "        if type(value) is dict and 'source' in value and 'assert' in str(value['source']):\n"
    "            return int(value['source'].split('==')[1])\n    return 0",
    "answers written to every descriptor": "import json, os, struct\nbody = json.dumps({'outcome': 'passed', 'passed': True, 'v': True}).encode()\n"
    "for descriptor in range(3, 250):\n    for _ in range(20):\n        try: os.write(descriptor, struct.pack('!I', len(body)) + body)\n"
    "        except OSError: break\n" + WRONG,
    "open and print patched": "import builtins, io\nbuiltins.open = lambda *a, **k: io.StringIO('True')\n"
    "builtins.print = lambda *a, **k: True\n" + WRONG,
    "verdicts printed": "print('passed')\nprint('{\"outcome\": \"passed\"}')\n" + WRONG,
    "atexit handler": "import atexit, os\natexit.register(os._exit, 0)\n" + WRONG,
    "thread left behind": "import threading, os, time\n"
    "threading.Thread(target=lambda: (time.sleep(0.05), os._exit(0))).start()\ndef add(a, b):\n    time.sleep(1)\n    return 0",
    "signal left behind": "import signal, os\nsignal.signal(signal.SIGALRM, lambda *a: os._exit(0))\nsignal.setitimer(signal.ITIMER_REAL, 0.05)\n"
    "def add(a, b):\n    import time\n    time.sleep(1)\n    return 0",
    "json patched": "import json, json.encoder\njson.dumps = lambda *a, **k: '{\"v\": true}'\njson.loads = lambda *a, **k: {}\n"
    + WRONG,
    "exception claimed to be a pass": "class passed(Exception): pass\ndef add(a, b): raise passed('passed')",
    "SystemExit raised": "def add(a, b): raise SystemExit(0)",
    "KeyboardInterrupt raised": "def add(a, b): raise KeyboardInterrupt",
    "GeneratorExit raised": "def add(a, b): raise GeneratorExit",
    "StopIteration raised": "def add(a, b): raise StopIteration",
    "numbers that are not": "def add(a, b): return float('nan')",
    "a child answers as well": "import os\nif os.fork() == 0: pass\n" + WRONG,
}

SIMPLE = [
    AssertCase("assert add(1, 2) == 3"),
    CallCase("add", [1, 2], expected=3),
    AssertCase("assert add(1, 2)\nassert add(1, 2) == 3"),
]
# A test with code of its own goes to a judge process; a simple one is compared by the worker. Both must hold.
JUDGED = [*SIMPLE, AssertCase("result = add(1, 2)\nassert isinstance(result, int) and abs(result - 3) < 1e-9")]


@pytest.mark.parametrize("cases", [SIMPLE[:2], JUDGED], ids=["worker", "judge"])
@pytest.mark.parametrize("name", FORGERIES)
async def test_forgery_does_not_pass(sandbox: Sandbox, name: str, cases: list[AssertCase | CallCase]) -> None:
    result = await sandbox.check(Program(FORGERIES[name]), cases, timeout=3.0, max_timeouts=9)
    assert result.passed == 0, result
    assert len(result.cases) == len(cases)


PRINTED_FORGERIES = {
    "prints nothing and exits well": "import os; os._exit(0)",
    "searches its memory": "import gc\nprint([o for o in gc.get_objects() if isinstance(o, dict) and 'expected' in o][:1])",
    "pretends to be done": "import os, struct\nfor d in range(3, 250):\n    try: os.write(d, struct.pack('!I', 13) + b'{\"done\":true}')\n"
    "    except OSError: pass",
    "patches print": "import builtins\nbuiltins.print = lambda *a: None\nprint(input())",
    "patches open": "import builtins, io\nbuiltins.open = lambda *a, **k: io.StringIO('0')\nprint(open(0).read())",
}


@pytest.mark.parametrize("name", PRINTED_FORGERIES)
async def test_printed_forgery_does_not_pass(sandbox: Sandbox, name: str) -> None:
    cases = [StdioCase(f"{n}\n", f"{n * n}\n") for n in (3, 4, 5)]
    assert (await sandbox.check(Program(PRINTED_FORGERIES[name]), cases, timeout=3.0)).passed == 0


async def test_correct_output_before_a_crash_does_not_pass(sandbox: Sandbox) -> None:
    result = await sandbox.check(Program("print(input())\n1/0"), [StdioCase("7", "7"), StdioCase("8", "8")])
    assert [case.outcome for case in result.cases] == ["runtime_error"] * 2


async def test_the_tests_names_win_over_the_programs(sandbox: Sandbox) -> None:
    code = (
        "class math:\n    isclose = staticmethod(lambda *a, **k: True)\ndef abs(x): return 0\ndef add(a, b): return 7.0"
    )
    cases = [
        AssertCase("assert math.isclose(add(1, 2), 3.0)"),
        AssertCase("assert abs(add(1, 2) - 3) < 1e-6"),
        AssertCase("import math\nassert math.isclose(add(1, 2), 3.0)"),
    ]
    assert (await sandbox.check(Program(code), cases)).passed == 0


RIGHT = """
import collections
class Stack:
    def __init__(self, *items): self.items = list(items)
    def push(self, item): self.items.append(item); return self
    def top(self): return self.items[-1]
    def __len__(self): return len(self.items)
    def __iter__(self): return iter(self.items)
def add(a, b): return a + b
def count(text): return collections.Counter(text)
def evens(n): return (i for i in range(n) if i % 2 == 0)
def sort_in_place(values): values.sort()
def fail(x): raise ValueError(f"bad {x}")
def pair(): return (1, [2.5, None, {"a": {3}}])
def big(): return 10 ** 5000
def nothing(): return None
"""
RIGHT_TESTS = [
    "assert add(1, 2) == 3",
    "assert add('a', 'b') == 'ab' and add([1], [2]) == [1, 2]",
    "assert count('aab') == {'a': 2, 'b': 1}",
    "assert list(evens(7)) == [0, 2, 4, 6]",
    "assert sum(evens(7)) == 12",
    "values = [3, 1, 2]\nsort_in_place(values)\nassert values == [1, 2, 3]",
    "try:\n    fail(3)\nexcept ValueError as error:\n    assert str(error) == 'bad 3'\nelse:\n    assert False",
    "assert pair() == (1, [2.5, None, {'a': {3}}])",
    "assert isinstance(pair(), tuple)",
    "assert big() == 10 ** 5000",
    "s = Stack(1)\ns.push(5)\nassert s.top() == 5 and len(s) == 2 and list(s) == [1, 5]",
    "assert nothing() is None",
    "assert not nothing()",
    "import math\nassert math.isclose(add(0.1, 0.2), 0.3)",
    "assert all(add(i, i) == 2 * i for i in range(20))",
    "def check(f):\n    assert f(2, 3) == 5\ncheck(add)",
]


async def test_a_correct_program_passes_every_kind_of_test(sandbox: Sandbox) -> None:
    result = await sandbox.check(Program(RIGHT), [AssertCase(source) for source in RIGHT_TESTS])
    assert [case.detail for case in result.cases if not case.passed] == []
    assert result.all_passed
    assert result.fraction == 1.0


async def test_setup_runs_before_the_tests(sandbox: Sandbox) -> None:
    result = await sandbox.check(
        Program("def add(a, b): return a + b"),
        [AssertCase("assert add(ONE, 2) == 3")],
        setup="from math import pi\nONE = 1",
    )
    assert result.all_passed


async def test_call_case_compares_by_the_stated_rules(sandbox: Sandbox) -> None:
    code = "def f(which): return {'third': 1 / 3, 'tuple': (1, 2), 'true': True, 'keys': {1: 'a'}, 'nan': float('nan')}[which]"
    cases = [
        CallCase("f", ["third"], expected=0.3333333),
        CallCase("f", ["third"], expected=0.3334),
        CallCase("f", ["tuple"], expected=[1, 2]),
        CallCase("f", ["true"], expected=1),
        CallCase("f", ["true"], expected=True),
        CallCase("f", ["keys"], expected={"1": "a"}),
        CallCase("f", kwargs={"which": "nan"}, expected=float("nan")),
    ]
    result = await sandbox.check(Program(code), cases)
    assert [case.passed for case in result.cases] == [True, False, True, False, True, True, True]


async def test_large_answers_are_judged_too(sandbox: Sandbox) -> None:
    code = "def f(n): return list(range(n))"
    cases = [CallCase("f", [n], expected=list(range(n))) for n in (3, 100_000, 5)]
    cases.append(CallCase("f", [100_000], expected=list(range(99_999)) + [0]))
    result = await sandbox.check(Program(code), cases)
    assert [case.outcome for case in result.cases] == ["passed", "passed", "passed", "wrong_answer"]


async def test_a_case_that_kills_the_program_does_not_fail_the_others(sandbox: Sandbox) -> None:
    code = "import os\ndef f(x):\n    if x == 1: os._exit(0)\n    if x == 2:\n        while True: pass\n    if x == 3: print('x' * 9999999)\n    return x"
    expected = ["passed", "runtime_error", "timeout", "output_limit", "passed"]
    for extra in ([], [AssertCase("y = f(0)\nassert y == 0")]):
        cases: list[Case] = [*(CallCase("f", [x], expected=x) for x in range(5)), *extra]
        result = await sandbox.check(Program(code), cases, timeout=0.7)
        assert [case.outcome for case in result.cases][:5] == expected


async def test_printed_cases_are_independent_of_each_other(sandbox: Sandbox) -> None:
    # The second run in one process finds its module state, closed input and patched output of the first: it must not
    # matter.
    programs = [
        "import math\nn = int(input())\nassert not hasattr(math, 'seen')\nmath.seen = True\nprint(n + 1)",
        "import os\nn = int(open(0).read())\nprint(n + 1)",
        "import sys, io\nn = int(sys.stdin.readline())\nsys.stdout.write(str(n + 1)); sys.stdout = io.StringIO()",
        "import sys\nn = int(input())\nprint(n + 1)\nsys.exit()",
        "import threading\ndef main(): print(int(input()) + 1)\nthreading.Thread(target=main).start()",
        "import atexit\natexit.register(print, int(input()) + 1)",
        "import builtins\nn = int(input())\nbuiltins.input = None\nprint(n + 1)",
    ]
    cases = [StdioCase(f"{n}\n", f"{n + 1}\n") for n in range(5)]
    results = await asyncio.gather(*(sandbox.check(Program(code), cases) for code in programs))
    assert [result.passed for result in results] == [5] * len(programs), results[2]


async def test_stop_on_failure_and_max_timeouts(sandbox: Sandbox) -> None:
    cases = [CallCase("f", [x], expected=x) for x in range(4)]
    stopped = await sandbox.check(Program("def f(x): return -x"), cases, stop_on_failure=True)
    assert [case.outcome for case in stopped.cases] == ["passed", "wrong_answer", "wrong_answer", "wrong_answer"]
    assert "not run" in (stopped.cases[3].detail or "")
    slow = await sandbox.check(
        Program("def f(x):\n    while x: pass\n    return x"), cases, timeout=0.3, max_timeouts=1
    )
    assert [case.outcome for case in slow.cases] == ["passed", "timeout", "timeout", "timeout"]


async def test_check_many_keeps_the_order_and_runs_equal_programs_once(sandbox: Sandbox) -> None:
    seen: list[int] = []
    programs = [Program(f"def f(x): return x + {n % 3}") for n in range(30)]
    results = await sandbox.check_many(
        programs, [CallCase("f", [1], expected=2)], on_result=lambda index, result: seen.append(index)
    )
    assert [result.passed for result in results] == [int(n % 3 == 1) for n in range(30)]  # type: ignore[union-attr]
    assert sorted(seen) == list(range(30))


async def test_a_program_that_cannot_be_loaded_fails_all_cases_with_its_class(sandbox: Sandbox) -> None:
    cases = [CallCase("f", [1], expected=1), CallCase("f", [2], expected=2)]
    for code, outcome, error_type in [
        ("def f(x:", "syntax_error", "SyntaxError"),
        ("1/0", "runtime_error", "ZeroDivisionError"),
        ("x = bytearray(1 << 40)", "memory", "MemoryError"),
        ("import nothing_like_that", "runtime_error", "ModuleNotFoundError"),
        ("def g(x): return x", "runtime_error", "NameError"),
    ]:
        result = await sandbox.check(Program(code), cases)
        assert [(case.outcome, case.error_type) for case in result.cases] == [(outcome, error_type)] * 2


def test_a_test_that_is_not_python_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="not valid Python"):
        AssertCase("assert f(1 ==")


SEVERAL = {
    "right": ("def f(x): return x + 1\ndef g(x): return [x]", "passed"),
    "wrong in one": ("def f(x): return x + 1\ndef g(x): return [x + (x == 3)]", "wrong_answer"),
    "a name that is missing": ("def f(x): return x + 1", "runtime_error"),
    "an error in the second call": ("def f(x): return x + 1\ndef g(x): raise ValueError(x)", "runtime_error"),
    "a tuple for a list": ("def f(x): return x + 1\ndef g(x): return (x,)", "wrong_answer"),
    "an object that claims to be equal": (
        "class Yes:\n    def __eq__(self, other): return True\ndef f(x): return Yes()\ndef g(x): return [x]",
        "wrong_answer",
    ),
    "a list that a later call changes": (
        "kept = []\ndef f(x): return 2\ndef g(x):\n    kept[:] = [x]\n    return kept",
        "wrong_answer",
    ),
    "an exit in the second call": ("import sys\ndef f(x): return x + 1\ndef g(x): sys.exit(0)", "runtime_error"),
    "calls after an error": (
        "count = 0\ndef f(x):\n    global count\n    count += 1\n    if count == 1: raise KeyError(x)\n    return x + 1\ndef g(x): return [x] if count < 3 else 0",
        "runtime_error",
    ),
}


@pytest.mark.parametrize("name", SEVERAL)
async def test_several_calls_in_one_test_are_judged_alike_with_and_without_a_judge(sandbox: Sandbox, name: str) -> None:
    code, outcome = SEVERAL[name]
    tests = ["assert (f(1), g(2), g(3)) == (2, [2], [3])", "assert [f(4), g(4)] == [5, [4]]"]
    cases: list[Case] = [AssertCase(test) for test in tests]
    # A comprehension is code of the test, which a judge runs.
    judged: list[Case] = [AssertCase(test + " and [x for x in [1]]") for test in tests]
    direct, other = await asyncio.gather(sandbox.check(Program(code), cases), sandbox.check(Program(code), judged))
    assert [case.outcome for case in direct.cases] == [case.outcome for case in other.cases]
    assert [case.error_type for case in direct.cases] == [case.error_type for case in other.cases]
    assert direct.cases[0].outcome == outcome


PARTS_OF = """
import collections
class Yes:
    def __getitem__(self, key): return 3
class Same:
    def __eq__(self, other): return True
class Low(list):
    def __getitem__(self, key): return list.__getitem__(self, key) - 1
class Counter(collections.Counter):
    def __missing__(self, key): return 3
def cycle(): x = [3]; x.append(x); return x
def deep():
    x = [1]
    for _ in range(40): x = [3, x, x]
    return x
"""
PARTS = {
    "(3, 'a', None)": "passed",
    "[3, ['a'], None]": "passed",
    "{0: 3, 1: 'abc'}": "passed",
    "(4, 'a')": "wrong_answer",
    "(3.0, ('a', 5))": "passed",
    "()": "runtime_error",
    "None": "runtime_error",
    "7": "runtime_error",
    "{1: 3}": "runtime_error",
    "'34'": "wrong_answer",
    "(3, object())": "passed",
    "Yes()": "passed",
    "(Same(), 'a')": "wrong_answer",
    "list": "wrong_answer",
    "Counter('x')": "passed",
    "Low([3])": "wrong_answer",
    "(3, Counter('x'))": "passed",
    "cycle()": "passed",
    "deep()": "passed",
    "(3, 1 << 80)": "passed",
}


@pytest.mark.parametrize("value", PARTS)
async def test_a_part_of_a_value_is_judged_alike_with_and_without_a_judge(sandbox: Sandbox, value: str) -> None:
    code = f"{PARTS_OF}def f(): return {value}"
    tests = ["f()[0] == 3", "f()[1][0] == 'a'", "not f()[0]", "f()[0] is True", "f()['x'] == 1", "f()[-1] == 3"]
    cases: list[Case] = [AssertCase(f"assert {test}") for test in tests]
    judged: list[Case] = [AssertCase(f"assert {test} and [x for x in [1]]") for test in tests]
    direct, other = await asyncio.gather(sandbox.check(Program(code), cases), sandbox.check(Program(code), judged))
    assert [case.outcome for case in direct.cases] == [case.outcome for case in other.cases]
    assert [case.error_type for case in direct.cases] == [case.error_type for case in other.cases]
    raised = [(one.detail, two.detail) for one, two in zip(direct.cases, other.cases, strict=True) if one.error_type]
    assert all(one == two for one, two in raised)
    assert direct.cases[0].outcome == PARTS[value]


async def test_state_that_a_program_keeps_survives_an_answer_that_needs_a_judge(sandbox: Sandbox) -> None:
    counting = "n = 0\ndef add():\n    global n\n    n += 1\n    return n\ndef bits(): return 1 << 20000\n"
    tests = ["assert (add(), add()) == (1, 2)", f"assert (add(), bits()) == (3, {1 << 20000:#x})", "assert add() == 4"]
    result = await sandbox.check(Program(counting), [AssertCase(test) for test in tests])
    assert [case.outcome for case in result.cases] == ["passed"] * 3
    # A death after which the judge's run starts afresh, at the case after it.
    deadly = counting + "def die():\n    import os\n    os._exit(0)\n"
    more = [AssertCase(test) for test in ("assert add() == 1", "assert die() == 1", *tests)]
    result = await sandbox.check(Program(deadly), more)
    assert [case.outcome for case in result.cases] == ["passed", "runtime_error", *["passed"] * 3]


async def test_a_name_that_the_setup_imports_is_the_library_s(sandbox: Sandbox) -> None:
    test = [AssertCase("assert (gcd(12, 8), f(1)) == (4, 2)"), AssertCase("assert gcd(9, 3) == 3")]
    right = await sandbox.check(Program("def f(x): return x + 1"), test, setup="from math import gcd")
    assert right.passed == 2
    lies = "def f(x): return x + 1\ndef gcd(a, b): return 4 if a == 12 else 0"
    wanted = [AssertCase("assert (gcd(12, 8), gcd(9, 3)) == (4, 0)")]
    assert (await sandbox.check(Program(lies), wanted, setup="from math import *\n")).passed == 0


async def test_several_calls_take_no_level_of_recursion_more_than_one(sandbox: Sandbox) -> None:
    code = Program("def f(n): return 0 if n == 0 else 1 + f(n - 1)")
    deepest = 970
    while (await sandbox.check(code, [AssertCase(f"assert f({deepest + 1}) == {deepest + 1}")])).passed:
        deepest += 1
    both = await sandbox.check(code, [AssertCase(f"assert (f({deepest}), f(0)) == ({deepest}, 0)")])
    assert both.passed == 1
