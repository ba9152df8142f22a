"""Credit for the samples of a training step: the reward manager's service, one per reward worker.

It adds to the pure estimation (`replay`) the siblings of a sample, the cache of scores, the budget that skipped samples
leave to others, and the tokens that the steps cover.
"""

import logging
import math
import random
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from rewards.analysis.local_names import names_in
from rewards.counterfactual.groups import GroupAdvantage
from rewards.counterfactual.interventions import WrittenSolution
from rewards.counterfactual.judging import Answers, AnswerScorer, ScoreCache, judged, reward_of
from rewards.counterfactual.plan import Plan
from rewards.counterfactual.replay import Credits, estimate
from rewards.counterfactual.replayer import Outcome, Resume, TimedOut
from rewards.counterfactual.siblings import Sibling
from rewards.counterfactual.step_keys import state_keys
from rewards.counterfactual.tokens import token_offsets, token_steps
from rewards.environments import Environment, play
from rewards.sample_credit import SampleCredit
from rewards.sandbox.client.accounting import at_most, counted

logger = logging.getLogger(__name__)

# Samples of a reward worker that may wait for siblings at once. Ray runs 1,000 calls of an actor at a time: if all of
# them waited, no sibling could arrive.
_WAITING = 800


@dataclass(frozen=True)
class RolloutSample:
    """One finished trajectory whose score is known.

    turns: for an agent, the tokens [start, end) of each assistant turn. answer: index of the turn that is its answer.
    environment: makes a fresh environment, for the replay of turns. continue_prefix: the policy; maps the first tokens
    of the response to new tokens after them, with numbers that distinguish draws after equal tokens. reads: the parts
    of a text that its score depends on; texts equal in them have the same score. step: the training step.
    """

    group: str
    number: int
    problem: Sequence[str]
    text: str
    token_ids: Sequence[int]
    info: Mapping[str, Any]
    turns: Sequence[tuple[int, int]] = ()
    answer: int = -1
    environment: Callable[[], Environment] | None = None
    continue_prefix: Callable[[Sequence[int], Sequence[int]], Awaitable[list[int]]] | None = None
    reads: Callable[[str], Sequence[str]] = lambda text: [text]
    step: int = 0


@dataclass(frozen=True)
class _Part:
    """The part of a sample that gets credit: tokens from `first` on, their text, its assistant turns in characters."""

    first: int
    token_ids: Sequence[int]
    text: str
    turns: Sequence[tuple[int, int]] = ()


@dataclass
class _Spent:
    """Cost of the replays of one sample, the check for flakiness included; fields as in `SampleCredit`."""

    requests: int = 0
    cache_hits: int = 0
    busy_seconds: float = 0.0
    generated: int = 0
    unmet: int = 0


@dataclass(frozen=True)
class _CachedVerifier:
    """Scores changed solutions of one sample, through the cache; counts the cost in `spent`.

    limit: time limit of each run of a replay, in seconds. own_timeouts: how many of its runs may hit it.
    """

    sample: RolloutSample
    judge: AnswerScorer
    cache: ScoreCache[tuple[Outcome, int]]
    spent: _Spent
    limit: float
    own_timeouts: float

    async def __call__(self, changed: WrittenSolution, measured: bool = False, new: bool = False) -> Outcome:
        """The outcome of a changed solution, measured: with the statements that were executed; or raises TimedOut.

        new: an answer of the policy, which is judged as the answers of the step are: a run over the verifier's own time
        limit is a failed test. Left out, slow continuations would raise the value of the prefix.
        """
        limit = math.inf if new else self.limit
        read = self.sample.reads(changed) if isinstance(changed, str) else ["turns", *changed]
        key = [*self.sample.problem, str(limit), *(["measured"] if measured else []), *read]
        self.spent.requests += 1
        self.spent.cache_hits += key in self.cache
        outcome, timeouts = await self.cache.score(key, partial(self._run, changed, measured, limit))
        if timeouts > self.own_timeouts and not new:
            raise TimedOut
        return outcome

    async def _run(self, changed: WrittenSolution, measured: bool, limit: float) -> tuple[Outcome, int]:
        """The outcome without the cache, and how many of its runs hit the limit."""
        if isinstance(changed, str):
            answer = changed
        else:
            assert self.sample.environment is not None
            with counted() as busy:
                answer = await play(self.sample.environment(), changed)
            self.spent.busy_seconds += busy.seconds
        with at_most(limit):
            judgement = await judged(self.judge, answer, measured=measured)
        self.spent.busy_seconds += judgement.seconds
        return judgement.outcome, judgement.timeouts


