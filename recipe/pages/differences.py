"""A run's configuration, and where it differs from its experiment's defaults and from other runs."""

import copy
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any

from hydra import compose, initialize_config_module
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

_OF_EACH_RUN = (
    "run.command", "run.directory", "run.name", "run.root", "trainer.default_local_dir", "trainer.experiment_name",
    "actor_rollout_ref.rollout.trace.experiment_name",
)  # fmt: skip
"""Keys that say where a run is recorded: they differ whatever was trained. Those of verl follow from ours."""


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

    Keys that take their value from another one are left out where they follow it. The values of today's experiment: an
    older run was made with that of its release.
    """
    name = experiment_of(command)
    if name is None:
        return [], "The run's command names no experiment."
    try:
        experiment = _experiment(name)
        defaults = flat(experiment)
    except (HydraException, OmegaConfBaseException) as error:
        return [], f"This release has no experiment '{name}' that can be read: {str(error).splitlines()[0]}"
    of_run = flat(config)
    keys = [key for key in {**of_run, **defaults} if key not in _OF_EACH_RUN]
    rows = [(key, defaults.get(key, "-"), of_run.get(key, "-")) for key in keys]
    rows = [row for row in rows if not _same(row[1], row[2])]
    copied = _copied(experiment, config, [key for key, *_ in rows])
    return [row for row in rows if row[0] not in copied or not _same(copied[row[0]], row[2])], ""


def _copied(experiment: DictConfig, config: DictConfig, changed: Sequence[str]) -> dict[str, str]:
    """What the run's values of the changed keys give for those of them that the experiment interpolates."""
    interpolated = {key for key in changed if _is_interpolated(experiment, key)}
    given = copy.deepcopy(experiment)
    OmegaConf.set_struct(given, False)
    for key in changed:
        if key not in interpolated:
            with suppress(OmegaConfBaseException):  # a name that is no path
                OmegaConf.update(given, key, OmegaConf.select(config, key), force_add=True)
    values = flat(given) if interpolated else {}
    return {key: values[key] for key in interpolated if key in values}


def _is_interpolated(config: DictConfig, key: str) -> bool:
    """Whether a key, or a group around it, takes its value from another one."""
    node: Any = config
    for name in key.split("."):
        if not isinstance(node, DictConfig) or name not in node:
            return False
        if OmegaConf.is_interpolation(node, name):
            return True
        node = node._get_node(name)
    return False


@lru_cache(maxsize=32)
def _experiment(name: str) -> DictConfig:
    """An experiment's own configuration; composed once in a process, which takes seconds."""
    with _composing():
        return compose("train", [f"experiment={name}"])


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
