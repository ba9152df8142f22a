"""Credit of one sample, from the reward worker to the trainer and the run's files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

import numpy as np

PREFIX = "credit_"
"""Of its keys among a sample's reward components."""


@dataclass(frozen=True, kw_only=True)
class ReplayCounts:
    """Of the replays of one sample.

    asked: required by the plan; invalid: of these, without a valid program; unjudged: that the verifier could not
    judge; timeouts: that exceeded their time limit. replays: programs that were passed to the verifier or found in its
    cache; cache_hits: found there. generated: tokens that the policy generated for them.
    """

    asked: int = 0
    replays: int = 0
    invalid: int = 0
    unjudged: int = 0
    timeouts: int = 0
    cache_hits: int = 0
    generated: int = 0


@dataclass(frozen=True, kw_only=True)
class SampleCredit(ReplayCounts):
    """Credits of a sample's steps, and the cost of their estimation.

    values: (K,) float32, NaN for a step without credit. keys: K strings, equal for the same step of siblings, "" where
    unknown. tests: (K, tests) float32, the step's part in each test, without tests where they are unknown. whole:
    (tests,) float32, what the sample got in each, where its replays got that minus these parts; else empty. replayed:
    each replay for a reader, the fields of `counterfactual.replayer.Replay`. steps: (T,) int32, the step of each
    response token or -1. spans: (K, 2) int32, characters of each step. cause and reason: why no step has a credit, as
    an identifier and as a sentence. unparsable: 1 if the code does not parse.
    equal_steps, unreached, unexecuted: steps without a replay. unmet: 1 if the scores of the whole group did not
    arrive in time. requests: scores requested. seconds: wall time. busy_seconds: of sandbox workers.
    """

    values: np.ndarray
    keys: Sequence[str]
    tests: np.ndarray
    steps: np.ndarray
    spans: np.ndarray
    whole: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    replayed: Sequence[Mapping[str, Any]] = ()
    cause: str = ""
    reason: str = ""
    unparsable: int = 0
    equal_steps: int = 0
    unreached: int = 0
    unexecuted: int = 0
    unmet: int = 0
    requests: int = 0
    seconds: float = 0.0
    busy_seconds: float = 0.0

    def as_info(self) -> dict[str, Any]:
        """Reward components: the fields by name, with the prefix."""
        return {PREFIX + each.name: getattr(self, each.name) for each in fields(self)}

    @classmethod
    def of_info(cls, info: Mapping[str, Any]) -> Self | None:
        """The credit among a sample's reward components; None if there is none."""
        if f"{PREFIX}cause" not in info:
            return None
        return cls(**{each.name: info[PREFIX + each.name] for each in fields(cls)})


NUMBERS = tuple(each.name for each in fields(SampleCredit) if each.type in (int, float))
"""Names of the counts and seconds of a credit."""
