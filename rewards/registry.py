"""Verifiers by name: the `data_source` of a row names the verifier that judges its answers."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any, Literal, get_args

from pydantic import BaseModel

from rewards.extraction import MAX_ANSWER_CHARACTERS
from rewards.shapes import SHAPES
from rewards.thinking import ThinkOpener
from rewards.verdict import GuardKind, Verdict

# A module registers its verifier when it is imported; it is imported when its name is first asked for, so that
# a run pays only for the verifiers that its data use.
_MODULES = {
    "code": "rewards.code",
    "refactor": "rewards.refactor",
    "stdio": "rewards.stdio",
    "trace": "rewards.trace",
    "sql": "rewards.sql",
    "countdown": "rewards.countdown",
    "gsm8k": "rewards.gsm8k",
    "mcp": "rewards.graphs.max_clique",
    "mis": "rewards.graphs.max_independent_set",
    "mvc": "rewards.graphs.min_vertex_cover",
    "mcs": "rewards.graphs.max_common_subgraph",
    "ged": "rewards.graphs.graph_edit_distance",
    "tsp": "rewards.graphs.travelling_salesman",
    "common_neighbours": "rewards.graphs.common_neighbours",
    "shortest_distance": "rewards.graphs.shortest_distance",
    "connected_components": "rewards.graphs.connected_components",
    "diameter": "rewards.graphs.diameter",
}

NumberExtraction = Literal["strict", "flexible", "math_verify"]

_THINK_OPENERS, _EXTRACTIONS = get_args(ThinkOpener), get_args(NumberExtraction)
_GUARDS = [guard for guard in get_args(GuardKind) if guard != "none"]


@dataclass(frozen=True)
class JudgeSettings:
    """What a caller may set for all verifiers; ValueError for a value that is none.

    partial_credit: the score is the share of tests passed; otherwise 1.0 for all of them and 0.0 for less.
    timeout: seconds of execution allowed to one answer.
    memory_mb: memory allowed to one answer, in MiB.
    sandbox_url: where answers run; None: this machine's embedded server.
    sandbox_isolation: the isolation mode of the embedded server, a name of rewards.sandbox.modes.MODES; None: `best`.
    shape: the reward of graph tasks, a name of rewards.shapes.SHAPES.
    think_opener: who writes `<think>`, for the format part of a shape.
    countdown_format, countdown_numbers: with partial credit, the score of a Countdown answer that is an expression,
        and of one that also uses the right numbers.
    gsm8k_extraction: `strict` reads the last `#### number`, `flexible` the last number, `math_verify` asks the library
        of that name, in the sandbox.
    max_characters: longer responses show the guard `length`.
    forbidden_imports: modules that a program may not import.
    refuse: the guards of rewards/guardrails.py that cost the reward; the others are logged only.
    """

    partial_credit: bool = True
    timeout: float = 5.0
    memory_mb: int = 512
    sandbox_url: str | None = None
    sandbox_isolation: str | None = None
    shape: str = "binary"
    think_opener: ThinkOpener = "either"
    countdown_format: float = 0.0
    countdown_numbers: float = 0.1
    gsm8k_extraction: NumberExtraction = "strict"
    max_characters: int = MAX_ANSWER_CHARACTERS
    forbidden_imports: Collection[str] = ("ctypes", "gc", "inspect", "socket", "subprocess")
    refuse: Collection[str] = ("length", "forbidden_import", "special_casing", "empty")

    @classmethod
    def among(cls, given: Mapping[str, Any]) -> "JudgeSettings":
        """The settings that stand among other keys, such as verl's."""
        names = {field.name for field in fields(cls)}
        return cls(**{key: value for key, value in given.items() if key in names})

    def __post_init__(self) -> None:
        _require("shape", [self.shape], SHAPES)
        _require("think_opener", [self.think_opener], _THINK_OPENERS)
        _require("gsm8k_extraction", [self.gsm8k_extraction], _EXTRACTIONS)
        _require("refuse", self.refuse, _GUARDS)
        # A run's configuration hands in lists of its own kind, slow to look into.
        object.__setattr__(self, "refuse", frozenset(self.refuse))


def _require(name: str, values: Collection[str], valid: Collection[str]) -> None:
    for value in values:
        if value not in valid:
            raise ValueError(f"reward setting {name}: unknown '{value}'; valid ones: {', '.join(valid)}")


# Judges one response. May raise InfrastructureError, or by mistake anything else: both mean "not judged".
Judge = Callable[[str, BaseModel, JudgeSettings], Awaitable[Verdict]]


def whole(response: str) -> str:
    """All of a response."""
    return response


@dataclass(frozen=True)
class Verifier:
    """A named judge and the model of the ground truth that it reads.

    reads: the part of a response that its verdict depends on.
    """

    name: str
    truth: type[BaseModel]
    judge: Judge
    reads: Callable[[str], str] = whole


_VERIFIERS: dict[str, Verifier] = {}


def register(verifier: Verifier) -> None:
    """Makes a verifier known under its name; a second one of the same name is refused."""
    if verifier.name in _VERIFIERS:
        raise ValueError(f"a verifier named '{verifier.name}' is registered already")
    _VERIFIERS[verifier.name] = verifier


def names() -> list[str]:
    """The names that a row's `data_source` may hold, sorted."""
    return sorted(_MODULES.keys() | _VERIFIERS.keys())


def get(name: str) -> Verifier:
    """The verifier of that name; ValueError with the valid names when there is none."""
    if name not in _VERIFIERS and name in _MODULES:
        import_module(_MODULES[name])
    if name not in _VERIFIERS:
        raise ValueError(f"unknown verifier '{name}' (a row's data_source); valid ones: {', '.join(names())}")
    return _VERIFIERS[name]


def validate_ground_truth(name: str, ground_truth: str) -> BaseModel:
    """Parses a ground truth with its verifier's model; ValueError (pydantic's own included) when it does not fit."""
    return get(name).truth.model_validate_json(ground_truth)
