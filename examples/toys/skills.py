"""What a bound on stored solutions keeps of a skill: `python -m examples.toys skills`.

A small network has seen four skills with errors, as the micro model has: its best guess is mostly right, its samples
often wrong. GRPO sharpens one skill after the other. A skill is a map from three digits to three words; a right answer
has all three. The closed loop (`workers.safe_update`, with corrections) bounds the level J of 16 of 48 stored
solutions; what counts is how often a sample is right on any prompt, which the network gives exactly.
"""

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from recipe.records.intervals import Interval, bootstrap_interval
from workers.safe_update import SafeUpdate
from workers.safety.verification import damp_momentum
from workers.update_request import Constraint, Protection

SKILLS, DIGITS, WORDS, HIDDEN = 4, 3, 6, 96
START_UPDATES, WRONG = 800, 0.18
"""Of the supervised start, and the share of its words that are replaced by any word."""
STAGE_UPDATES, RATE, PROMPTS, SAMPLES = 8, 1e-2, 16, 8
STORED, ANCHORS = 48, 16


@dataclass(frozen=True)
class SkillsRun:
    """Runs of each arm, and the seed of the first."""

    seeds: int
    seed: int = 0


@dataclass(frozen=True)
class SkillsArm:
    """GRPO, with a closed loop (epsilon and gain in nats per answer), or with rehearsal.

    single: gain is asked of the constraint of all solutions (held_out: without the anchors), the only one; else of one
    beside the anchor set's own.
    """

    name: str
    epsilon: float | None = None
    gain: float = 0.0
    held_out: bool = False
    rehearsal: float = 0.0
    single: bool = False


ARMS = (
    SkillsArm("grpo"),
    *(SkillsArm(f"rehearsal, weight {weight:g}", rehearsal=weight) for weight in (0.3, 1.0, 3.0, 10.0)),
    *(SkillsArm(f"closed loop, epsilon {epsilon:g}", epsilon) for epsilon in (0.03, 0.01)),
    *(SkillsArm(f"closed loop, epsilon 0.01, gain {gain:g}", 0.01, gain) for gain in (0.1, 0.3, 1.0)),
    SkillsArm("closed loop, epsilon 0.01, gain 1, one constraint", 0.01, 1.0, single=True),
    *(
        SkillsArm(f"closed loop, held out, epsilon 0.01, gain {gain:g}, one constraint", 0.01, gain, True, single=True)
        for gain in (0.0, 1.0)
    ),
)


@dataclass(frozen=True)
class SkillsResult:
    """Means of an arm: sampled accuracy of each skill at its stage's end and at the end of the run, what the first
    three lost in between (percent), J of their anchor sets less that of the beginning of protection (nats), and steps
    that verification undid (percent)."""

    arm: str
    new_skill: Interval
    final: Interval
    forgotten: Interval
    anchors: Interval
    undone: Interval


@dataclass(frozen=True)
class WordAnswers:
    """Prompts (N, inputs) and words (N, DIGITS)."""

    prompts: Tensor
    words: Tensor

    def __getitem__(self, rows: Any) -> "WordAnswers":
        return WordAnswers(self.prompts[rows], self.words[rows])

    def __len__(self) -> int:
        return len(self.words)


def joined(parts: Sequence[WordAnswers]) -> WordAnswers:
    return WordAnswers(torch.cat([part.prompts for part in parts]), torch.cat([part.words for part in parts]))


class World:
    """Skills: each maps digit t to word t; the first map depends on whether the digits' sum is odd."""

    def __init__(self, seed: int) -> None:
        self.random = torch.Generator().manual_seed(seed)
        shape = (SKILLS, 2, DIGITS, WORDS)
        self.maps = torch.rand(shape, generator=self.random).argsort(-1)

    def problems(self, skill: int, count: int) -> WordAnswers:
        """Random prompts with their right answers."""
        digits = torch.randint(0, WORDS, (count, DIGITS), generator=self.random)
        odd = torch.stack([digits.sum(1) % 2, *[torch.zeros(count, dtype=torch.long)] * (DIGITS - 1)], 1)
        words = self.maps[skill][odd, torch.arange(DIGITS), digits]
        named = torch.zeros(count, SKILLS)
        named[:, skill] = 1
        return WordAnswers(torch.cat([nn.functional.one_hot(digits, WORDS).float().flatten(1), named], 1), words)

    def started(self) -> nn.Sequential:
        """A network after the supervised start on all skills, with errors."""
        torch.manual_seed(int(torch.randint(2**31, (1,), generator=self.random)))
        inputs, outputs = DIGITS * WORDS + SKILLS, DIGITS * WORDS
        layers = (
            nn.Linear(inputs, HIDDEN),
            nn.Tanh(),
            nn.Linear(HIDDEN, HIDDEN),
            nn.Tanh(),
            nn.Linear(HIDDEN, outputs),
        )
        network = nn.Sequential(*layers)
        optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
        for _ in range(START_UPDATES):
            shown = joined([self.problems(skill, 2 * PROMPTS) for skill in range(SKILLS)])
            wrong = torch.rand(shown.words.shape, generator=self.random) < WRONG
            anything = torch.randint(0, WORDS, shown.words.shape, generator=self.random)
            demonstrated = WordAnswers(shown.prompts, torch.where(wrong, anything, shown.words))
            optimizer.zero_grad()
            (-log_likelihoods(network, demonstrated).mean()).backward()
            optimizer.step()
        return network


