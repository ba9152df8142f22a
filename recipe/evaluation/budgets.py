"""Sampling budgets: the number of answers per problem, how they are sampled, and pass@k.

EVAL@1: one greedy answer. EVAL@k: ``samples`` answers, scored with the unbiased pass@k. EVAL@budget: answers until a
budget of generated tokens is spent.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Literal, get_args

import numpy as np

from rewards.requests import seed_of

BudgetName = Literal["eval@1", "eval@k", "eval@budget"]


@dataclass(frozen=True)
class Budget:
    """Sampling budget per problem; ValueError for inconsistent values.

    samples: answers per problem (eval@k). budget: generated tokens per problem (eval@budget). max_tokens: limit of one
    answer. entropy: also request log-probabilities, from which entropy is estimated. thinking: whether the chat
    template opens or forbids a thinking part (`enable_thinking`); None: the template's default.
    """

    name: BudgetName = "eval@1"
    samples: int = 1
    budget: int | None = None
    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int = 2048
    seed: int = 0
    entropy: bool = False
    thinking: bool | None = None

    def __post_init__(self) -> None:
        if self.name not in get_args(BudgetName):
            raise ValueError(f"unknown --sampling '{self.name}'; valid ones: {', '.join(get_args(BudgetName))}")
        if min(self.samples, self.max_tokens) < 1 or self.temperature < 0 or not 0 < self.top_p <= 1:
            raise ValueError("samples and max_tokens must be positive, temperature >= 0 and top_p in (0, 1]")
        if self.name == "eval@1" and (self.samples, self.temperature) != (1, 0.0):
            raise ValueError("eval@1 is one greedy answer: samples 1, temperature 0; for more use eval@k")
        if self.name != "eval@1" and self.temperature == 0:
            raise ValueError(f"{self.name} with temperature 0 repeats the same answer: set a temperature")
        if (self.name == "eval@budget") != (self.budget is not None) or (self.budget is not None and self.budget < 1):
            raise ValueError("eval@budget needs a budget of at least one token, and the others take none")

    @property
    def chains(self) -> list[range | None]:
        """Chains of sample numbers, each drawn in sequence; None: as many as the token budget allows."""
        return [None] if self.budget is not None else [range(number, number + 1) for number in range(self.samples)]

    def numbers(self, chain: range | None) -> Iterator[int]:
        return iter(count() if chain is None else chain)

    def tokens_left(self, spent: int) -> int:
        """Tokens left for the next answer of a chain that has spent this many; below 1 if the chain is over."""
        return self.max_tokens if self.budget is None else min(self.max_tokens, self.budget - spent)

    def seed_of(self, problem: str, number: int) -> int:
        """A separate seed for each sample, equal in every run and order."""
        return seed_of(self.seed, problem, number)


def pass_at_k(samples: int, accepted: int, k: int) -> float:
    """Unbiased estimate of the probability that at least one of k answers is right, from n >= k samples, c accepted.

    1 - C(n-c, k) / C(n, k) (Chen et al. 2021, arXiv 2107.03374, equation 1), as a product that does not overflow.
    ValueError if k is not in [1, n] or c not in [0, n].
    """
    if not 1 <= k <= samples or not 0 <= accepted <= samples:
        raise ValueError(f"pass@{k} needs 1 <= k <= n and 0 <= c <= n, got n={samples}, c={accepted}")
    if samples - accepted < k:
        return 1.0
    return float(1 - np.prod(1 - k / np.arange(samples - accepted + 1, samples + 1)))
