"""Recall and false alarms of `data_prep.audit_tests` on weak suites that are planted: one test of each problem is kept.

    python -m benchmarks.planted_tests
    python -m benchmarks.planted_tests --problems 50 --line 0.9

The problems are those of the micro and the English suite, whose tests reject every plausible wrong answer that their
generators list. These answers, which the audit does not see, decide which planted suites are weak: those that accept
more than a share of 1 - line of them.
"""

import argparse
import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from data_prep.english import coding
from data_prep.english.problem import EnglishProblem, Unsuitable
from data_prep.micro import problems as micro
from data_prep.micro.problems import MicroProblem
from data_prep.strength.measuring import Measurement, measured
from data_prep.strength.strength import Standing
from data_prep.tasks import Task
from rewards.sandbox import AssertCase, InfrastructureError, Program, Sandbox
from rewards.verifiers.code import CodeTruth

LEVELS = (1, 2, 3)
_MAKERS: dict[str, Callable[[random.Random, int], MicroProblem | EnglishProblem]] = {
    "micro": micro.write_problem,
    "english": coding.write_problem,
}


@dataclass(frozen=True)
class PlantedSuite:
    """A problem with all its tests, the same with one test, and wrong answers that all tests reject."""

    full: Task
    planted: Task
    wrong: tuple[str, ...]


def planted_suites(name: str, count: int, seed: int) -> Iterator[PlantedSuite]:
    """`count` problems of the micro or the English suite, equally many of each level."""
    for number in range(count):
        rng = random.Random(f"{name}/{seed}/{number}")
        problem = None
        while problem is None:
            try:
                problem = _MAKERS[name](rng, LEVELS[number % len(LEVELS)])
            except Unsuitable:
                continue
        truth = problem.truth()
        assert isinstance(truth, CodeTruth)
        kept = rng.choice(truth.tests)
        full, planted = (_task(f"{name}/{number}/{kind}", problem, tests)
                         for kind, tests in (("full", truth.tests), ("planted", [kept])))  # fmt: skip
        yield PlantedSuite(full, planted, problem.wrong)


def _task(identifier: str, problem: MicroProblem | EnglishProblem, tests: Sequence[str]) -> Task:
    return Task(
        id=identifier,
        source=identifier.partition("/")[0],
        split="train",
        role="train",
        skill=problem.skill,
        verifier="code",
        prompt=problem.prompt,
        ground_truth=CodeTruth(tests=list(tests)).model_dump(),
        solution=problem.gold,
    )


@dataclass(frozen=True)
class Planted:
    """What the audit reports of a full and of a planted suite. accepted: share of wrong answers that pass each."""

    full: Standing
    planted: Standing
    full_accepted: float
    planted_accepted: float


async def audited(suite: PlantedSuite, sandbox: Sandbox, how: Measurement, line: float) -> Planted:
    """The audit's standing of both suites, and the share of the wrong answers that they accept."""
    standings = [(await measured(task, sandbox, how)).standing(line) for task in (suite.full, suite.planted)]
    shares = [await _accepted(task, suite.wrong, sandbox) for task in (suite.full, suite.planted)]
    return Planted(standings[0], standings[1], *shares)


async def _accepted(task: Task, wrong: Sequence[str], sandbox: Sandbox) -> float:
    cases = [AssertCase(test) for test in task.ground_truth["tests"]]
    results = await sandbox.check_many([Program(one) for one in wrong], cases, stop_on_failure=True)
    passed = 0
    for result in results:
        if isinstance(result, InfrastructureError):
            raise result
        passed += result.all_passed
    return passed / len(results)


async def all_audited(name: str, count: int, seed: int, line: float) -> list[Planted]:
    """The audits of `count` problems, some at a time."""
    places = asyncio.Semaphore(4)

    async with Sandbox() as sandbox:

        async def one(suite: PlantedSuite) -> Planted:
            async with places:
                return await audited(suite, sandbox, Measurement(seed=seed), line)

        return await asyncio.gather(*map(one, planted_suites(name, count, seed)))


@dataclass(frozen=True)
class Recall:
    """Of the planted suites that are `weak`, those `found`; of the full ones that are `strong`, the `false_alarms`."""

    weak: int
    found: int
    strong: int
    false_alarms: int
    unknown: int


def recall(audits: Sequence[Planted], line: float) -> Recall:
    """Weak: accepts more than 1 - line of the wrong answers; strong: accepts none."""
    weak = [one.planted for one in audits if one.planted_accepted > 1.0 - line]
    strong = [one.full for one in audits if one.full_accepted == 0.0]
    unknown = sum((one.planted == "unknown") + (one.full == "unknown") for one in audits)
    return Recall(len(weak), weak.count("weak"), len(strong), strong.count("weak"), unknown)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=150, help="problems per suite")
    parser.add_argument("--line", type=float, default=0.8)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for name in _MAKERS:
        audits = asyncio.run(all_audited(name, options.problems, options.seed, options.line))
        one = recall(audits, options.line)
        print(f"{name}: {one.found} of {one.weak} weak suites found, {one.false_alarms} false alarms in {one.strong} "
              f"strong ones, {one.unknown} of {2 * len(audits)} unknown", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
