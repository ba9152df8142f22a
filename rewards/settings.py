"""Judge settings: limits and reward settings, with the valid values of each; those of a configuration or experiment.

Training, evaluation and the proof of a data set's solutions share them.
"""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal, get_args

from rewards.extraction import MAX_ANSWER_CHARACTERS, ThinkOpener
from rewards.sandbox.cases import MEMORY_MB, TIMEOUT_SECONDS
from rewards.sandbox.server.modes import MODES
from rewards.shapes import SHAPES
from rewards.verdict import GuardKind

REWARD_KWARGS = "reward.custom_reward_function.reward_kwargs"
OURS = "pkg://rewards"
"""Path of the reward function that reads JudgeSettings; a user's own function may have other settings."""

NumberExtraction = Literal["strict", "flexible", "math_verify"]

# Arguments that verl's reward managers pass to a reward function in addition to the answer and the settings.
_OF_VERL = frozenset({"reward_router_address", "reward_model_tokenizer"})

# Describes the error in a value; None for a valid one.
_Rule = Callable[[Any], str | None]


def _must_be(kind: str, holds: Callable[[Any], bool]) -> _Rule:
    return lambda value: None if holds(value) else f"{value!r} is not {kind}"


def _one_of(valid: Collection[str]) -> _Rule:
    def complaint(value: Any) -> str | None:
        known = isinstance(value, str) and value in valid
        return None if known else f"unknown {value!r}; valid ones: {', '.join(valid)}"

    return complaint


def _list_of(each: _Rule) -> _Rule:
    def complaint(value: Any) -> str | None:
        if not isinstance(value, Collection) or isinstance(value, str | bytes | Mapping):
            return f"{value!r} is not a list"
        return next((found for item in value if (found := each(item))), None)

    return complaint


