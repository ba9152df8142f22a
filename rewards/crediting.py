"""Credit for the samples of a training step: the service that the reward manager asks, one a reward worker.

It knows what the pure estimation does not: the siblings of a sample, the cache of scores, the budget that samples
without need leave to others, and the tokens that the steps cover.
"""

import logging
import math
import random
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from rewards.environments import Environment, play
from rewards.extraction import find_block
from rewards.replay import Credits, Plan, Resume, estimate
from rewards.score_cache import ScoreCache
from rewards.tokens import token_offsets, token_steps

logger = logging.getLogger(__name__)

# Verdicts on answers that are kept: the answers of a group come close together, so few are enough.
_ANSWERS = 4096

# What compute_score says of a changed solution of the same problem.
Judge = Callable[[str], Awaitable[Mapping[str, Any]]]


@dataclass(frozen=True)
class Sample:
    """One finished trajectory whose score is known.

    turns: of an agent's trajectory, the tokens [start, end) of each turn of the assistant. answer: the number of the
    turn that is its answer. environment: makes a fresh environment, for the replay of turns. go_on: the policy, from
    the first tokens of the response to new ones after them, and numbers that tell draws after equal tokens apart.
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
    go_on: Callable[[Sequence[int], Sequence[int]], Awaitable[list[int]]] | None = None


@dataclass(frozen=True)
class _Part:
    """What of a sample is looked at: tokens from `first` on, their text, and its assistant turns in characters."""

    first: int
    token_ids: Sequence[int]
    text: str
    turns: Sequence[tuple[int, int]] = ()


@dataclass
class _Spent:
    """What the replays of one sample took, the check for flakiness included: scores asked for, those that the cache
    knew, seconds of sandbox workers for the others, tokens generated.
    """

    requests: int = 0
    cache_hits: int = 0
    busy_seconds: float = 0.0
    generated: int = 0


def reward_of(info: Mapping[str, Any]) -> float:
    """R in [0, 1] that credits are measured in: the share of tests passed where the verifier tells it, else the score.

    NaN when the verification could not be done.
    """
    if info.get("error") == "infrastructure":
        return math.nan
    return float(info["pass_ratio"] if "pass_ratio" in info else info["score"])


class CreditService:
    """Estimates credits and spreads them over tokens; never raises.

    plan: how credits are estimated. board: an object with the method `meet` of `rewards.groups.GroupBoard`.
    skip_equal_groups: a group whose samples all scored the same has no advantage to shape: none of its samples is
    replayed, and each leaves its budget to samples that come later.
    """

    def __init__(
        self, plan: Plan, board: Any, *, skip_equal_groups: bool = True, seed: int = 0, cache_size: int = 65_536
    ):
        self.plan = plan
        self.board = board
        self.skip_equal_groups = skip_equal_groups
        self.seed = seed
        self.cache: ScoreCache[float] = ScoreCache(cache_size)
        self.answers: ScoreCache[Mapping[str, Any]] = ScoreCache(_ANSWERS, lambda info: math.isfinite(reward_of(info)))
        self.saved = 0

    async def verdict(self, group: str, answer: str, judge: Judge) -> dict[str, Any]:
        """What the verifier says of a sample's own answer: asked once for equal answers of a group, which differ in
        nothing that it could see. The others cost no time of sandbox workers; where the first could not be judged, each
        of them asks for itself. Whether a second run says the same is for the check for flakiness, which looks at each
        different answer on its own.
        """
        key = [group, answer]
        known = key in self.answers
        info = await self.answers.score(key, partial(judge, answer))
        if known and not self.answers.judged(info):
            return dict(await judge(answer))
        return {**info, "busy_seconds": 0.0} if known and "busy_seconds" in info else dict(info)

    async def credit(self, sample: Sample, tokenizer: Any, judge: Judge) -> dict[str, Any]:
        """What the trainer needs of one sample, under keys that start with `credit_`; the same keys on every path.

        credit_values (K,) float32, NaN for a step without credit; credit_steps (T,) int32, the step of each response
        token or -1; credit_spans (K, 2) int32, characters of each step; credit_cause and credit_reason, why no step
        has a credit in a word and in words; counts and seconds.
        """
        spent = _Spent()
        try:
            part = self._part(sample, tokenizer)
            resume = _resumer(sample, part, tokenizer, spent) if sample.go_on else None
            found = await self._estimate(sample, part, judge, spent, resume)
            spans, steps = _placed(found, part, sample, tokenizer)
        except Exception as error:  # a credit that cannot be had must not cost the sample its reward
            logger.exception("credit could not be estimated: %s", error)
            cause = f"failed: {type(error).__name__}: {error}"
            found, spans, steps = Credits(cause=cause), [], np.full(len(sample.token_ids), -1, dtype=np.int32)
        return {
            "credit_values": np.asarray(found.values, dtype=np.float32),
            "credit_steps": steps,
            "credit_spans": np.asarray(spans, dtype=np.int32).reshape(-1, 2),
            "credit_cause": found.cause.split(":")[0],
            "credit_reason": found.cause.partition(": ")[2],
            "credit_asked": found.asked,
            "credit_invalid": found.invalid,
            "credit_unjudged": found.unjudged,
            "credit_replays": found.replays,
            "credit_requests": spent.requests,
            "credit_cache_hits": spent.cache_hits,
            "credit_seconds": found.seconds,
            "credit_busy_seconds": spent.busy_seconds,
            "credit_generated": spent.generated,
        }

    def _part(self, sample: Sample, tokenizer: Any) -> _Part:
        """The whole of a trajectory; for steps inside a program, the turn of an agent that is its answer."""
        if not sample.turns:
            return _Part(0, sample.token_ids, sample.text)
        if self.plan.unit == "turn":
            offsets = token_offsets(tokenizer, sample.token_ids)
            turns = [(offsets[start][0], offsets[end - 1][1]) for start, end in sample.turns if end > start]
            return _Part(0, sample.token_ids, sample.text, turns)
        start, end = sample.turns[sample.answer]
        ids = sample.token_ids[start:end]
        return _Part(start, ids, tokenizer.decode(ids, skip_special_tokens=True))

    async def _estimate(
        self, sample: Sample, part: _Part, judge: Judge, spent: _Spent, resume: Resume | None
    ) -> Credits:
        score = reward_of(sample.info)
        siblings: list[Any] = []
        written: str | tuple[str, ...] = part.text
        if part.turns:
            written = tuple(part.text[start:end] for start, end in part.turns)
        if self.skip_equal_groups or self.plan.method == "replace":
            together = await self.board.meet(sample.group, sample.number, score, written)
            if together is not None:
                siblings = [text for _, text in together]
                scores = [value for value, _ in together if math.isfinite(value)]
                if self.skip_equal_groups and len(set(scores)) < 2:
                    self.saved += self.plan.budget
                    return Credits(cause="equal_group")
        if not math.isfinite(score):
            return Credits(cause="masked")

        async def verify(changed: str | tuple[str, ...]) -> float:
            async def run() -> float:
                if isinstance(changed, str):
                    answer = changed
                else:
                    assert sample.environment is not None
                    answer = await play(sample.environment(), changed)
                info = await judge(answer)
                spent.busy_seconds += float(info.get("busy_seconds", 0.0))
                return reward_of(info)

            key = [*sample.problem, *([_program(changed)] if isinstance(changed, str) else ["turns", *changed])]
            spent.requests += 1
            spent.cache_hits += key in self.cache
            return await self.cache.score(key, run)

        return await estimate(
            part.text, verify, self._plan_with_savings(), score=score, rng=self._rng(sample), siblings=siblings,
            turns=part.turns, resume=resume,
        )  # fmt: skip

    def _plan_with_savings(self) -> Plan:
        """The plan with up to twice its budget, as far as others have left theirs."""
        extra = min(self.saved, self.plan.budget)
        self.saved -= extra
        return replace(self.plan, budget=self.plan.budget + extra)

    def _rng(self, sample: Sample) -> random.Random:
        """Choices depend on the seed and on what was written, not on the order in which samples arrive."""
        return random.Random(zlib.crc32("\0".join([str(self.seed), *sample.problem, sample.text]).encode()))


def _placed(found: Credits, part: _Part, sample: Sample, tokenizer: Any) -> tuple[list[tuple[int, int]], np.ndarray]:
    """Spans of the steps in the characters of the whole response, and the step of each of its tokens."""
    spans = [(step.start, step.end) for step in found.steps]
    own = token_steps(token_offsets(tokenizer, part.token_ids), spans)
    steps = np.full(len(sample.token_ids), -1, dtype=np.int32)
    steps[part.first : part.first + len(own)] = own
    shift = token_offsets(tokenizer, sample.token_ids)[part.first][0] if part.first else 0
    return [(start + shift, end + shift) for start, end in spans], steps


def _resumer(sample: Sample, part: _Part, tokenizer: Any, spent: _Spent) -> Resume:
    """Continues the part from any of its characters; counts the tokens that the policy writes for it."""
    offsets = token_offsets(tokenizer, part.token_ids)
    drawn: Counter[int] = Counter()

    async def resume(cut: int) -> str:
        assert sample.go_on is not None
        kept = next((token for token, (_, end) in enumerate(offsets) if end > cut), len(offsets))
        drawn[kept] += 1
        new = await sample.go_on(sample.token_ids[: part.first + kept], (sample.number, drawn[kept]))
        spent.generated += len(new)
        return tokenizer.decode([*part.token_ids[:kept], *new], skip_special_tokens=True)

    return resume


def _program(text: str) -> str:
    """What tells two solutions apart for a verifier: their code, or the whole text where there is none."""
    block = find_block(text, "python")
    return text if block is None else text[slice(*block)]
