"""Generate and judge answers with bounded concurrency, in one turn or several; dump task stacks on a stall."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import rewards
from recipe.evaluation import ServerError
from recipe.evaluation.budgets import Budget
from recipe.evaluation.samples import EPISODE_FAILED, TOO_LONG, Answer, Problem, Sample, SampleJournal
from recipe.evaluation.servers import Endpoints
from recipe.records.run_directory import write_atomically
from recipe.settings import AgentsSettings
from rewards.environments import ENVIRONMENTS, Environment, environment_of, first_acceptance
from rewards.settings import JudgeSettings
from rewards.verdict import Verdict

ChatMessage = dict[str, str]

# One turn of the model, from the messages so far, the number of the turn, and the tokens used by earlier turns. None if
# no tokens are left for it.
Ask = Callable[[Sequence[ChatMessage], int, int], Awaitable[Answer | None]]


async def play_episode(
    ask: Ask, environment: Environment, prompt: Sequence[ChatMessage], agents: AgentsSettings
) -> Answer:
    """Play one episode; return it as one answer: the text of the answering turn, the tokens of all turns.

    Its `finish` is that turn's; TOO_LONG if even the prompt exceeds the context; EPISODE_FAILED if the environment
    could not run, which is not the model's fault.
    """
    turns: list[Answer] = []
    conversation: list[ChatMessage] = []
    while len(turns) < agents.max_turns:
        turn = await ask([*prompt, *conversation], len(turns), sum(one.tokens for one in turns))
        if turn is None or turn.finish == TOO_LONG:
            if turn is not None and not turns:
                return turn
            break
        turns.append(turn)
        conversation.append({"role": "assistant", "content": turn.text})
        try:
            observation = await environment.act(turn.text)
        except Exception:  # the sandbox may raise anything
            return replace(_merge_turns(turns, conversation, environment), finish=EPISODE_FAILED)
        if observation.done:
            break
        conversation.append({"role": agents.role, "content": observation.text})
    return _merge_turns(turns, conversation, environment)


def _merge_turns(turns: Sequence[Answer], conversation: Sequence[ChatMessage], environment: Environment) -> Answer:
    entropies = [(one.entropy, one.tokens) for one in turns if one.entropy is not None]
    tokens = sum(count for _, count in entropies)
    return replace(
        turns[environment.answer],
        tokens=sum(one.tokens for one in turns),
        entropy=sum(value * count for value, count in entropies) / tokens if tokens else None,
        started=turns[0].started,
        ended=turns[-1].ended,
        conversation=list(conversation),
        first_failed=environment.first_failed,
    )


STALL_SECONDS = 180.0
"""Time without a new sample after which the task stacks are dumped."""


async def note_stalls(path: Path, count: Callable[[], int], seconds: float = STALL_SECONDS) -> None:
    """Dump the stacks of all tasks to `path` whenever `count()` has not changed for `seconds`; runs until cancelled."""
    while True:
        before = count()
        await asyncio.sleep(seconds)
        if count() == before:
            stacks = sorted(stack_of(task) for task in asyncio.all_tasks())
            await asyncio.to_thread(write_atomically, path, "\n\n".join(stacks) + "\n")


def stack_of(task: asyncio.Task[Any]) -> str:
    """The stack of a waiting task, innermost frame last."""
    lines = [task.get_name()]
    inner: Any = task.get_coro()
    while inner is not None:
        frames = (getattr(inner, name, None) for name in ("cr_frame", "ag_frame", "gi_frame"))
        frame = next((found for found in frames if found is not None), None)
        if frame is not None:
            lines.append(f"  {frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}")
        inner = next(
            (found for name in ("cr_await", "ag_await", "gi_yieldfrom") if (found := getattr(inner, name, None))), None
        )
    return "\n".join(lines)


class Collector:
    """Fill a journal with the samples of a budget; samples that it already holds are not generated again.

    judge: settings of the judge. concurrency: maximum of concurrent chains of generation; judging: of concurrently
    judged answers. agents: settings for rows of our multi-turn agents; None: answer these rows in one turn.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        budget: Budget,
        journal: SampleJournal,
        *,
        judge: JudgeSettings | None = None,
        concurrency: int = 64,
        judging: int = 16,
        agents: AgentsSettings | None = None,
    ):
        self.endpoints, self.budget, self.journal, self.judge = endpoints, budget, journal, judge or JudgeSettings()
        self.agents = agents
        self._generating, self._judging = asyncio.Semaphore(concurrency), asyncio.Semaphore(judging)

    async def collect(self, problems: Sequence[Problem]) -> None:
        """Return when every sample is in the journal; raise ServerError if all servers have failed."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for problem in problems:
                    for chain in self.budget.chains:
                        await self._generating.acquire()
                        tasks.create_task(self._chain(tasks, problem, chain))
        except* (ServerError, OSError) as group:
            raise group.exceptions[0] from None

    async def _chain(self, tasks: asyncio.TaskGroup, problem: Problem, chain: range | None) -> None:
        """Draw the samples of one problem that share a budget, one after the other."""
        spent = 0
        try:
            for number in self.budget.numbers(chain):
                if self.budget.tokens_left(spent) < 1:
                    return
                sample = await self._sample(problem, number, spent)
                if not sample.settled:
                    tasks.create_task(self._settle(problem, sample))
                # At least 1, so that a chain ends even if the server does not count tokens.
                spent += max(1, sample.answer.tokens)
                if sample.answer.finish == TOO_LONG:
                    return
        finally:
            self._generating.release()

    async def _sample(self, problem: Problem, number: int, spent: int) -> Sample:
        known = self.journal.samples.get((*problem.key, number))
        if known is not None and known.answer.finish != EPISODE_FAILED:
            return known

        async def ask(messages: Sequence[ChatMessage], turn: int, tokens: int) -> Answer | None:
            if (allowed := self.budget.tokens_left(spent + tokens)) < 1:
                return None
            seed = self.budget.seed_of(f"{problem.id}/turn{turn}" if turn else problem.id, number)
            return await self.endpoints.ask(messages, self.budget, seed=seed, max_tokens=allowed)

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
