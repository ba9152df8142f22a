"""Asks and judges: answers are generated with bounded concurrency while finished ones are judged."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import rewards
from recipe.evaluation.endpoints import Endpoints, ServerError
from recipe.evaluation.episodes import Message, play_episode
from recipe.evaluation.problems import Problem
from recipe.evaluation.protocol import Protocol
from recipe.evaluation.samples import EPISODE_FAILED, TOO_LONG, Answer, Journal, Sample
from recipe.training.settings import AgentsSettings
from rewards.environments import ENVIRONMENTS, Environment, environment_of, first_acceptance
from rewards.settings import JudgeSettings
from rewards.verdict import Verdict


class Collector:
    """Fills a journal with the samples that a protocol asks for; what is there already is not asked again.

    judge: how answers are judged. concurrency: chains of generation at a time; judging: answers
    that are judged at a time. agents: how rows for an agent of ours are answered in several turns; None: in one.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        protocol: Protocol,
        journal: Journal,
        *,
        judge: JudgeSettings | None = None,
        concurrency: int = 64,
        judging: int = 16,
        agents: AgentsSettings | None = None,
    ):
        self.endpoints, self.protocol, self.journal, self.judge = endpoints, protocol, journal, judge or JudgeSettings()
        self.agents = agents
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
                if self.protocol.tokens_left(spent) < 1:
                    return
                sample = await self._sample(problem, number, spent)
                if not sample.settled:
                    tasks.create_task(self._settle(problem, sample))
                # Servers that count no tokens must not make a chain endless.
                spent += max(1, sample.answer.tokens)
                if sample.answer.finish == TOO_LONG:
                    return
        finally:
            self._generating.release()

    async def _sample(self, problem: Problem, number: int, spent: int) -> Sample:
        known = self.journal.samples.get((*problem.key, number))
        if known is not None and known.answer.finish != EPISODE_FAILED:
            return known

        async def ask(messages: Sequence[Message], turn: int, tokens: int) -> Answer | None:
            if (allowed := self.protocol.tokens_left(spent + tokens)) < 1:
                return None
            seed = self.protocol.seed_of(f"{problem.id}/turn{turn}" if turn else problem.id, number)
            return await self.endpoints.ask(messages, self.protocol, seed=seed, max_tokens=allowed)

        if self.agents is not None and problem.agent in ENVIRONMENTS:
            answer = await play_episode(ask, self._environment(problem, self.agents), problem.messages, self.agents)
        else:
            only = await ask(problem.messages, 0, 0)
            assert only is not None  # the chain asks only while tokens are left
            answer = only
        sample = Sample(problem.dataset, problem.id, problem.skill, number, answer, None)
        if sample.settled:
            self.journal.add(sample)
        return sample

    async def _settle(self, problem: Problem, sample: Sample) -> None:
        async with self._judging:
            reward = await self._reward(problem, sample.answer)
        self.journal.add(replace(sample, reward=reward))

    async def _reward(self, problem: Problem, answer: Answer) -> dict[str, Any]:
        async def judge(text: str) -> dict[str, Any]:
            return await rewards.compute_score(problem.verifier, text, problem.ground_truth, None, **vars(self.judge))

        if answer.finish == EPISODE_FAILED:
            return Verdict.not_judged().as_reward()
        reward = await judge(answer.text)
        if answer.conversation:
            first = answer.conversation[0]["content"]
            reward["first_acc"] = await first_acceptance(first, answer.text, answer.first_failed, reward, judge)
        return reward

    def _environment(self, problem: Problem, agents: AgentsSettings) -> Environment:
        return environment_of(
            problem.agent, problem.ground_truth, self.judge,
            feedback=agents.feedback, characters=agents.observation_characters,
        )  # fmt: skip
