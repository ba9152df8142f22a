"""Steps that no test executed have credit 0 without a replay, and only those whose deletion cannot matter."""

# Programs stand here in one piece.
# ruff: noqa: E501

import ast
import asyncio
import builtins
import math
from textwrap import indent
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewards.counterfactual.coverage import unexecuted_steps
from rewards.counterfactual.interventions import keep
from rewards.counterfactual.plan import Plan
from rewards.counterfactual.replay import estimate
from rewards.counterfactual.replayer import ExecutedProgram, Outcome
from rewards.counterfactual.segments import segment
from rewards.sandbox.inside import coverage

CALLS = (0, 1)


def run(code: str, *, probed: bool = False) -> tuple[list[Any], frozenset[int]]:
    """What f(0) and f(1) of a program give or raise, and the statements that they executed."""
    memory = bytearray(coverage.SIZE)
    setattr(builtins, coverage.NAME, memory)
    try:
        compiled = coverage.compile_probed(code, "program") if probed else compile(code, "program", "exec")
        assert compiled is not None
        results = [_called(compiled, argument) for argument in CALLS]
    except SyntaxError as error:
        results = [type(error).__name__] * len(CALLS)
    finally:
        delattr(builtins, coverage.NAME)
    return results, frozenset(place - 1 for place in range(1, coverage.SIZE) if memory[place])


def _called(compiled, argument: int) -> Any:
    namespace: dict[str, Any] = {"__name__": "program"}
    try:
        exec(compiled, namespace)  # noqa: S102 - programs of this file
        value = namespace["f"](argument)
        if hasattr(value, "__next__"):
            return type(value).__name__, list(value)
        return value if isinstance(value, int) else repr(type(value))
    except Exception as error:
        return type(error).__name__


def idle(code: str) -> list[str]:
    """The first lines of the steps that are spared."""
    steps = segment(code, "statement")
    _, executed = run(ast.unparse(ast.parse(code)), probed=True)
    found = unexecuted_steps(code, steps, ExecutedProgram(ast.unparse(ast.parse(code)), executed))
    return [code[steps[index].start : steps[index].end] for index in sorted(found)]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("def f(x):\n    return x\ndef g(y):\n    z = y\n    return z", ["z = y", "return z"]),
        ("def f(x):\n    if x > 5: y = 1; return y\n    return x", ["y = 1", "return y"]),
        ("def f(x):\n    if x > 5:\n        y = (1,\n             2)\n    return x", ["y = (1,\n             2)"]),
        ("def f(x):\n    return 1 // x\n    # text\nif f(1) == 3:\n    import math", ["import math"]),
        ("def f(x):\n    try:\n        return x\n    except ValueError:\n        x = 2\n    return x", ["x = 2", "return x"]),
        # The name is local to f with the statement, and global without it.
        ("a = 1\ndef f(x):\n    if x > 5:\n        a = 2\n    return a", []),
        # So is this one, but a parameter stays one.
        ("def f(x):\n    if x > 5:\n        x = 2\n    return x", ["x = 2"]),
        ("def f(x):\n    a = 0\n    if x > 5:\n        for a in range(3):\n            pass\n    return a",
         ["for a in range(3):", "pass"]),
        # A variable of a comprehension binds nothing.
        ("a = 1\ndef f(x):\n    b = [a for a in range(3)]\n    if x > 5:\n        a = 2\n    return a", []),
        # With `yield` the function is a generator, even where it is not reached.
        ("def f(x):\n    return x\n    yield x", []),
        ("def f(x):\n    g()\n    return x\ndef g():\n    x = 1\n    yield x\n    return x", ["x = 1", "return x"]),
        # The inner `nonlocal` needs the name, and g is another scope, which never ran.
        ("def f(x):\n    if x > 5:\n        a = 1\n    def g():\n        nonlocal a\n        a = 2\n    return x", []),
        ("def f(x):\n    if x > 5:\n        global a\n        a = 2\n    return x", []),
        ("def f(x):\n    return x\ndef g():\n    'Text.'\n    return 1", ["return 1"]),
        ("def f(x):\n    return len(vars())\n    y = 1", []),
        ("class C:\n    if 0:\n        a = 1\n    def g(self):\n        return 2\ndef f(x):\n    return x", ["a = 1", "return 2"]),
    ],
)  # fmt: skip
def test_unexecuted_steps_are_spared_where_no_executed_code_depends_on_them(code: str, expected: list[str]):
    assert idle(code) == expected


@pytest.mark.parametrize("executed", [frozenset([0, 1, 2]), frozenset([0])], ids=["entered", "not entered"])
def test_a_scope_is_read_once_however_many_of_its_statements_did_not_run(executed, monkeypatch):
    children, visited = ast.iter_child_nodes, list[ast.AST]()

    def visit(node: ast.AST):
        visited.append(node)
        return children(node)

    monkeypatch.setattr(ast, "iter_child_nodes", visit)

    def visits(statements: int) -> int:
        code = "def f(n):\n    if n:\n        return n" + "".join(f"\n    x{i} = g(n)" for i in range(statements))
        visited.clear()
        spared = unexecuted_steps(code, segment(code, "statement"), ExecutedProgram(code, executed))
        assert len(spared) == statements + 3 - len(executed)
        return len(visited)

    assert visits(80) < 2.5 * visits(40)


