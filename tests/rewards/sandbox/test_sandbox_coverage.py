"""Which statements of a program its tests executed, as the sandbox reports it."""

# Programs stand here as they are sent, in one piece.
# ruff: noqa: E501

from __future__ import annotations

import ast
import builtins
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.micro.model import make_tokenizer
from rewards import compute_score
from rewards.analysis.parsing import statements
from rewards.counterfactual.groups import GroupBoard
from rewards.counterfactual.plan import Plan
from rewards.counterfactual.service import CreditService, RolloutSample
from rewards.sandbox import AssertCase, CallCase, Program, Sandbox, StdioCase
from rewards.sandbox.client.accounting import counted, covering
from rewards.sandbox.inside import coverage
from tests.rewards.sandbox.conftest import ServerProcess

INPUTS = [StdioCase("1\n", "1"), StdioCase("2\n", "2")]


ONE_LINE = "import sys\nif int(input()) > 5: print('many')\nelse: a = 1; print(2 if a > 1 else 1)\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "cases", "expected"),
    [
        pytest.param(ONE_LINE, INPUTS[:1], [0, 1, 3, 4], id="several statements in a line"),
        pytest.param("print(\n    int(input())\n)\nif 0:\n    x = (1,\n         2)\n", INPUTS, [0, 1], id="several lines"),
        pytest.param("def f(x):\n    return x\ndef g(x):\n    return 1\n", [AssertCase("assert f(1) == 1")], [0, 1, 2],
                     id="a function that nothing calls"),
        pytest.param("def f(x):\n    '''Text.'''\n    global y\n    y = x\n    return y\n", [CallCase("f", [3], {}, 3)],
                     [0, 1, 2, 3, 4], id="a docstring and a declaration"),
        pytest.param("from __future__ import annotations\nprint(input())\n", INPUTS, [0, 1], id="a future import"),
        pytest.param("print(input())\nraise SystemExit\nprint(3)\n", INPUTS, [0, 1], id="an early exit"),
        pytest.param("import os\nprint(input(), flush=True)\nos._exit(0)\nprint(3)\n", INPUTS, [0, 1, 2], id="os._exit"),
        pytest.param("import os, signal\nprint(1)\nos.kill(os.getpid(), 11)\nprint(3)\n", INPUTS[:1], [0, 1, 2],
                     id="a signal"),
        pytest.param("try:\n    x = 1 // 0\n    y = 2\nexcept ValueError:\n    y = 3\nexcept ZeroDivisionError:\n"
                     "    y = 4\nelse:\n    y = 5\nfinally:\n    z = 6\nprint(z)\n", INPUTS[:1], [0, 1, 4, 6, 7],
                     id="an exception that is handled"),
        pytest.param("def f(x):\n    y = 1 // x\n    return y\n", [CallCase("f", [0], {}, 1)], [0, 1], id="one that is not"),
        pytest.param("n = int(input())\nif n == 1:\n    print(1)\nelif n == 2:\n    print(2)\nelif n == 3:\n    print(3)\n",
                     INPUTS, [0, 1, 2, 3, 4], id="the union of all cases"),
        pytest.param("def f(x):\n    match x:\n        case 1:\n            return 2\n        case _:\n            return 3\n",
                     [AssertCase("y = f(1)\nassert y == 2")], [0, 1, 2], id="a case, for a judge"),
        pytest.param("def f(x):\n    return x\nif __name__ == '__main__':\n    print(f(1))\n",
                     [AssertCase("assert f(1) == 1")], [0, 1, 2], id="a main block that does not run"),
        pytest.param("import threading\ndef f():\n    print(1)\nt = threading.Thread(target=f)\nt.start()\nt.join()\n",
                     INPUTS[:1], [0, 1, 2, 3, 4, 5], id="a thread"),
    ],
)  # fmt: skip
async def test_the_executed_statements_are_known(server: ServerProcess, sandbox: Sandbox, code, cases, expected):
    with covering():
        found = await sandbox.check(Program(code), cases)
    assert found.executed == frozenset(expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("print(1)\nwhile True: pass\nprint(2)", "timeout"),
        ("print(", "syntax_error"),
        ("x = [0] * 10**9\nprint(1)", "memory"),
        ("x = 1\n" * coverage.SIZE + "print(1)", "passed"),
    ],
)
async def test_what_a_limit_decided_is_not_known(server: ServerProcess, sandbox: Sandbox, code: str, outcome: str):
    with covering():
        found = await sandbox.check(Program(code), INPUTS[:1], timeout=0.5, memory_mb=256)
    assert (found.outcome, found.executed) == (outcome, None)


@pytest.mark.slow
async def test_probes_do_not_change_verdicts_and_are_made_on_request_only(server: ServerProcess, sandbox: Sandbox):
    code = "import os\nprint(os.open('main.py', os.O_RDONLY), '__executed__' in dir(__builtins__))"
    case = StdioCase("", "3 False")
    with counted() as plain:
        assert (await sandbox.check(Program(code), [case])).all_passed
    assert plain.executed == []
    probed = StdioCase("", "3 True")  # the first free descriptor is the same
    with covering(), counted() as busy:
        assert (await sandbox.check(Program(code), [probed])).all_passed
    assert busy.executed == [(code, frozenset([0, 1]))]


@pytest.mark.slow
@pytest.mark.parametrize(("coverage_on", "asked"), [(False, 5), (True, 3)])
async def test_credit_spares_the_replays_of_what_no_test_executed(server: ServerProcess, coverage_on: bool, asked: int):
    code = "def f(x):\n    if x > 5: y = 1; return y\n    return x"
    truth = json.dumps({"tests": ["assert f(1) == 1", "assert f(2) == 2"]})

    async def judge(answer: str):
        return await compute_score("code", answer, truth, sandbox_url=server.url)

    tokenizer = make_tokenizer()
    sample = RolloutSample("g", 0, ["code", truth], code, tokenizer.encode(code), await judge(code))
    service = CreditService(Plan(budget=8, coverage=coverage_on), GroupBoard(1, 1.0))
    found = await service.credit(sample, tokenizer, judge)
    assert found.values.tolist() == [1.0, 0.0, 0.0, 0.0, 1.0]
    assert (found.asked, found.unexecuted) == (asked, 5 - asked)


PIECES = ["x = 1", "if x:\n    y = 2\nelse:\n    y = 3", "def f():\n    'Text.'", "class C:\n    'Text.'\n    z = 1",
          "for i in x:\n    break\nelse:\n    pass", "try:\n    pass\nfinally:\n    x = 2", "while x:\n    x -= 1",
          "match x:\n    case 1:\n        pass", "with x as y:\n    pass", "async def g():\n    await x"]  # fmt: skip


@pytest.mark.slow
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=6))
def test_the_sandbox_counts_statements_as_credit_does(pieces: list[str]):
    tree = ast.parse("\n".join(pieces))
    nodes = list(statements(tree))
    assert list(coverage.statements(tree)) == nodes
    assert coverage.insert_probes(tree) == len(nodes)
    compile(tree, "program", "exec")
    probes = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == coverage.NAME]
    assert len(probes) == len(nodes)


def test_a_probe_marks_its_statement_when_it_runs():
    memory = bytearray(coverage.SIZE)
    setattr(builtins, coverage.NAME, memory)
    try:
        compiled = coverage.compile_probed("x = 0\nif x:\n    y = 1\nz = 2", "program")
        assert compiled is not None
        assert memory[0] == 1
        exec(compiled, {})  # noqa: S102 - our own text
    finally:
        delattr(builtins, coverage.NAME)
    assert list(memory[1:5]) == [1, 1, 0, 1]
