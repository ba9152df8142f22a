"""Credit per turn of an agent: `python -m examples.toys turns`.

An agent has three turns to write a program of four lines; it stops when all are right. The reward is all or nothing,
and a program with two or three right lines passes half of the tests. The first attempt is often right, later ones
seldom; most of what the policy knows, the turns share. So it matters how large the advantages of first turns, which all
samples of a prompt have in common, are beside those of later turns, which mostly nobody else was in; their common size
does not: a step is divided by the norm of the gradient, as Adam's hardly depends on it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from recipe.records.intervals import Interval, bootstrap_interval
from workers.credit import shape_advantages, state_advantages

LINES, WORDS, TURNS = 4, 4, 3
FIRST, LATER = 0.85, 0.55
"""Chance that a line is right at the start, in the first attempt and in later ones."""
PROMPTS, SAMPLES = 8, 8
OWN = 0.3
"""What a turn learns for itself, beside what it learns for all."""
RATES = (0.05, 0.12)


@dataclass(frozen=True)
class TurnsRun:
    """Runs of each arm, updates of each, and the seed of the first."""

    seeds: int = 40
    updates: int = 24
    seed: int = 0


@dataclass(frozen=True)
class TurnsArm:
    """GRPO, GiGPO, or credit by truncation with a strength, of the share of tests or all or nothing."""

    name: str
    strength: float = 0.0
    all_or_nothing: bool = False


ARMS = (
    TurnsArm("grpo"),
    TurnsArm("gigpo"),
    TurnsArm("credit, strength 1", 1.0),
    TurnsArm("credit, strength 2", 2.0),
    TurnsArm("credit, strength 1, all or nothing", 1.0, True),
    TurnsArm("credit, strength 2, all or nothing", 2.0, True),
)


@dataclass(frozen=True)
class TurnsResult:
    """Means over updates 2 to the last, in percent, and root mean square advantages of the first update.

    ahead: of `episodes`, less GRPO's of the same seed.
    """

    arm: str
    rate: float
    episodes: Interval
    ahead: Interval
    first_turns: Interval
    first_size: Interval
    later_size: Interval


@dataclass(frozen=True)
class Episodes:
    """Samples of the prompts: words (B, TURNS, LINES); taken (B, TURNS), whether a turn took place; ratio (B, TURNS),
    the share of tests that its program passes, NaN without one."""

    words: Tensor
    taken: Tensor
    ratio: Tensor

    @property
    def last(self) -> Tensor:
        """Share of tests that the last program passes (B,)."""
        return self.ratio.gather(1, self.taken.sum(1, keepdim=True) - 1).squeeze(1)

    @property
    def group(self) -> Tensor:
        """The prompt of each sample (B,)."""
        return torch.arange(len(self.words)) // SAMPLES

    @property
    def states(self) -> Tensor:
        """Numbers of what was seen before each turn (B, TURNS), equal within a group alone; -1 for no turn."""
        earlier = torch.ones(TURNS, TURNS, dtype=torch.bool).tril(-1)
        past = self.words[:, None].masked_fill(~earlier[:, :, None], -1).flatten(2)
        seen = torch.cat([self.group[:, None, None].expand(-1, TURNS, 1), past], 2)
        numbers: Tensor = seen.flatten(0, 1).unique(dim=0, return_inverse=True)[1]
        return numbers.view(len(self.words), TURNS).masked_fill(~self.taken, -1)


def study(run: TurnsRun) -> Iterator[TurnsResult]:
    """Every arm at every rate, on the same seeds."""
    for rate in RATES:
        found = [
            torch.tensor([learn(arm, rate, run.updates, run.seed + number) for number in range(run.seeds)])
            for arm in ARMS
        ]
        for arm, one in zip(ARMS, found, strict=True):
            columns = [one[:, 0], one[:, 0] - found[0][:, 0], *one.T[1:]]
            yield TurnsResult(arm.name, rate, *(bootstrap_interval(column.double().numpy()) for column in columns))


def learn(arm: TurnsArm, rate: float, updates: int, seed: int) -> tuple[float, float, float, float]:
    """One run: the numbers of a `TurnsResult`."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.stack([_start(FIRST), *[_start(LATER)] * (TURNS - 1)])
    right, first, sizes = [], [], (0.0, 0.0)
    for update in range(updates):
        episodes = sample(logits, generator)
        advantages = turn_advantages(arm, episodes)
        if update == 0:
            sizes = _size(advantages[:, :1]), _size(advantages[:, 1:][episodes.taken[:, 1:]])
        right.append(float((episodes.last == 1).float().mean()))
        first.append(float((episodes.ratio[:, 0] == 1).float().mean()))
        gradient = _gradient(logits, episodes, advantages)
        shared = gradient.sum(0, keepdim=True)
        later = gradient[1:].sum(0, keepdim=True).expand(TURNS - 1, -1, -1)
        own = torch.cat([gradient[:1], later])
        length = (shared.square().sum() + gradient[0].square().sum() + later[0].square().sum()).sqrt() + 1e-8
        logits = logits + rate * (shared + OWN * own) / length
    return 100 * _mean(right[1:]), 100 * _mean(first[1:]), *sizes