class CreditService:
    """Estimates credits and maps them to tokens; never raises.

    plan: settings of the estimation. board: an object with the method `meet` of `groups.GroupBoard`.
    has_advantage: whether a group with these scores has an advantage to shape. If not, its samples are not replayed and
    leave their budget to later samples of the step. None: every group is replayed.
    """

    def __init__(
        self,
        plan: Plan,
        board: Any,
        *,
        has_advantage: GroupAdvantage | None = None,
        seed: int = 0,
        cache_size: int = 65_536,
    ):
        self.plan = plan
        self.board = board
        self.has_advantage = has_advantage
        self.seed = seed
        # Outcomes of changed solutions, and how many of their runs hit a time limit.
        self.cache: ScoreCache[tuple[Outcome, int]] = ScoreCache(
            cache_size, lambda scored: math.isfinite(scored[0].score)
        )
        self.answers = Answers()
        self.saved = 0
        self._saved_in = 0
        self._waiting = 0

    async def credit(self, sample: RolloutSample, tokenizer: Any, judge: AnswerScorer) -> SampleCredit:
        """The credits of one sample, for the trainer."""
        spent = _Spent()
        try:
            part = self._part(sample, tokenizer)
            resume = _resumer(sample, part, tokenizer, spent) if sample.continue_prefix else None
            answer = sample.group, _answer(sample, tokenizer)
            limits = self.answers.replay_limit(*answer), self.answers.timeouts(*answer)
            own = Outcome(reward_of(sample.info), self.answers.tests(*answer))
            credits = await self._estimate(sample, part, judge, spent, resume, limits, own)
            spans, steps = _placed(credits, part, sample, tokenizer)
        except Exception as error:  # a failed estimate must not cost the sample its reward
            logger.exception("credit could not be estimated: %s", error)
            cause = f"failed: {type(error).__name__}: {error}"
            credits, spans, steps = Credits(cause=cause), [], np.full(len(sample.token_ids), -1, dtype=np.int32)
        return SampleCredit(
            values=np.asarray(credits.values, dtype=np.float32), keys=list(credits.keys),
            tests=np.asarray(credits.tests, dtype=np.float32), whole=np.asarray(credits.whole, dtype=np.float32),
            steps=steps, spans=np.asarray(spans, dtype=np.int32).reshape(-1, 2),
            replayed=[replay._asdict() for replay in credits.replayed],
            cause=credits.cause.split(":")[0], reason=credits.cause.partition(": ")[2],
            unparsable=credits.unparsable, equal_steps=credits.equal, unreached=credits.unreached,
            unexecuted=credits.unexecuted, asked=credits.asked, invalid=credits.invalid, unjudged=credits.unjudged,
            timeouts=credits.timeouts, replays=credits.replays, seconds=credits.seconds, **vars(spent),
        )  # fmt: skip

    def _part(self, sample: RolloutSample, tokenizer: Any) -> _Part:
        """The whole trajectory; for an agent with steps inside a program, the turn that is its answer."""
        if self.plan.unit == "token":
            return self._tokens_part(sample, tokenizer)
        if not sample.turns:
            return _Part(0, sample.token_ids, sample.text)
        if self.plan.unit == "turn":
            offsets = token_offsets(tokenizer, sample.token_ids)
            turns = [(offsets[start][0], offsets[end - 1][1]) for start, end in sample.turns if end > start]
            return _Part(0, sample.token_ids, sample.text, turns)
        start, end = sample.turns[sample.answer]
        return _Part(start, sample.token_ids[start:end], _answer(sample, tokenizer))

    def _tokens_part(self, sample: RolloutSample, tokenizer: Any) -> _Part:
        """The answer, with the characters of its tokens; of tokens that share a character the first one has it."""
        first, end = sample.turns[sample.answer] if sample.turns else (0, len(sample.token_ids))
        token_ids = sample.token_ids[first:end]
        spans, position = [], 0
        for start, stop in token_offsets(tokenizer, token_ids):
            if position <= start < stop:
                spans.append((start, stop))
                position = stop
        return _Part(first, token_ids, _answer(sample, tokenizer), spans)

    async def _estimate(
        self,
        sample: RolloutSample,
        part: _Part,
        judge: AnswerScorer,
        spent: _Spent,
        resume: Resume | None,
        limits: tuple[float, float],
        own: Outcome,
    ) -> Credits:
        """limits: time limit of each run of a replay, in seconds, and how many of its runs may hit it. own: the
        outcome of the sample itself.
        """
        siblings = await self._siblings(sample, part, own, spent)
        if not math.isfinite(own.score):
            return Credits(cause="masked")
        if siblings is not None and self.has_advantage is not None:
            scores = [value for value, _ in siblings if math.isfinite(value)]
            if not self.has_advantage(scores):
                self._save(sample.step, self.plan.budget)
                return Credits(cause="equal_group")

        verify = _CachedVerifier(sample, judge, self.cache, spent, *limits)
        return await estimate(
            part.text, verify, self._plan_with_savings(sample.step), score=own, rng=self._rng(sample),
            shared="\0".join(map(str, (self.seed, sample.step, *sample.problem))),
            siblings=[sibling for _, sibling in siblings or []], asked=_names_in(*sample.problem[1:]),
            turns=part.turns, resume=resume, judge_new=partial(verify, new=True),
            measure=partial(verify, measured=True) if self.plan.coverage else None,
        )  # fmt: skip

    async def _siblings(
        self, sample: RolloutSample, part: _Part, own: Outcome, spent: _Spent
    ) -> list[tuple[float, Sibling]] | None:
        """Scores and solutions of the sample's group; None if they are not needed or arrive too late."""
        if self.has_advantage is None and not self.plan.needs_siblings:
            return None
        written = Sibling(part.text, own.score, tests=own.tests)
        if part.turns:
            actions = [(start, end) for start, end in part.turns if part.text[start:end].strip()]
            texts = tuple(part.text[start:end] for start, end in actions)
            written = Sibling(texts, own.score, tuple(state_keys(part.text, actions)), own.tests)
        score = math.nan if math.isnan(own.score) else float(sample.info["score"])
        may_wait = self._waiting < _WAITING
        self._waiting += 1
        try:
            together: list[tuple[float, Sibling]] | None = await self.board.meet(
                sample.group, sample.number, score, written, may_wait
            )
        finally:
            self._waiting -= 1
        spent.unmet = int(together is None)
        return together

    def _save(self, step: int, replays: int) -> None:
        """Leave replays to other samples of this step only: no step may exceed the sum of its samples' budgets."""
        if step != self._saved_in:
            self._saved_in, self.saved = step, 0
        self.saved += replays

    def _plan_with_savings(self, step: int) -> Plan:
        """The plan with up to twice its budget, from replays that other samples of this step have left."""
        self._save(step, 0)
        extra = min(self.saved, self.plan.budget)
        self.saved -= extra
        return replace(self.plan, budget=self.plan.budget + extra)

    def _rng(self, sample: RolloutSample) -> random.Random:
        """Random choices that depend on the seed and the text, not on the order in which samples arrive."""
        return random.Random(zlib.crc32("\0".join([str(self.seed), *sample.problem, sample.text]).encode()))