SIMPLE = (
    "a = 1", "b = a", "x = 2", "a += 1", "del a", "return a", "return b", "return x", "yield x", "yield", "pass",
    "raise ValueError", "import math as b", "c = [a for a in (1, 2)]", "(b := 3)", "global a", "global b", "1 // x",
    "c = lambda a: a", "assert x", "g()", "return g()", "nonlocal a", "nonlocal b", "break", "a: int = 4", "'Text.'",
)  # fmt: skip
HEADERS = (
    ("if x:", "else:"), ("if a:", ""), ("if x > 5:", "else:"), ("for b in range(2):", ""), ("for a in ():", "else:"),
    ("try:", "except Exception as b:"), ("try:", "finally:"), ("def g():", ""), ("def h(a=1):", ""), ("class C:", ""),
    ("match x:\n    case 0:", "    case a:"),
)  # fmt: skip


@st.composite
def blocks(draw: st.DrawFn, depth: int) -> str:
    """A body of one to three statements, nested at most `depth` times."""
    parts = []
    for _ in range(draw(st.integers(1, 3))):
        if depth == 0 or draw(st.integers(0, 2)):
            parts.append(draw(st.sampled_from(SIMPLE)))
            continue
        first, second = draw(st.sampled_from(HEADERS))
        far = "        " if first.startswith("match") else "    "
        text = f"{first}\n{indent(draw(blocks(depth - 1)), far)}"
        parts.append(f"{text}\n{second}\n{indent(draw(blocks(depth - 1)), far)}" if second else text)
    return "\n".join(parts)


def compiles(code: str) -> bool:
    try:
        compile(code, "program", "exec")
    except SyntaxError:
        return False
    return True


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(blocks(3), blocks(1))
def test_deleting_a_spared_step_changes_nothing(body: str, outside: str):
    code = f"a = 5\nb = 6\ndef g():\n    return 7\ndef f(x):\n{indent(body, '    ')}\n{outside}"
    if not compiles(code):
        return
    steps = segment(code, "statement")
    rewritten = keep(code, steps, range(len(steps)))
    assert rewritten is not None
    if not compiles(rewritten):
        return
    results, executed = run(rewritten, probed=True)
    assert run(rewritten)[0] == results  # probes change nothing
    for index in unexecuted_steps(code, steps, ExecutedProgram(rewritten, executed)):
        changed = keep(code, steps, [other for other in range(len(steps)) if other != index])
        assert changed is not None
        assert run(changed)[0] == results, code[steps[index].start : steps[index].end]


def credits(code: str, *, executed: frozenset[int] | None, **plan: Any):
    """Credits of a program whose tests are f(0) and f(1), and the programs that were replayed."""
    wanted, _ = run(code)
    replayed: list[str] = []

    async def verify(changed: str) -> Outcome:
        replayed.append(changed)
        found, _ = run(changed)
        tests = tuple(one == other for one, other in zip(found, wanted, strict=True))
        return Outcome(float(np.mean(tests)), tests)

    async def measure(changed: str) -> Outcome:
        outcome = await verify(changed)
        return outcome._replace(executed=None if executed is None else ExecutedProgram(changed, executed))

    found = asyncio.run(
        estimate(code, verify, Plan(**{"budget": 20} | plan), score=Outcome(1.0, (True, True)), measure=measure)
    )
    return found, replayed


CODE = "def f(x):\n    if x > 5:\n        x = 7\n        return 3\n    return x"


def test_a_spared_step_costs_no_replay_and_has_credit_0_in_every_test():
    _, executed = run(CODE, probed=True)
    found, replayed = credits(CODE, executed=executed, coverage=True)
    every, all_replayed = credits(CODE, executed=executed)
    assert found.values == every.values == [1.0, 0.0, 0.0, 0.0, 1.0]
    assert found.tests.tolist() == every.tests.tolist()
    assert (found.asked, found.replays, found.unexecuted) == (3, 3, 2)
    assert (every.asked, every.replays, every.unexecuted) == (5, 5, 0)
    assert set(replayed) < set(all_replayed)


def test_a_budget_goes_to_the_steps_that_were_executed():
    _, executed = run(CODE, probed=True)
    found, _ = credits(CODE, executed=executed, coverage=True, budget=3)
    assert found.values == [1.0, 0.0, 0.0, 0.0, 1.0]
    every, _ = credits(CODE, executed=executed, budget=3)
    assert sum(map(math.isnan, every.values)) == 2


@pytest.mark.parametrize("executed", [None, frozenset([0, 1, 2, 3, 4])])
def test_what_is_unknown_or_executed_is_replayed(executed: frozenset[int] | None):
    found, _ = credits(CODE, executed=executed, coverage=True)
    assert (found.asked, found.unexecuted) == (5, 0)
    assert found.values == [1.0, 0.0, 0.0, 0.0, 1.0]


def test_coverage_of_another_program_says_nothing():
    steps = segment(CODE, "statement")
    other = CODE.replace("x = 7", "x = 8")
    assert not unexecuted_steps(CODE, steps, ExecutedProgram(other, frozenset([0, 1, 4])))
    assert not unexecuted_steps(CODE, steps, None)
    assert unexecuted_steps(CODE, steps, ExecutedProgram(CODE, frozenset([0, 1, 4]))) == {2, 3}


@pytest.mark.parametrize("plan", [{"unit": "line"}, {"methods": ("truncate",)}, {"methods": ("shapley",)}])
def test_coverage_without_single_statements_to_spare_is_refused(plan: dict[str, Any]):
    with pytest.raises(ValueError, match=r"credit\.coverage"):
        Plan(coverage=True, **plan)
