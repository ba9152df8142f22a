"""A run's configuration, and where it differs from its experiment's defaults and from other runs."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache

from hydra import compose, initialize_config_module
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

_OF_EACH_RUN = ("run.command", "run.directory", "run.name", "run.root")
"""Keys that differ between any two runs and carry no information."""


def flat(config: DictConfig) -> dict[str, str]:
    """The values of a configuration as YAML's short form, by dotted key; what cannot be resolved stays as written."""
    values: dict[str, str] = {}
    _collect(config, "", values)
    return values


def _collect(node: DictConfig, prefix: str, values: dict[str, str]) -> None:
    for name in map(str, node):
        key = f"{prefix}{name}"
        try:
            value = node[name]
            if isinstance(value, DictConfig) and len(value):
                _collect(value, f"{key}.", values)
                continue
            plain = OmegaConf.to_container(value, resolve=True) if isinstance(value, DictConfig | ListConfig) else value
        except OmegaConfBaseException:
            plain = node._get_node(name)
        values[key] = "null" if plain is None else str(plain)


def experiment_of(command: str) -> str | None:
    """The experiment that a run's command names."""
    try:
        arguments = shlex.split(command)
    except ValueError:
        return None
    return next((word.partition("=")[2] for word in reversed(arguments) if word.startswith("experiment=")), None)


def differences(config: DictConfig, command: str) -> tuple[list[tuple[str, str, str]], str]:
    """(key, the experiment's value, the run's value) of each key that differs, and a remark if they are not known.

    The values of today's experiment: an older run was made with that of its release.
    """
    name = experiment_of(command)
    if name is None:
        return [], "The run's command names no experiment."
    try:
        defaults = _defaults(name)
    except (HydraException, OmegaConfBaseException) as error:
        return [], f"This release has no experiment '{name}' that can be read: {str(error).splitlines()[0]}"
    of_run = flat(config)
    keys = [key for key in {**of_run, **defaults} if key not in _OF_EACH_RUN]
    rows = [(key, defaults.get(key, "-"), of_run.get(key, "-")) for key in keys]
    return [row for row in rows if not _same(row[1], row[2])], ""


@lru_cache(maxsize=32)
def _defaults(experiment: str) -> Mapping[str, str]:
    """An experiment's own configuration; composed once in a process, which takes seconds."""
    with _composing():
        return flat(compose("train", [f"experiment={experiment}"]))


@contextmanager
def _composing() -> Iterator[None]:
    """Hydra set up to compose, also within a command that Hydra itself started: a run writes its page at its end."""
    outer = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        with initialize_config_module("configs", version_base=None):
            yield
    finally:
        GlobalHydra.instance().hydra = outer


def _same(default: str, value: str) -> bool:
    """Equal, or the same path: a run writes it from the root of the file system."""
    return default == value or ("/" in default and value.endswith(f"/{default}"))


def between(configs: Sequence[Mapping[str, str]]) -> list[tuple[str, list[str]]]:
    """(key, the value in each run) of each key in which these flat configurations differ."""
    keys = list(dict.fromkeys(key for config in configs for key in config if key not in _OF_EACH_RUN))
    rows = [(key, [config.get(key, "-") for config in configs]) for key in keys]
    return [(key, values) for key, values in rows if len(set(values)) > 1]
