"""GRPO on a planted causal problem with a tabular softmax policy, many seeds at once, with and without credit.

Shapes: N seeds, G samples of the group, T steps of a solution, C rows of the table, V actions.

In a planted causal problem, solutions have a few steps whose true credits are known. A step is one action. In row c of
the policy's table, action c (modulo the number of actions) is right and the next one harmful; a deleted step is
neither. Rewards are multilinear in these properties of the steps, and a tabular policy draws the steps independently,
so the same formula applied to probabilities is the expected reward.

Credits shape advantages by `workers.credit.shape_advantages` with its defaults, with one token per step.

The study of `python -m examples.toys credit` is at the end: updates that each arm needs on each problem.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from recipe.records.intervals import Interval, bootstrap_interval, share_interval
from workers import credit

Array = NDArray[np.float64]


def group_advantages(rewards: Array, tolerance: float = 1e-6) -> Array:
    """(r - mean) / (std + tolerance) over the last axis, the group (GRPO, Shao et al. 2024, arXiv 2402.03300)."""
    deviation = rewards - rewards.mean(-1, keepdims=True)
    advantages: Array = deviation / (rewards.std(-1, ddof=1, keepdims=True) + tolerance)
    return advantages


def shape_advantages(advantages: Array, credits: Array, strength: float) -> Array:
    """Advantages per step (..., steps), from advantages (...) and credits (..., steps)."""
    plain = np.broadcast_to(advantages[..., None], credits.shape).reshape(-1, credits.shape[-1])
    shaped, _ = credit.shape_advantages(
        torch.tensor(plain), torch.tensor(credits.reshape(plain.shape)),
        torch.arange(credits.shape[-1]).expand(plain.shape), torch.ones(plain.shape, dtype=torch.bool),
        strength=strength,
    )  # fmt: skip
    found: Array = shaped.numpy().reshape(credits.shape)
    return found


STEPS = 8
# Weights of the steps in the additive problem; they add up to 1.
WEIGHTS = np.array([0.3, 0.2, 0.1, 0.1, 0.1, 0.1, 0.05, 0.05])
# Share of the reward that is lost by a harmful step.
HARM = 0.5


@dataclass(frozen=True)
class CausalProblem:
    """A planted problem and its reward.

    reward: from right and harmful (..., STEPS), 0 or 1 (or probabilities), to the reward (...) in [0, 1].
    actions: number of actions per step.
    copies: each step reads a random row of the table, given by the prompt, instead of its own row.
    """

    name: str
    reward: Callable[[Array, Array], Array]
    actions: int = 4
    copies: bool = False


def _both(right: Array, harmful: Array) -> Array:
    return right[..., 0] * right[..., 1]


def _either(right: Array, harmful: Array) -> Array:
    return 1 - (1 - right[..., 0]) * (1 - right[..., 1])


def _weighted(right: Array, harmful: Array) -> Array:
    rewards: Array = right @ WEIGHTS
    return rewards


def _spoiled(right: Array, harmful: Array) -> Array:
    rewards: Array = right[..., :3].mean(-1) * (1 - HARM * harmful[..., 3])
    return rewards


def _copied(right: Array, harmful: Array) -> Array:
    rewards: Array = right.mean(-1)
    return rewards


PROBLEMS = (
    CausalProblem("and", _both),
    CausalProblem("or", _either),
    CausalProblem("additive", _weighted),
    CausalProblem("harmful step", _spoiled),
    CausalProblem("copy bandit", _copied, actions=STEPS, copies=True),
)


def delete_credits(problem: CausalProblem, right: Array, harmful: Array) -> Array:
    """c_t = R(solution) - R(solution without step t), by replaying each deletion: (..., STEPS)."""
    reward = problem.reward(right, harmful)
    credits = np.empty(right.shape)
    for step in range(STEPS):
        kept = np.arange(STEPS) != step
        credits[..., step] = reward - problem.reward(right * kept, harmful * kept)
    return credits


Indices = NDArray[np.int64]


@dataclass(frozen=True)
class CreditRun:
    """Training settings: one prompt and `group` samples per update, until the expected reward reaches `solved`.

    seeds: independent runs; the same `seed` gives every arm the same random numbers, so arms can be compared in pairs.
    limit: maximum number of updates.
    """

    seeds: int = 300
    group: int = 8
    learning_rate: float = 1.0
    strength: float = 1.0
    solved: float = 0.9
    limit: int = 200
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("seeds", 1), ("group", 2), ("limit", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be >= {least}, got {getattr(self, name)}")
        if not (self.learning_rate > 0 and self.strength >= 0 and 0 < self.solved <= 1):
            raise ValueError(f"need learning_rate > 0, strength >= 0 and 0 < solved <= 1, got {self}")


def _shuffle(credits: Array, rng: np.random.Generator) -> Array:
    return rng.permuted(credits, axis=-1)


CreditChange = Callable[[Array, np.random.Generator], Array]


@dataclass(frozen=True)
class Arm:
    """A method: its change of the true credits (None: it uses no credits), and its multiple of the learning rate."""

    change: CreditChange | None = None
    rate: float = 1.0

    @property
    def verifier_calls(self) -> int:
        """Verifier calls per solution: one for itself, and with credit one replay per step."""
        return 1 if self.change is None else 1 + STEPS


ARMS = {
    "GRPO": Arm(),
    "credit": Arm(lambda credits, rng: credits),
    "shuffled credit": Arm(_shuffle),
    "inverted credit": Arm(lambda credits, rng: -credits),
    # A control for the size of the update: strength 1 adds up to 1 to advantages whose size is about 1.
    "GRPO, twice the rate": Arm(rate=2.0),
}


def steps_to_solve(problem: CausalProblem, arm: Arm, run: CreditRun) -> Indices:
    """Updates (N,) until the policy's expected reward reaches `run.solved`; `run.limit` + 1 if it never does."""
    sampling, shuffling = (np.random.default_rng([run.seed, stream]) for stream in range(2))
    logits_N_C_V = np.zeros((run.seeds, STEPS, problem.actions))
    needed = np.full(run.seeds, run.limit + 1)
    for update in range(run.limit + 1):
        solved = expected_reward(problem, logits_N_C_V) >= run.solved
        needed = np.where(solved, np.minimum(needed, update), needed)
        if (needed <= update).all():
            break
        gradient = _policy_gradient(problem, logits_N_C_V, run, arm.change, sampling, shuffling)
        logits_N_C_V += run.learning_rate * arm.rate * gradient
    return needed


