"""Are the optional packages there that this configuration asks for?"""

from omegaconf import DictConfig

from recipe.checks.problem import Problem
from recipe.records.run_directory import RunDirectory
from workers.aggregators import AGGREGATORS, MissingAggregatorsError, aggregator


def check(config: DictConfig, run: RunDirectory) -> list[Problem]:
    """torchjd, for its aggregators."""
    method = config.projection.method
    if method not in AGGREGATORS:
        return []
    try:
        aggregator(method)
    except MissingAggregatorsError as error:
        return [Problem(str(error), "projection.method", "install it on every machine, or use projection=qp")]
    return []
