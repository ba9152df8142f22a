"""Can the run log where it is asked to? W&B without a login ends a run minutes after its start."""

import os

from omegaconf import DictConfig

from recipe.checks import PreflightFinding
from recipe.records.run_directory import RunDirectory

WITHOUT_LOGIN = ("offline", "disabled", "dryrun")
"""Values of WANDB_MODE that ask for no account."""


def check(config: DictConfig, run: RunDirectory) -> list[PreflightFinding]:
    """Require a login of W&B, or its offline mode, if it is a logger; the nodes of a joined cluster have their own."""
    if "wandb" not in (config.trainer.logger or ()) or os.environ.get("WANDB_MODE") in WITHOUT_LOGIN:
        return []
    import wandb

    from recipe.runtime.ray_session import ray_address  # imports Ray, which takes seconds

    if ray_address(config) != "local":
        return []

    try:
        if wandb.setup().settings.mode in WITHOUT_LOGIN:  # `wandb offline`
            return []
        found = "" if wandb.login(prompt=False) else "W&B has no login"
    except (wandb.Error, OSError, ValueError) as error:
        found = f"W&B's login could not be verified: {error}"
    finally:
        wandb.teardown()  # its service would be shared by the run's processes
    how = "run `wandb login`, set WANDB_MODE=offline (`wandb sync` later), or leave it out: trainer.logger=[console]"
    return [PreflightFinding(found, "trainer.logger", how)] if found else []
