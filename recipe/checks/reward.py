"""Are the reward settings valid? Without this check verl's workers fail after the first answers."""

from omegaconf import DictConfig

from recipe.checks import Problem
from recipe.records.run_directory import RunDirectory
from rewards import experiment


def check(config: DictConfig, run: RunDirectory) -> list[Problem]:
    """Refuse unknown reward settings and invalid values, such as a shape that does not exist."""
    try:
        experiment.of_config(config)
    except ValueError as error:
        return [Problem(str(error), experiment.REWARD_KWARGS, "see the settings in docs/reference/rewards.md")]
    return []
