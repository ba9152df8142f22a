"""Measuring a task's tests in the sandbox: wrong programs against the tests, then survivors against new inputs."""

import ast
import asyncio
import inspect
import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from data_prep.sources.bugs import Mutant
from data_prep.strength import call_driver
from data_prep.strength.strength import ENOUGH, EXAMPLES, Strength, Survivor, changed_lines, smallest_cover
from data_prep.strength.suites import NewTest, Suite, SuiteInput, suite_of
from data_prep.strength.wrong_programs import wrong_programs
from data_prep.tasks import Task
from rewards.sandbox import Case, CheckResult, InfrastructureError, Program, Sandbox
from rewards.sandbox.cases import MEMORY_MB
from rewards.sandbox.inside import outcomes
from rewards.verifiers.programs import program_in

_RESTARTS = 3
FAILS = "the solution fails or gives no answer"
OTHER_KIND = "the answer has a type or form that no test expects"
VARIES = "the solution's answer varies"
DISPUTED = "another solution fails or answers otherwise"


@dataclass(frozen=True)
class Measurement:
    """How tests are measured.

    mutants: most wrong programs per task. inputs: most new inputs. timeout: seconds for each test of a program, and
    memory_mb MiB. seed: decides which programs and inputs are drawn.
    """

    mutants: int = 60
    inputs: int = 64
    timeout: float = 2.0
    memory_mb: int = MEMORY_MB
    seed: int = 0


async def measured(task: Task, sandbox: Sandbox, how: Measurement, others: Sequence[str] = ()) -> Strength:
    """The strength of a task's tests. task: has a solution in Python and a verifier of suites.VERIFIERS.

    others: more programs, of which those that pass all tests must confirm each new test. Raises InfrastructureError if
    a solution could not be run.
    """
    suite, solution = suite_of(task), program_in(task.solution or "")
    wrong = wrong_programs(solution, suite.constant_answers(), most=how.mutants, seed=f"{task.id}/{how.seed}")
    programs = [solution, *(one.source for one in wrong)]
    own, *results = await _checked(programs, suite.cases(), suite, sandbox, how, stop_on_failure=True)
    if isinstance(own, InfrastructureError):
        raise own
    if not own.all_passed:
        return Strength(task.id, reason=f"its solution fails a test: {own.outcome}")
    judged = [result for result in results if not isinstance(result, InfrastructureError)]
    alive = [
        one
        for one, result in zip(wrong, results, strict=True)
        if not isinstance(result, InfrastructureError) and result.all_passed
    ]
    counts = Strength(
        task.id,
        killed=len(judged) - len(alive),
        timeouts=sum(result.outcome == outcomes.TIMEOUT for result in judged),
        unjudged=len(results) - len(judged),
    )
    if not alive:
        return counts
    solutions = [solution, *await _right(others, suite, sandbox, how)]
    return await _with_survivors(counts, solutions, alive, suite, sandbox, how)


async def _right(programs: Sequence[str], suite: Suite, sandbox: Sandbox, how: Measurement) -> list[str]:
    """The programs that pass all tests."""
    if not programs:
        return []
    results = await _checked(programs, suite.cases(), suite, sandbox, how, stop_on_failure=True)
    return [one for one, result in zip(programs, _judged(results), strict=True) if result.all_passed]


def _judged(results: Sequence[CheckResult | InfrastructureError]) -> list[CheckResult]:
    """The results of solutions, of which none may be missing."""
    for result in results:
        if isinstance(result, InfrastructureError):
            raise result
    return [result for result in results if isinstance(result, CheckResult)]


async def _with_survivors(
    counts: Strength,
    solutions: Sequence[str],
    alive: Sequence[Mutant],
    suite: Suite,
    sandbox: Sandbox,
    how: Measurement,
) -> Strength:
    """The counts, with the accepted programs distinguished by new tests. solutions: the task's own is the first."""
    solution, rng = solutions[0], random.Random(f"{counts.id}/{how.seed}/inputs")
    tests, dropped = await new_tests(solution, suite, sandbox, how, rng)
    programs = [*solutions, *(one.source for one in alive)]
    every = await _checked(programs, [test.case for test in tests], suite, sandbox, how)
    confirmed, results = _judged(every[: len(solutions)]), every[len(solutions) :]
    varies = _refuted(confirmed[0])
    disputed = frozenset[int]().union(*map(_refuted, confirmed[1:])) - varies
    dropped |= {VARIES: len(varies), DISPUTED: len(disputed)}
    good = set(range(len(tests))) - varies - disputed
    unjudged = sum(isinstance(result, InfrastructureError) for result in results)
    failing = [(one, result, _failed(result) & good) for one, result in zip(alive, results, strict=True)]
    different = [(one, result, failed) for one, result, failed in failing if failed]
    same = len(alive) - len(different) - unjudged
    chosen = smallest_cover([failed for _, _, failed in different])
    return Strength(
        **{
            **vars(counts),
            "survived": len(different),
            "equivalent": same if len(good) >= ENOUGH else 0,
            "undecided": same if len(good) < ENOUGH else 0,
            "unjudged": counts.unjudged + unjudged,
            "inputs": len(good),
            "dropped": {reason: number for reason, number in dropped.items() if number},
            "kinds": dict(Counter(one.kind for one, _, _ in different)),
            "examples": [_example(solution, *found, tests) for found in different[:EXAMPLES]],
            "added": [tests[number].entry for number in chosen],
        }
    )


