"""verl's own rules for a configuration, asked before Ray starts."""

import contextlib
import io

from omegaconf import DictConfig, OmegaConf

from recipe.checks.problem import Problem
from recipe.records.run_directory import RunDirectory


def check(config: DictConfig, run: RunDirectory) -> list[Problem]:
    """What ``verl.utils.config.validate_config`` says of a copy of the configuration."""
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    trial = OmegaConf.create(OmegaConf.to_container(config, resolve=True))
    assert isinstance(trial, DictConfig)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            validate_config(trial, use_reference_policy=need_reference_policy(trial), use_critic=need_critic(trial))
    except (AssertionError, ValueError, NotImplementedError) as error:
        return [Problem(str(error) or type(error).__name__, "verl's validate_config", "change the keys it names")]
    return []
