"""Both verdicts of every program of the agreement benchmark, and the causes of their differences."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rich.console import Console
from rich.progress import Progress

from benchmarks.agreements.plain import (
    MEMORY_MB,
    OTHER_OUTPUT,
    PASSED,
    TIMEOUT,
    PlainVerdict,
    judge_printed,
    judge_tests,
)
from benchmarks.agreements.rows import AgreementRow
from rewards.sandbox import AssertCase, Case, CaseResult, InfrastructureError, Program, Sandbox, StdioCase

_REPEATS = 4
_MORE_SECONDS = 3
_INFRASTRUCTURE = "infrastructure"

# The sandbox's messages about a test that it can't decide: the program's own object would decide about itself.
_UNDECIDABLE = re.compile(r"the program's class|of its class|more than \d+ items")


@dataclass(frozen=True)
class VerdictDifference:
    """One test whose verdicts differ; `outcome` and `detail` are the sandbox's."""

    row: AgreementRow
    index: int
    plain: str
    outcome: str
    detail: str
    cause: str = ""

    def line(self) -> str:
        """The difference in one line."""
        row = self.row
        mutant = f"mutant ({row.mutant})" if row.mutant else "reference"
        test = " ".join(row.texts[self.index].split())[:100]
        return f"{row.source} | {row.id} | {mutant} | {test} | {self.plain[:80]} | {self.outcome}: {self.detail[:160]}"


Verdicts = tuple[list[PlainVerdict], list[CaseResult]]


class Comparison:
    """Runs programs in both harnesses."""

    def __init__(self, sandbox: Sandbox, seconds: float, jobs: int) -> None:
        self.sandbox = sandbox
        self.seconds = seconds
        self.free = asyncio.Semaphore(jobs)

    async def verdicts(self, rows: Sequence[AgreementRow], console: Console) -> list[Verdicts]:
        """The plain and the sandbox's verdicts of every row.

        Rows that differ by a time-out run again alone with more time, since a time near the limit is not conclusive.
        """
        with Progress(console=console) as progress:
            task = progress.add_task("programs", total=len(rows))

            async def one(row: AgreementRow) -> Verdicts:
                async with self.free:
                    found = await self._both(row)
                progress.advance(task)
                return found

            found = await asyncio.gather(*map(one, rows))
            late = [index for index, pair in enumerate(found) if _differ_by_time(pair)]
            self.seconds *= _MORE_SECONDS
            for index in progress.track(late, description="time-outs once more"):
                found[index] = await self._both(rows[index])
            self.seconds /= _MORE_SECONDS
        return found

    async def _both(self, row: AgreementRow) -> Verdicts:
        return await self.plain(row), await self._boxed(row)

    async def plain(self, row: AgreementRow) -> list[PlainVerdict]:
        """Verdicts of the plain harness."""
        if row.printed:
            return await judge_printed(row.program, row.printed, self.seconds)
        return await judge_tests(row.program, row.setup, row.tests, self.seconds)

    async def _boxed(self, row: AgreementRow) -> list[CaseResult]:
        cases: list[Case] = [*map(AssertCase, row.tests), *(StdioCase(*pair) for pair in row.printed)]
        try:
            result = await self.sandbox.check(
                Program(row.program),
                cases,
                setup=row.setup,
                timeout=self.seconds,
                total_timeout=self.seconds * (len(cases) + 1),
                memory_mb=MEMORY_MB,
                max_timeouts=1,
                entry_points=row.entry_points,
            )
        except InfrastructureError as error:
            return [CaseResult(_INFRASTRUCTURE, str(error))] * len(cases)
        return result.cases

    async def explained(self, difference: VerdictDifference) -> VerdictDifference:
        """The difference with its cause; a program whose plain verdict varies between processes has no true verdict."""
        for _ in range(_REPEATS):
            again = (await self.plain(difference.row))[difference.index]
            if (again == PASSED) != (difference.plain == PASSED):
                return replace(difference, cause="the program is not deterministic: its plain verdicts differ as well")
        return replace(difference, cause=cause_of(difference))


def cause_of(difference: VerdictDifference) -> str:
    """The cause of a difference by its detail, or the kind of failure that is still to be explained."""
    if TIMEOUT in (difference.plain, difference.outcome):
        return "one side timed out twice"
    if difference.plain == PASSED and _UNDECIDABLE.search(difference.detail):
        return "by design, undecidable: the program's own object would decide about itself"
    if difference.row.printed and (difference.plain, difference.outcome) == (OTHER_OUTPUT, PASSED):
        return "by design, printed tokens are compared by value and not by their text: 240 for 240.0"
    kind = re.sub(r"['\"].*?['\"]|\d+", "_", difference.detail)[:60]
    return f"to be explained: plain {_kind(difference.plain)}, sandbox {difference.outcome}: {kind}"


def _kind(verdict: str) -> str:
    return verdict.partition(":")[0]


def _ran(pair: Verdicts) -> Iterator[tuple[int, str, CaseResult]]:
    """The tests that both sides ran, with their verdicts."""
    for index, (plain, boxed) in enumerate(zip(*pair, strict=True)):
        if plain is not None and not (boxed.detail or "").startswith("not run"):
            yield index, plain, boxed


def tests_run(pair: Verdicts) -> int:
    """Number of tests that both sides ran."""
    return sum(1 for _ in _ran(pair))


def _differ_by_time(pair: Verdicts) -> bool:
    return any(
        (plain == PASSED) != boxed.passed and TIMEOUT in (plain, boxed.outcome) for _, plain, boxed in _ran(pair)
    )


def differences(rows: Sequence[AgreementRow], found: Sequence[Verdicts]) -> list[VerdictDifference]:
    """All tests that both sides ran with different verdicts."""
    return [
        VerdictDifference(row, index, plain, boxed.outcome, boxed.detail or "")
        for row, pair in zip(rows, found, strict=True)
        for index, plain, boxed in _ran(pair)
        if (plain == PASSED) != boxed.passed
    ]
