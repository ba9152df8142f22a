"""Are the reward settings valid? verl's workers would find out after the first answers."""

from omegaconf import DictConfig

from recipe.checks import Problem
from recipe.records.run_directory import RunDirectory
from rewards import experiment


def check(config: DictConfig, run: RunDirectory) -> list[Problem]:
    """Unknown reward settings and invalid values, such as a shape that does not exist."""
    try:
        experiment.of_config(config)
    except ValueError as error:
        return [Problem(str(error), experiment.REWARD_KWARGS, "docs/reference/rewards.md lists the settings")]
    return []