def softmax(logits: Array) -> Array:
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    probabilities: Array = weights / weights.sum(-1, keepdims=True)
    return probabilities


def expected_reward(problem: CausalProblem, logits_N_C_V: Array) -> Array:
    """The exact mean reward (N,) of each seed's policy."""
    policy = softmax(logits_N_C_V)
    rows = np.arange(STEPS)
    right, harmful = policy[:, rows, rows % problem.actions], policy[:, rows, (rows + 1) % problem.actions]
    if problem.copies:
        right, harmful = (np.broadcast_to(p.mean(1, keepdims=True), p.shape) for p in (right, harmful))
    return problem.reward(right, harmful)


def _policy_gradient(
    problem: CausalProblem,
    logits_N_C_V: Array,
    run: CreditRun,
    change: CreditChange | None,
    sampling: np.random.Generator,
    shuffling: np.random.Generator,
) -> Array:
    """Mean over the group of sum_t A_t d log pi(a_t) / d logits, from fresh samples."""
    seeds = np.arange(run.seeds)[:, None]
    rows_N_T = np.broadcast_to(np.arange(STEPS), (run.seeds, STEPS))
    if problem.copies:
        rows_N_T = sampling.integers(0, STEPS, (run.seeds, STEPS))
    policy_N_T_V = softmax(logits_N_C_V)[seeds, rows_N_T]
    draws_N_G_T = sampling.random((run.seeds, run.group, STEPS))
    below_N_G_T_V = draws_N_G_T[..., None] > policy_N_T_V.cumsum(-1)[:, None]
    actions_N_G_T = np.minimum(below_N_G_T_V.sum(-1), problem.actions - 1)

    right = (actions_N_G_T == (rows_N_T % problem.actions)[:, None]).astype(float)
    harmful = (actions_N_G_T == ((rows_N_T + 1) % problem.actions)[:, None]).astype(float)
    advantages_N_G = group_advantages(problem.reward(right, harmful))
    advantages_N_G_T = np.broadcast_to(advantages_N_G[..., None], right.shape)
    if change is not None:
        credits_N_G_T = change(delete_credits(problem, right, harmful), shuffling)
        advantages_N_G_T = shape_advantages(advantages_N_G, credits_N_G_T, run.strength)

    score_N_G_T_V = (actions_N_G_T[..., None] == np.arange(problem.actions)) - policy_N_T_V[:, None]
    gradient_N_T_V = np.einsum("ngt,ngtv->ntv", advantages_N_G_T, score_N_G_T_V) / run.group
    gradient_N_C_V = np.zeros_like(logits_N_C_V)
    np.add.at(gradient_N_C_V, (seeds, rows_N_T), gradient_N_T_V)
    return gradient_N_C_V


BASELINE = "GRPO"


@dataclass(frozen=True)
class CreditResult:
    """Result of one arm on one problem, over seeds.

    steps: mean updates to solve; an unsolved run counts as limit + 1. difference: paired difference from GRPO with the
    same random numbers. solved: share of solved runs. verifier_calls: mean up to the solution.
    """

    problem: str
    arm: str
    steps: Interval
    difference: Interval
    solved: Interval
    verifier_calls: float


def study(run: CreditRun) -> Iterator[CreditResult]:
    """All arms on all problems, in order."""
    for problem in PROBLEMS:
        baseline = steps_to_solve(problem, ARMS[BASELINE], run)
        for name, arm in ARMS.items():
            steps = baseline if name == BASELINE else steps_to_solve(problem, arm, run)
            yield CreditResult(
                problem.name,
                name,
                bootstrap_interval(steps),
                bootstrap_interval(steps - baseline),
                share_interval(int((steps <= run.limit).sum()), run.seeds),
                float(steps.mean()) * run.group * arm.verifier_calls,
            )


def table(results: list[CreditResult]) -> str:
    """The results as a Markdown table."""
    lines = [
        "| problem | arm | steps to solve | against GRPO, paired | solved (%) | verifier calls |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for row in results:
        difference = "" if row.arm == BASELINE else row.difference.text(sign="+")
        solved = row.solved.scaled(100).text(0)
        cells = [row.problem, row.arm, row.steps.text(), difference, solved, f"{row.verifier_calls:.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
