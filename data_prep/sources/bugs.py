"""Repair tasks from correct programs: `python -m data_prep.sources.bugs --tasks FILE [FILE ...] --out DIR`.

FILE: tasks of verifier `code` with solutions, for example MBPP's train.jsonl. A mutant differs from a solution in one
place; it becomes a task if it fails one of the tests. Tasks keep the role of their original.
"""

import ast
import asyncio
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_prep.sources.source import Draft, Refusal, judge_of, positive, run, source_parser
from data_prep.tasks import Task, read_tasks
from rewards.sandbox import AssertCase, Program
from rewards.settings import JudgeSettings
from rewards.verifiers.code import CodeTruth
from rewards.verifiers.programs import sandbox_at

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.FloorDiv,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.FloorDiv,
}
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Mutant:
    """A program with one change of the kind `kind`."""

    source: str
    kind: str


def mutants(source: str) -> list[Mutant]:
    """All distinct programs that differ from a program by one change. Raises SyntaxError for invalid Python."""
    tree = ast.parse(source)
    by_text: dict[str, Mutant] = {}
    for node in ast.walk(tree):
        for kind, attribute, value in _changes(node):
            original = getattr(node, attribute)
            setattr(node, attribute, value)
            text = ast.unparse(tree)
            setattr(node, attribute, original)
            by_text.setdefault(text, Mutant(text, kind))
    by_text.pop(ast.unparse(tree), None)
    return list(by_text.values())


def _changes(node: ast.AST) -> Iterator[tuple[str, str, object]]:
    """The changes of one node: kind, attribute, new value."""
    if isinstance(node, ast.Compare):
        for place, comparison in enumerate(node.ops):
            if type(comparison) in _COMPARISONS:
                other = _COMPARISONS[type(comparison)]()
                yield "comparison", "ops", [*node.ops[:place], other, *node.ops[place + 1 :]]
    elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in _OPERATORS:
        yield "operator", "op", _OPERATORS[type(node.op)]()
    elif isinstance(node, ast.BoolOp):
        yield "connective", "op", ast.Or() if isinstance(node.op, ast.And) else ast.And()
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield "constant", "value", node.value + 1
        yield "constant", "value", node.value - 1
    elif isinstance(node, ast.If | ast.While):
        yield "condition", "test", ast.UnaryOp(ast.Not(), node.test)
    elif isinstance(node, ast.Name) and node.id in _NAMES:
        yield "builtin", "id", _NAMES[node.id]


_BATCH = 64


def drafts(tasks: Sequence[Task], judge: JudgeSettings, *, per_program: int, seed: int) -> Iterator[Draft]:
    """Up to `per_program` repair tasks per task with a program and tests; the mutants fail under the judge's limits."""
    usable = [task for task in tasks if task.verifier == "code" and task.solution is not None]
    for start in range(0, len(usable), _BATCH):
        for made in asyncio.run(_of_tasks(usable[start : start + _BATCH], judge, per_program, seed)):
            yield from made


async def _of_tasks(tasks: Sequence[Task], judge: JudgeSettings, per_program: int, seed: int) -> list[list[Draft]]:
    return await asyncio.gather(*(_of_task(task, judge, per_program, seed) for task in tasks))


async def _of_task(task: Task, judge: JudgeSettings, per_program: int, seed: int) -> list[Draft]:
    candidates = mutants(task.solution or "")
    random.Random(f"{task.id}/{seed}").shuffle(candidates)
    truth = CodeTruth.model_validate(task.ground_truth)
    made: list[Draft] = []
    for mutant in candidates:
        if len(made) == per_program:
            break
        failing = await _first_failing(mutant.source, truth, judge)
        if failing is not None:
            made.append(_fields(task, mutant, failing, len(made)))
    return made or [Refusal(f"bugs/{task.id}", "no single change makes a test fail")]


async def _first_failing(program: str, truth: CodeTruth, judge: JudgeSettings) -> str | None:
    cases = [AssertCase(test) for test in truth.tests]
    entry_points = truth.all_entry_points()
    result = await sandbox_at(judge.sandbox_url, judge.sandbox_isolation).check(
        Program(program),
        cases,
        timeout=judge.timeout,
        # With less total time, skipped tests would count as failing ones.
        total_timeout=judge.timeout * (len(cases) + 1),
        memory_mb=judge.memory_mb,
        max_timeouts=1,
        entry_points=entry_points,
    )
    return next((test for test, case in zip(truth.tests, result.cases, strict=True) if not case.passed), None)


def _fields(task: Task, mutant: Mutant, failing: str, number: int) -> dict[str, Any]:
    return {
        "id": f"bugs/{task.id}/{number}",
        "source": "bugs",
        "split": task.role,
        "role": task.role,
        "skill": "repair",
        "verifier": "code",
        "prompt": (
            f"A program for this task has a bug:\n{task.prompt}\n\nThe program:\n```python\n{mutant.source}\n```\n"
            f"It fails this test:\n```python\n{failing}\n```\nAnswer with the whole fixed program in one Python code "
            "block."
        ),
        "ground_truth": _with_test_shown(task.ground_truth, failing),
        "solution": task.solution,
        "licence": task.licence,
        "notes": {"bug": mutant.kind, "made_of": task.id},
    }


def _with_test_shown(truth: dict[str, Any], test: str) -> dict[str, Any]:
    """The ground truth with this test among the visible ones, which come first."""
    tests, visible = truth["tests"], truth.get("visible", 0)
    if test in tests[:visible]:
        return truth
    others = list(tests)
    others.remove(test)
    return truth | {"tests": [test, *others], "visible": visible + 1}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = source_parser("bugs", __doc__)
    parser.add_argument("--tasks", type=Path, nargs="+", required=True, metavar="FILE", help="tasks as JSON Lines")
    parser.add_argument("--per-program", type=positive, default=2, help="repair tasks per program")
    parser.add_argument("--limit", type=positive, help="programs to use (default: all)")
    options = parser.parse_args(arguments)

    def made() -> Iterator[Draft]:
        tasks = [task for path in options.tasks for task in read_tasks(path)]
        return drafts(tasks[: options.limit], judge_of(options), per_program=options.per_program, seed=options.seed)

    return run("bugs", options, ("code",), made)


if __name__ == "__main__":
    sys.exit(main())