def log_likelihoods(network: nn.Module, answers: WordAnswers) -> Tensor:
    """(N,) of whole answers, nats."""
    log_probs: Tensor = network(answers.prompts).view(-1, DIGITS, WORDS).log_softmax(-1)
    return log_probs.gather(-1, answers.words[..., None]).squeeze(-1).sum(-1)


@torch.no_grad()
def accuracy(network: nn.Module, right: WordAnswers) -> float:
    """How often a sample is right: the mean probability of the right answers, percent."""
    return 100 * float(log_likelihoods(network, right).exp().mean())


@dataclass
class Protected:
    """Stored solutions of a finished skill; the first ANCHORS are evenly spread over them, and have a level."""

    solutions: WordAnswers
    level: float

    @staticmethod
    def of(network: nn.Module, solutions: WordAnswers) -> "Protected":
        count = len(solutions)
        anchors = [number * count // ANCHORS for number in range(ANCHORS)]
        rest = [row for row in range(count) if row not in set(anchors)]
        ordered = solutions[[*anchors, *rest]]
        return Protected(ordered, level(network, ordered))


@torch.no_grad()
def level(network: nn.Module, solutions: WordAnswers) -> float:
    """J of the anchor set."""
    return float(log_likelihoods(network, solutions[:ANCHORS]).mean())


@dataclass
class Training:
    """One run: the network, its optimiser, finished skills, and counts of verified and undone steps."""

    world: World
    network: nn.Sequential
    arm: SkillsArm
    finished: dict[int, Protected] = field(default_factory=dict)
    verified: int = 0
    undone: int = 0

    def __post_init__(self) -> None:
        self.optimizer = torch.optim.AdamW(self.network.parameters(), lr=RATE)

    def learn(self, skill: int) -> None:
        """A stage of GRPO on one skill; it is protected afterwards."""
        kept: list[WordAnswers] = []
        for _ in range(STAGE_UPDATES):
            samples, advantages, right = self._sampled(skill)
            kept += [samples[rows[-1:]] for rows in right if len(rows)]
            self.optimizer.zero_grad()
            (-(log_likelihoods(self.network, samples) * advantages).mean() / DIGITS).backward()
            nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
            if self.arm.rehearsal and self.finished:
                stored = joined([each.solutions for each in self.finished.values()])
                loss = -self.arm.rehearsal * log_likelihoods(self.network, stored).mean() / DIGITS
                loss.backward()
            self._step()
        self.finished[skill] = Protected.of(self.network, joined(kept[-STORED:]))

    @torch.no_grad()
    def _sampled(self, skill: int) -> tuple[WordAnswers, Tensor, list[Tensor]]:
        """Samples, their advantages (N,), and the rows of each prompt's right ones."""
        asked = self.world.problems(skill, PROMPTS)[torch.arange(PROMPTS).repeat_interleave(SAMPLES)]
        chances = self.network(asked.prompts).view(-1, WORDS).softmax(-1)
        words = torch.multinomial(chances, 1, generator=self.world.random).view(-1, DIGITS)
        reward = (words == asked.words).all(1).float().view(PROMPTS, SAMPLES)
        advantages = (reward - reward.mean(1, keepdim=True)) / (reward.std(1, keepdim=True) + 1e-6)
        right = [SAMPLES * number + torch.nonzero(row).flatten() for number, row in enumerate(reward)]
        return WordAnswers(asked.prompts, words), advantages.flatten(), right

    def _step(self) -> None:
        """The optimiser's step, within the closed loop where the arm has one."""
        if self.arm.epsilon is None or not self.finished:
            self.optimizer.step()
            return
        shards = [parameter.data for parameter in self.network.parameters()]
        sets = [each.solutions for each in self.finished.values()]
        before = self._levels(sets)
        protection = Protection(
            self._constraints(), "qp", self.arm.epsilon, "absolute", closed_loop=True, tries=6, corrections=3
        )
        update = SafeUpdate(protection, self._constraint_gradients(sets), [shard.clone() for shard in shards])
        update.record_levels(before)
        update.verify(before, 6)
        assert update.verification is not None
        self.optimizer.step()
        with torch.no_grad():
            update.after_step(shards)
            measure, correct = partial(self._levels, sets), partial(update.correct, shards)
            damp_momentum(self.optimizer, update.verification.after_step(update.start, shards, measure, correct))
        self.verified += 1
        self.undone += update.verification.undone

    @property
    def single(self) -> bool:
        """Whether each skill has one constraint."""
        return self.arm.single or not self.arm.gain

    def _constraints(self) -> list[Constraint]:
        bounds = [Constraint(str(skill), skill, [], anchor=each.level) for skill, each in self.finished.items()]
        if self.single:
            return [replace(bound, gain=self.arm.gain) for bound in bounds]
        return [*bounds, *(bound.asking(self.arm.gain, []) for bound in bounds)]

    def _levels(self, sets: Sequence[WordAnswers]) -> list[float]:
        """J of each constraint, NaN of those that go by another's."""
        levels = [level(self.network, each) for each in sets]
        return levels if self.single else [*levels, *[math.nan] * len(sets)]

    def _constraint_gradients(self, sets: Sequence[WordAnswers]) -> list[Tensor]:
        """(S, *shape) of each parameter: of the mean log-likelihood of each constraint's solutions."""
        parameters = list(self.network.parameters())
        chosen = [each[ANCHORS:] if self.arm.held_out else each for each in sets]
        if not self.single:
            chosen = [*(each[:ANCHORS] for each in sets), *sets]
        rows = [torch.autograd.grad(log_likelihoods(self.network, each).mean(), parameters) for each in chosen]
        return [torch.stack(parts) for parts in zip(*rows, strict=True)]


def outcome(arm: SkillsArm, world: World, network: nn.Sequential) -> tuple[float, float, float, float, float]:
    """The numbers of a `SkillsResult`, of one run."""
    world = copy.deepcopy(world)
    tests = [world.problems(skill, 1000) for skill in range(SKILLS)]
    training = Training(world, copy.deepcopy(network), arm)
    ended = []
    for skill in range(SKILLS):
        training.learn(skill)
        ended.append(accuracy(training.network, tests[skill]))
    final = [accuracy(training.network, test) for test in tests]
    lost = [before - after for before, after in zip(ended[:-1], final[:-1], strict=True)]
    of_levels = [level(training.network, each.solutions) - each.level for each in list(training.finished.values())[:-1]]
    undone = 100 * training.undone / max(training.verified, 1)
    return _mean(ended), _mean(final), _mean(lost), _mean(of_levels), undone


def study(run: SkillsRun, arms: Sequence[SkillsArm] = ARMS) -> Iterator[SkillsResult]:
    """Every arm from the same starts."""
    seeds = range(run.seed, run.seed + run.seeds)
    starts = [(world, world.started()) for world in map(World, seeds)]
    for arm in arms:
        columns = zip(*(outcome(arm, *start) for start in starts), strict=True)
        yield SkillsResult(arm.name, *(bootstrap_interval(column) for column in columns))


def table(results: Sequence[SkillsResult]) -> str:
    """A row per arm."""
    head = ("arm", "new skill (%)", "final average (%)", "forgotten (points)", "J of the anchors (nats)", "undone (%)")
    lines = [f"|{'|'.join(head)}|", f"|---|{'---:|' * 5}"]
    for row in results:
        shares = [column.text(1) for column in (row.new_skill, row.final, row.forgotten)]
        lines.append(f"|{'|'.join([row.arm, *shares, row.anchors.text(2), row.undone.text(1)])}|")
    return "\n".join(lines)


def record(run: SkillsRun, results: Sequence[SkillsResult]) -> dict[str, Any]:
    """The run and its results as JSON."""
    return {"run": asdict(run), "results": [asdict(row) for row in results]}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