@lru_cache(maxsize=256)
def _names_in(*texts: str) -> frozenset[str]:
    """The names that the ground truth of a problem mentions, such as those of its tests."""
    return frozenset(names_in(" ".join(texts).replace("\\n", " ")))


def _answer(sample: RolloutSample, tokenizer: Any) -> str:
    """The text that was judged: for an agent, the turn that is its answer."""
    if not sample.turns:
        return sample.text
    start, end = sample.turns[sample.answer]
    return str(tokenizer.decode(sample.token_ids[start:end], skip_special_tokens=True))


def _placed(
    credits: Credits, part: _Part, sample: RolloutSample, tokenizer: Any
) -> tuple[list[tuple[int, int]], np.ndarray]:
    """Spans of the steps in characters of the whole response, and the step of each of its tokens."""
    spans = [(step.start, step.end) for step in credits.steps]
    part_steps = token_steps(token_offsets(tokenizer, part.token_ids), spans)
    steps = np.full(len(sample.token_ids), -1, dtype=np.int32)
    steps[part.first : part.first + len(part_steps)] = part_steps
    shift = token_offsets(tokenizer, sample.token_ids)[part.first][0] if part.first else 0
    return [(start + shift, end + shift) for start, end in spans], steps


def _resumer(sample: RolloutSample, part: _Part, tokenizer: Any, spent: _Spent) -> Resume:
    """A function that continues the part from any character; counts the tokens that the policy generates."""
    offsets = token_offsets(tokenizer, part.token_ids)
    drawn: Counter[int] = Counter()

    async def resume(cut: int) -> str:
        assert sample.continue_prefix is not None
        length = next((token for token, (_, end) in enumerate(offsets) if end > cut), len(offsets))
        drawn[length] += 1
        prefix = sample.token_ids[: part.first + length]
        new = await sample.continue_prefix(prefix, (sample.number, drawn[length]))
        spent.generated += len(new)
        text: str = tokenizer.decode([*part.token_ids[:length], *new], skip_special_tokens=True)
        return text

    return resume
