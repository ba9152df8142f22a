"""Programs of the agreement benchmark: reference solutions with their tests, and mutants of them."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import random
import re
import symtable
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count, islice
from pathlib import Path
from typing import Any

from benchmarks.agreements.plain import printed
from data_prep.micro import suite
from data_prep.micro.problems import MicroProblem
from data_prep.sources import procedural, refactor, sql
from data_prep.sources.bugs import mutants
from rewards.verifiers import sql_driver
from rewards.verifiers.code import CodeTruth
from rewards.verifiers.sql import ROW_LIMIT, SqlTruth

# The first needs no judge process, the second does.
_ADDS_ONE = ["assert f(1) == 2", "x = f(2)\nassert x == 3"]
_MAIN = "\nif __name__ == '__main__':\n    import ast\n    print({}(*ast.literal_eval(input())))\n"


@dataclass(frozen=True)
class AgreementRow:
    """One program with its `tests`, statements after `setup`, or its `printed` pairs of input and output.

    `mutant`: the kind of change to the reference solution; None for the solution itself.
    """

    source: str
    id: str
    program: str
    tests: tuple[str, ...] = ()
    setup: str = ""
    printed: tuple[tuple[str, str], ...] = ()
    entry_points: tuple[str, ...] = ()
    mutant: str | None = None

    @cached_property
    def texts(self) -> list[str]:
        """One text per test, for reports."""
        return list(self.tests) or [f"stdin {given!r:.60} -> {expected!r:.40}" for given, expected in self.printed]


def entry_points(program: str, sources: Sequence[str]) -> tuple[str, ...]:
    """Functions, classes and variables that a program defines at its top level and that these tests use."""
    used = {node.id for source in sources for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
    symbols = symtable.symtable(program, "main.py", "exec").get_symbols()
    defined = {symbol.get_name() for symbol in symbols if symbol.is_assigned() and not symbol.is_imported()}
    return tuple(sorted(used & defined))


def with_tests(source: str, name: str, program: str, tests: Sequence[str], before: str = "") -> AgreementRow:
    """The row of a program whose tests call it; `before`: statements that run before each test."""
    return AgreementRow(
        source, name, program, tuple(tests), before, entry_points=entry_points(program, [before, *tests])
    )


def mbpp(path: Path) -> Iterator[AgreementRow]:
    """The problems of an MBPP file: the full version in JSON Lines or the sanitized one in JSON."""
    text = path.read_text()
    records = json.loads(text) if text.startswith("[") else [json.loads(line) for line in text.splitlines()]
    for record in records:
        full = "test_imports" not in record
        setup = record["test_setup_code"] if full else "\n".join(record["test_imports"])
        tests = [*record["test_list"], *record.get("challenge_test_list", ())]
        source = "mbpp" if full else "mbpp sanitized"
        yield with_tests(source, str(record["task_id"]), record["code"].replace("\r\n", "\n"), tests, setup)


def humaneval(path: Path) -> Iterator[AgreementRow]:
    """The problems of HumanEval, each with its `check` as one test."""
    for line in path.read_text().splitlines():
        record = json.loads(line)
        test = f"{record['test']}\ncheck({record['entry_point']})"
        yield with_tests("humaneval", record["task_id"], record["prompt"] + record["canonical_solution"], [test])


def idioms() -> Iterator[AgreementRow]:
    """The programs of agreements/idioms.txt, one row per test."""
    text = Path(__file__).with_name("idioms.txt").read_text()
    for block in text.split("\n#: program ")[1:]:
        title, _, body = block.partition("\n")
        kind, _, name = title.partition(" | ")
        program, *tests = re.split(r"^#: ", body, flags=re.MULTILINE)
        for test in tests or _ADDS_ONE:
            if test.startswith("printed "):
                pair = ast.literal_eval(test.removeprefix("printed "))
                yield AgreementRow(f"idioms, {kind}", name, program, printed=(pair,))
            else:
                yield with_tests(f"idioms, {kind}", name, program, [test.removeprefix("test\n")])


def own(each: int, seed: int) -> Iterator[AgreementRow]:
    """`each` problems of every source of this project with programs or queries as answers."""
    for skill in ("write", "repair", "parts"):
        for problem in _micro(skill, each, seed):
            truth = problem.truth()
            assert isinstance(truth, CodeTruth)
            yield with_tests(f"micro {skill}", problem.prompt, problem.gold, truth.tests)
    for draft in _procedural(refactor, each, seed):
        truth = draft["ground_truth"]
        yield with_tests("refactor", draft["id"], draft["solution"], truth["tests"])
        yield with_tests("refactor, original", draft["id"], truth["original"], truth["tests"])
    for problem in _micro("sql", each, seed):
        yield _query("micro sql", problem.prompt, problem.gold, problem.truth())
    for draft in _procedural(sql, each, seed):
        yield _query("sql", draft["id"], draft["solution"], SqlTruth.model_validate(draft["ground_truth"]))


def _micro(skill: str, each: int, seed: int) -> Iterator[MicroProblem]:
    return suite.problems(skill, "train", seed=seed, count=each, difficulty=2)


def _procedural(module: Any, each: int, seed: int) -> list[dict[str, Any]]:
    name = module.__name__.rpartition(".")[2]
    return list(procedural.drafts(name, module.draw, limit=each, seed=seed))[:each]


def _query(source: str, name: str, query: str, truth: Any) -> AgreementRow:
    """A query as the program that runs it, with the job as input and the rows as output."""
    jobs = [
        {"engine": "sqlite", "setups": [one.setup], "query": query, "row_limit": ROW_LIMIT, "seconds": 2.0}
        for one in truth.databases
    ]
    outputs = [json.dumps({"results": [one.expected]}) for one in truth.databases]
    printed = tuple(zip(map(json.dumps, jobs), outputs, strict=True))
    return AgreementRow(source, name, inspect.getsource(sql_driver), printed=printed)


async def as_printed(rows: Sequence[AgreementRow], each: int, seconds: float, jobs: int) -> list[AgreementRow]:
    """Up to `each` rows of every source whose tests call a function with literals, turned into programs that read these
    and print the value; the expected output is that of the reference solution.
    """
    made = []
    for source in dict.fromkeys(row.source for row in rows):
        made += list(islice((found for row in rows if row.source == source if (found := _reading(row))), each))
    free = asyncio.Semaphore(jobs)

    async def answered(row: AgreementRow) -> AgreementRow:
        async with free:
            return await _answered(row, seconds)

    return await asyncio.gather(*map(answered, made))


def _reading(row: AgreementRow) -> AgreementRow | None:
    calls = [found for test in row.tests if (found := _call(test))]
    if not calls or len({name for name, _ in calls}) > 1:
        return None
    program = row.program + _MAIN.format(calls[0][0])
    return AgreementRow(f"{row.source}, printed", row.id, program, printed=tuple((given, "") for _, given in calls))


async def _answered(row: AgreementRow, seconds: float) -> AgreementRow:
    answers = [(given, await printed(row.program, given, seconds)) for given, _ in row.printed]
    return replace(row, printed=tuple((given, text) for given, (error, text) in answers if error is None))


def _call(test: str) -> tuple[str, str] | None:
    """The function of `assert f(*arguments) == value`, and a line with its arguments; None for other tests."""
    match ast.parse(test).body:
        case [ast.Assert(ast.Compare(ast.Call(ast.Name(name), arguments, []), [ast.Eq()], [_]))]:
            try:
                return name, f"{ast.literal_eval(ast.Tuple(arguments))!r}\n"
            except (ValueError, TypeError):
                return None
    return None


def mutated(rows: Sequence[AgreementRow], wanted: int, seed: int) -> list[AgreementRow]:
    """Mutants drawn evenly from all rows, so that every source has its share; at most `wanted`."""
    order = list(rows)
    random.Random(f"mutants/{seed}").shuffle(order)
    left = {index: _mutants(row, seed) for index, row in enumerate(order)}
    found: list[AgreementRow] = []
    for index in _round_robin(left):
        if len(found) == wanted:
            break
        if (row := next(left[index], None)) is None:
            del left[index]
        else:
            found.append(row)
    return found


def _round_robin(left: dict[int, Iterator[AgreementRow]]) -> Iterator[int]:
    for _ in count():
        if not left:
            return
        yield from list(left)


def _mutants(row: AgreementRow, seed: int) -> Iterator[AgreementRow]:
    made = mutants(row.program)
    random.Random(f"{row.source}/{row.id}/{seed}").shuffle(made)
    for mutant in made:
        yield replace(row, program=mutant.source, mutant=mutant.kind)