def _is_number(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def _is_address(value: Any) -> bool:
    return value is None or isinstance(value, str) or _list_of(_TEXT)(value) is None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


@dataclass(frozen=True)
class JudgeSettings:
    """Settings common to all verifiers; ValueError for an invalid value.

    The defaults are those of `configs/reward/verified.yaml` and of the sandbox's limits in `configs/train.yaml`.

    partial_credit: the score is the share of tests passed; otherwise 1.0 for all of them and 0.0 for less.
    hidden_tests: whether the score of a program counts tests that the prompt does not show. Without them the judge is a
        weak one, for studies of reward hacking: a program is paid for the shown tests, while `acc` needs all.
    timeout: seconds of execution allowed to one answer.
    memory_mb: memory allowed to one answer, in MiB.
    sandbox_url: where answers run, one url or several; None: this machine's embedded server.
    sandbox_isolation: the isolation mode of the embedded server, a name of sandbox MODES; None: `best`.
    shape: the reward of graph tasks, a name of rewards.shapes.SHAPES.
    think_opener: who writes `<think>`, for the format part of a shape.
    countdown_format, countdown_numbers: with partial credit, the score of a Countdown answer that is an expression,
        and of one that also uses the right numbers.
    gsm8k_extraction: `strict` reads the last `#### number`, `flexible` the last number, `math_verify` calls the
        library of that name in the sandbox.
    max_characters: more of them after the thinking part get the guard `length`.
    forbidden_imports: modules that a program must not import.
    refuse: the guards of rewards/guardrails.py that cost the reward; the others are only logged.
    """

    partial_credit: bool = True
    hidden_tests: bool = True
    timeout: float = TIMEOUT_SECONDS
    memory_mb: int = MEMORY_MB
    sandbox_url: str | Collection[str] | None = None
    sandbox_isolation: str | None = None
    shape: str = "binary"
    think_opener: ThinkOpener = "response"
    countdown_format: float = 0.1
    countdown_numbers: float = 0.2
    gsm8k_extraction: NumberExtraction = "strict"
    max_characters: int = MAX_ANSWER_CHARACTERS
    forbidden_imports: Collection[str] = ("ctypes", "gc", "inspect", "socket", "subprocess")
    refuse: Collection[str] = ("length", "forbidden_import", "special_casing", "empty")

    @classmethod
    def among(cls, given: Mapping[str, Any]) -> "JudgeSettings":
        """The settings among the arguments that verl passes; ValueError, with the valid names, for an unknown one."""
        wanted = {key: value for key, value in given.items() if key not in _OF_VERL}
        for key in wanted.keys() - _RULES.keys():
            raise ValueError(f"unknown reward setting '{key}'; valid ones: {', '.join(_RULES)}")
        return cls(**wanted)

    @classmethod
    def of_config(cls, config: Any) -> "JudgeSettings":
        """The settings of a composed configuration (groups `reward` and `sandbox`).

        Raises:
            ValueError: a setting is unknown or has an invalid value.
        """
        # Imported late: most processes that judge answers read no configuration.
        from omegaconf import OmegaConf
        from omegaconf.errors import OmegaConfBaseException

        try:
            given = config.reward.custom_reward_function.get("reward_kwargs", {})
            given = OmegaConf.to_container(given, resolve=True) if OmegaConf.is_config(given) else given
        except OmegaConfBaseException as error:
            raise ValueError(f"invalid reward settings: {str(error).splitlines()[0]}") from None
        if not isinstance(given, dict):
            valid = ", ".join(setting_names())
            raise ValueError(f"reward settings must be a mapping, got {given!r}; valid keys: {valid}")
        named = {str(key): value for key, value in given.items()}
        if config.reward.custom_reward_function.path != OURS:
            named = {key: value for key, value in named.items() if key in setting_names()}
        return cls.among(named)

    @classmethod
    def of_experiment(cls, name: str | None) -> "JudgeSettings":
        """The settings of the experiment of that name (a file of `configs/experiment`); None: all defaults.

        Raises:
            ValueError: the experiment does not exist, does not compose, or has invalid settings.
        """
        if name is None:
            return cls()
        valid = experiments()
        if name not in valid:
            raise ValueError(f"no experiment '{name}'; valid ones: {', '.join(valid)}")
        # Imported late: verl's configuration takes seconds to import.
        from hydra import compose, initialize_config_module
        from hydra.errors import HydraException
        from omegaconf.errors import OmegaConfBaseException

        try:
            with initialize_config_module("configs", version_base=None):
                return cls.of_config(compose("train", [f"experiment={name}"]))
        except (HydraException, OmegaConfBaseException) as error:
            raise ValueError(f"experiment '{name}': {error}") from None

    def __post_init__(self) -> None:
        for name, rule in _RULES.items():
            if complaint := rule(getattr(self, name)):
                raise ValueError(f"reward setting {name}: {complaint}")
        # OmegaConf's lists are slow to search and not hashable.
        object.__setattr__(self, "refuse", frozenset(self.refuse))
        object.__setattr__(self, "forbidden_imports", tuple(self.forbidden_imports))
        if not isinstance(self.sandbox_url, str | None):
            object.__setattr__(self, "sandbox_url", tuple(self.sandbox_url))

    def record(self) -> dict[str, Any]:
        """All settings as JSON values, for the record of a run."""
        listed = {"refuse": sorted(self.refuse), "forbidden_imports": list(self.forbidden_imports)}
        urls = self.sandbox_url
        return vars(self) | listed | {"sandbox_url": urls if isinstance(urls, str | None) else list(urls)}


_NUMBER = _must_be("a number", _is_number)
_COUNT = _must_be("a whole number above 0", _is_count)
_TEXT = _must_be("a string", lambda value: isinstance(value, str))
_FLAG = _must_be("true or false", lambda value: isinstance(value, bool))
_GUARDS = [guard for guard in get_args(GuardKind) if guard != "none"]

_RULES: dict[str, _Rule] = {
    "partial_credit": _FLAG,
    "hidden_tests": _FLAG,
    "timeout": _must_be("a number of seconds above 0", lambda value: _is_number(value) and value > 0),
    "memory_mb": _COUNT,
    "sandbox_url": _must_be("a url, a list of urls or null", _is_address),
    "sandbox_isolation": lambda value: None if value is None else _one_of(MODES)(value),
    "shape": _one_of(SHAPES),
    "think_opener": _one_of(get_args(ThinkOpener)),
    "countdown_format": _NUMBER,
    "countdown_numbers": _NUMBER,
    "gsm8k_extraction": _one_of(get_args(NumberExtraction)),
    "max_characters": _COUNT,
    "forbidden_imports": _list_of(_TEXT),
    "refuse": _list_of(_one_of(_GUARDS)),
}


def setting_names() -> list[str]:
    """Names of the judge settings."""
    return list(_RULES)


def experiments() -> list[str]:
    """Valid names for `experiment=NAME`, sorted."""
    folder = files("configs") / "experiment"
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))