def _refuted(result: CheckResult) -> frozenset[int]:
    """The cases that a solution did not pass, not run ones included."""
    return frozenset(number for number, case in enumerate(result.cases) if not case.passed)


def _failed(result: CheckResult | InfrastructureError) -> frozenset[int]:
    """The cases that a program itself failed: those after a time-out were not run."""
    if isinstance(result, InfrastructureError):
        return frozenset()
    return frozenset(
        number
        for number, case in enumerate(result.cases)
        if not case.passed and not (case.detail or "").startswith("not run")
    )


def _example(
    solution: str, program: Mutant, result: CheckResult | InfrastructureError, failed: frozenset[int],
    tests: Sequence[NewTest],
) -> Survivor:  # fmt: skip
    assert isinstance(result, CheckResult)
    first = min(failed)
    entry, case = tests[first].entry, result.cases[first]
    test = entry if isinstance(entry, str) else f"stdin {entry['stdin']!r}"
    return Survivor(
        program.kind, changed_lines(solution, program.source), test[:300], (case.detail or case.outcome)[:300]
    )


async def _checked(
    programs: Sequence[str], cases: Sequence[Case], suite: Suite, sandbox: Sandbox, how: Measurement,
    *, stop_on_failure: bool = False,
) -> list[CheckResult | InfrastructureError]:  # fmt: skip
    return await sandbox.check_many(
        [Program(source) for source in programs],
        cases,
        timeout=how.timeout,
        # With less total time, skipped tests would count as failing ones.
        total_timeout=how.timeout * (len(cases) + 1),
        memory_mb=how.memory_mb,
        max_timeouts=1,
        stop_on_failure=stop_on_failure,
        entry_points=suite.entry_points,
    )


async def new_tests(
    solution: str, suite: Suite, sandbox: Sandbox, how: Measurement, rng: random.Random
) -> tuple[list[NewTest], dict[str, int]]:
    """Tests of new inputs that the solution accepts, short ones first; they expect what the solution answers. And how
    many inputs made none, by reason.

    An answer of a type that no test expects, such as None in place of a number, shows an input outside of the problem.
    """
    known, new = suite.known_inputs(), suite.new_inputs(rng, how.inputs, solution)
    answers = await (_printed if suite.printed else _returned)(solution, [*known, *new], sandbox, how)
    types = {_type(output) for output in answers[: len(known)]}
    made, dropped = list[NewTest](), Counter[str]()
    for given, output in zip(new, answers[len(known) :], strict=True):
        if output is None:
            dropped[FAILS] += 1
        elif not (suite.printed or _type(output) in types) or (test := suite.new_test(given, output)) is None:
            dropped[OTHER_KIND] += 1
        else:
            made.append(test)
    return sorted(made, key=lambda test: len(str(test.entry))), dict(dropped)


def _type(output: str | None) -> type:
    """The type of a literal."""
    return type(ast.literal_eval(output or "None"))


async def _printed(solution: str, inputs: Sequence[SuiteInput], sandbox: Sandbox, how: Measurement) -> list[str | None]:
    runs = (sandbox.run(solution, stdin=one.text, timeout=how.timeout, memory_mb=how.memory_mb) for one in inputs)
    return [run.stdout if run.passed and not run.stdout_truncated else None for run in await asyncio.gather(*runs)]


async def _returned(
    solution: str, inputs: Sequence[SuiteInput], sandbox: Sandbox, how: Measurement
) -> list[str | None]:
    """The values of expressions as literals; after one that ends the run, another run takes the rest."""
    imports = "\n".join(dict.fromkeys(one.imports for one in inputs))
    values: list[str | None] = []
    for _ in range(_RESTARTS):
        if len(values) >= len(inputs):
            break
        job = {"program": solution, "imports": imports, "expressions": [one.text for one in inputs[len(values) :]]}
        run = await sandbox.run(_driver(), stdin=json.dumps(job), timeout=2 * how.timeout, memory_mb=how.memory_mb)
        values += [json.loads(line) for line in run.stdout.split("\n")[:-1]]
        if not run.passed:
            values.append(None)
    return [*values, *[None] * len(inputs)][: len(inputs)]


@cache
def _driver() -> str:
    return inspect.getsource(call_driver)
