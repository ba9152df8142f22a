"""Judge settings of an experiment, shared by training, evaluation and the proof of a data set's solutions."""

from importlib.resources import files
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rewards.settings import JudgeSettings, setting_names

REWARD_KWARGS = "reward.custom_reward_function.reward_kwargs"
OURS = "pkg://rewards"
"""Path of the reward function that reads JudgeSettings; a user's own function may have other settings."""


def of_config(config: Any) -> JudgeSettings:
    """The settings of a composed configuration (groups `reward` and `sandbox`).

    Raises:
        ValueError: a setting is unknown or has an invalid value.
    """
    try:
        given = config.reward.custom_reward_function.get("reward_kwargs", {})
        given = OmegaConf.to_container(given, resolve=True) if OmegaConf.is_config(given) else given
    except OmegaConfBaseException as error:
        raise ValueError(f"invalid reward settings: {str(error).splitlines()[0]}") from None
    if not isinstance(given, dict):
        raise ValueError(f"reward settings must be a mapping, got {given!r}; valid keys: {_names()}")
    named = {str(key): value for key, value in given.items()}
    if config.reward.custom_reward_function.path != OURS:
        named = {key: value for key, value in named.items() if key in setting_names()}
    return JudgeSettings.among(named)


def of_experiment(name: str | None) -> JudgeSettings:
    """The settings of the experiment of that name (a file of `configs/experiment`); None: all defaults.

    Raises:
        ValueError: the experiment does not exist, does not compose, or has invalid settings.
    """
    if name is None:
        return JudgeSettings()
    valid = experiments()
    if name not in valid:
        raise ValueError(f"no experiment '{name}'; valid ones: {', '.join(valid)}")
    # Imported late: verl's configuration takes seconds to import.
    from hydra import compose, initialize_config_module
    from hydra.errors import HydraException

    try:
        with initialize_config_module("configs", version_base=None):
            return of_config(compose("train", [f"experiment={name}"]))
    except (HydraException, OmegaConfBaseException) as error:
        raise ValueError(f"experiment '{name}': {error}") from None


def experiments() -> list[str]:
    """Valid names for `experiment=NAME`, sorted."""
    folder = files("configs") / "experiment"
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def _names() -> str:
    return ", ".join(setting_names())