def sample(logits: Tensor, generator: torch.Generator) -> Episodes:
    """Episodes of PROMPTS x SAMPLES under logits (TURNS, LINES, WORDS), whose word 0 is right."""
    count, chances = PROMPTS * SAMPLES, logits.softmax(-1).flatten(0, 1)
    drawn = torch.multinomial(chances, count, replacement=True, generator=generator)
    words = drawn.T.view(count, TURNS, LINES)
    right = (words == 0).sum(-1)
    taken = torch.cat([torch.ones(count, 1, dtype=torch.bool), (right[:, :-1] < LINES).cumprod(1) > 0], 1)
    ratio = torch.where(right == LINES, 1.0, torch.where(right >= LINES / 2, 0.5, 0.0))
    return Episodes(words, taken, ratio.masked_fill(~taken, torch.nan))


def turn_advantages(arm: TurnsArm, episodes: Episodes) -> Tensor:
    """Advantage of each turn (B, TURNS), a turn's tokens counted as one; 0 for no turn."""
    group, taken = episodes.group, episodes.taken
    score = (episodes.last == 1).float().view(PROMPTS, SAMPLES)
    grpo = ((score - score.mean(1, keepdim=True)) / (score.std(1, keepdim=True) + 1e-6)).view(-1, 1) * taken
    step_ids = torch.arange(TURNS).expand_as(taken).masked_fill(~taken, -1)
    if arm.name == "gigpo":
        after = taken.sum(1, keepdim=True) - 1 - torch.arange(TURNS)
        returns = (0.95**after * episodes.last[:, None]).masked_fill(~taken, torch.nan)
        return state_advantages(grpo, returns, step_ids, taken, episodes.states, weight=1.0)[0]
    if not arm.strength:
        return grpo
    value = (episodes.ratio == 1).float().masked_fill(~taken, torch.nan) if arm.all_or_nothing else episodes.ratio
    gains = torch.diff(value, dim=1, prepend=torch.zeros(len(value), 1))
    return shape_advantages(
        grpo, gains, step_ids, taken, strength=arm.strength, mapping="redistribute", normalization="siblings",
        groups=group, step_keys=episodes.states, rewards=episodes.last, zero_advantage=True, relative=True,
    )[0]  # fmt: skip


def table(results: Sequence[TurnsResult]) -> str:
    """A row per rate and arm."""
    what = ("episodes right (%)", "ahead of GRPO", "first turns right (%)", "A: first turns", "A: later turns")
    head = ("rate", "arm", *what)
    lines = [f"|{'|'.join(head)}|", f"|---|---|{'---:|' * 5}"]
    for row in results:
        shares = [column.text(1) for column in (row.episodes, row.ahead, row.first_turns)]
        cells = [f"{row.rate:g}", row.arm, *shares, row.first_size.text(2), row.later_size.text(2)]
        lines.append(f"|{'|'.join(cells)}|")
    return "\n".join(lines)


def record(run: TurnsRun, results: Sequence[TurnsResult]) -> dict[str, Any]:
    """The run and its results as JSON."""
    return {"run": asdict(run), "results": [asdict(row) for row in results]}


def _start(chance: float) -> Tensor:
    """Logits (LINES, WORDS) with that chance of word 0, and equal ones of the others."""
    logits = torch.zeros(LINES, WORDS)
    logits[:, 0] = torch.tensor(chance * (WORDS - 1) / (1 - chance)).log()
    return logits


def _gradient(logits: Tensor, episodes: Episodes, advantages: Tensor) -> Tensor:
    """Of the mean over samples of the mean over turns and lines of A log p, as for logits (TURNS, LINES, WORDS)."""
    logits = logits.detach().requires_grad_()
    every = logits.log_softmax(-1).expand(len(advantages), -1, -1, -1)
    chosen = every.gather(-1, episodes.words[..., None]).squeeze(-1)
    each = (advantages[:, :, None] * chosen).mean(2).sum(1) / episodes.taken.sum(1)
    (gradient,) = torch.autograd.grad(each.mean(), logits)
    return gradient


def _size(values: Tensor) -> float:
    return float(values.square().mean().sqrt())


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
