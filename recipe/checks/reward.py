"""Is the reward one that there is? verl's workers would find out after the first answers."""

from omegaconf import DictConfig, OmegaConf

from recipe.checks.problem import Problem
from recipe.records.run_directory import RunDirectory
from rewards.registry import JudgeSettings

KEY = "reward.custom_reward_function.reward_kwargs"


def check(config: DictConfig, run: RunDirectory) -> list[Problem]:
    """Unknown values of the judge's settings, such as a shape that does not exist."""
    given = OmegaConf.to_container(config.reward.custom_reward_function.get("reward_kwargs") or OmegaConf.create())
    assert isinstance(given, dict)
    try:
        JudgeSettings.among({str(key): value for key, value in given.items()})
    except (ValueError, TypeError) as error:
        return [Problem(str(error), KEY, "docs/rewards.md lists the settings")]
    return []
