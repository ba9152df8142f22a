"""Asks and judges: answers are generated with bounded concurrency while finished ones are judged."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import rewards
from recipe.evaluation.endpoints import Endpoints, ServerError
from recipe.evaluation.problems import Problem
from recipe.evaluation.protocol import Protocol
from recipe.evaluation.samples import TOO_LONG, Journal, Sample


class Collector:
    """Fills a journal with the samples that a protocol asks for; what is there already is not asked again.

    judge: fields of rewards.registry.JudgeSettings. concurrency: chains of generation at a time; judging: answers
    that are judged at a time.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        protocol: Protocol,
        journal: Journal,
        *,
        judge: dict[str, Any] | None = None,
        concurrency: int = 64,
        judging: int = 16,
    ):
        self.endpoints, self.protocol, self.journal, self.judge = endpoints, protocol, journal, judge or {}
        self._generating, self._judging = asyncio.Semaphore(concurrency), asyncio.Semaphore(judging)

    async def collect(self, problems: Sequence[Problem]) -> None:
        """Returns when every sample is in the journal; raises ServerError when no server answers any more."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for problem in problems:
                    for chain in self.protocol.chains:
                        await self._generating.acquire()
                        tasks.create_task(self._chain(tasks, problem, chain))
        except* (ServerError, OSError) as group:
            raise group.exceptions[0] from None

    async def _chain(self, tasks: asyncio.TaskGroup, problem: Problem, chain: range | None) -> None:
        """Samples of one problem that depend on each other, because they share a budget."""
        spent = 0
        try:
            for number in self.protocol.numbers(chain):
                if (allowed := self.protocol.tokens_left(spent)) < 1:
                    return
                sample = await self._sample(problem, number, allowed)
                if not sample.settled:
                    tasks.create_task(self._settle(problem, sample))
                # Servers that count no tokens must not make a chain endless.
                spent += max(1, sample.answer.tokens)
                if sample.answer.finish == TOO_LONG:
                    return
        finally:
            self._generating.release()

    async def _sample(self, problem: Problem, number: int, allowed: int) -> Sample:
        known = self.journal.samples.get((*problem.key, number))
        if known is not None:
            return known
        seed = self.protocol.seed_of(problem.id, number)
        answer = await self.endpoints.ask(problem.messages, self.protocol, seed=seed, max_tokens=allowed)
        sample = Sample(problem.dataset, problem.id, problem.skill, number, answer, None)
        if sample.settled:
            self.journal.add(sample)
        return sample

    async def _settle(self, problem: Problem, sample: Sample) -> None:
        async with self._judging:
            reward = await rewards.compute_score(
                problem.verifier, sample.answer.text, problem.ground_truth, None, **self.judge
            )
        self.journal.add(replace(sample, reward=reward))
