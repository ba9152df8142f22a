"""Verifiers by name: the `data_source` of a row names the verifier that judges its answers."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from pydantic import BaseModel

from rewards.settings import JudgeSettings
from rewards.verdict import Verdict

__all__ = [
    "JudgeSettings", "ResponseJudge", "Verifier", "get", "is_ours", "names", "register", "validate_ground_truth",
]  # fmt: skip

# A module registers its verifier on import. It is imported when its name is first requested, so that a run pays only
# for the verifiers that its data use.
_MODULES = {
    "code": "rewards.verifiers.code",
    "refactor": "rewards.verifiers.refactor",
    "stdio": "rewards.verifiers.stdio",
    "calls": "rewards.verifiers.calls",
    "trace": "rewards.verifiers.trace",
    "sql": "rewards.verifiers.sql",
    "countdown": "rewards.verifiers.countdown",
    "gsm8k": "rewards.verifiers.gsm8k",
    "latex": "rewards.verifiers.latex",
    "mcp": "rewards.verifiers.graphs.node_sets",
    "mis": "rewards.verifiers.graphs.node_sets",
    "mvc": "rewards.verifiers.graphs.node_sets",
    "mcs": "rewards.verifiers.graphs.molecules",
    "ged": "rewards.verifiers.graphs.molecules",
    "tsp": "rewards.verifiers.graphs.routes",
    "common_neighbours": "rewards.verifiers.graphs.node_sets",
    "shortest_distance": "rewards.verifiers.graphs.routes",
    "connected_components": "rewards.verifiers.graphs.node_sets",
    "diameter": "rewards.verifiers.graphs.routes",
}
GROUP = "verl_skillcredit.verifiers"
"""Entry points by which a package that a user has installed declares its verifiers: NAME = "MODULE"."""

# Judges one response. InfrastructureError, or any other exception raised by mistake, means "not judged".
ResponseJudge = Callable[[str, BaseModel, JudgeSettings], Awaitable[Verdict]]


def whole(response: str) -> str:
    """The whole response."""
    return response


@dataclass(frozen=True)
class Verifier:
    """A named judge and the model of the ground truth that it reads.

    reads: the part of a response that its verdict depends on.
    """

    name: str
    truth: type[BaseModel]
    judge: ResponseJudge
    reads: Callable[[str], str] = whole


_VERIFIERS: dict[str, Verifier] = {}


def register(verifier: Verifier) -> None:
    """Register a verifier under its name; ValueError if the name is taken."""
    if verifier.name in _VERIFIERS:
        raise ValueError(f"a verifier named '{verifier.name}' is already registered; choose another name")
    _VERIFIERS[verifier.name] = verifier


@cache
def _declared() -> dict[str, str]:
    """The modules of installed packages by the names of their verifiers; takes milliseconds."""
    return {point.name: point.value for point in entry_points(group=GROUP)}


def _modules() -> dict[str, str]:
    """The modules of all verifiers by name: ours, and those of installed packages."""
    declared = _declared()
    if taken := sorted(declared.keys() & _MODULES):
        raise ValueError(
            f"a package declares the verifier '{taken[0]}' ({declared[taken[0]]}), which is ours; rename it"
        )
    return _MODULES | declared


def installed_files() -> list[Path]:
    """The files of the modules in which installed packages declare verifiers; none of a module that is not found."""
    found = []
    for module in _declared().values():
        with suppress(ImportError):
            spec = find_spec(module)
            found += [Path(spec.origin)] if spec and spec.has_location and spec.origin else []
    return sorted(found)


def is_ours(name: str) -> bool:
    """Whether the verifier of this name is one of this project's."""
    return name in _MODULES


def names() -> list[str]:
    """Valid values for a row's `data_source`, sorted."""
    return sorted(_modules().keys() | _VERIFIERS.keys())


def get(name: str) -> Verifier:
    """The verifier of that name; ValueError if there is none (with the valid names), or if its module is at fault."""
    if name not in _VERIFIERS and (module := _modules().get(name)):
        try:
            import_module(module)
        except ImportError as error:
            raise ValueError(f"the module {module} of verifier '{name}' cannot be imported: {error}") from error
        if name not in _VERIFIERS:
            raise ValueError(f"the module {module} registers no verifier '{name}'")
    if name not in _VERIFIERS:
        raise ValueError(f"unknown verifier '{name}' (a row's data_source); valid ones: {', '.join(names())}")
    return _VERIFIERS[name]


def validate_ground_truth(name: str, ground_truth: str) -> BaseModel:
    """Parse a ground truth with its verifier's model; ValueError (pydantic's included) if it is invalid."""
    return get(name).truth.model_validate_json(ground_truth)
