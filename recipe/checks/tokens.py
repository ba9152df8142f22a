"""Tokens that the driver has and the nodes of another cluster do not get from it."""

import os

from omegaconf import DictConfig

# Ray shows a job's variables in its logs and its dashboard, so that these are never among them (training/cluster.py).
GIVEN_BY = {
    "HF_TOKEN": "HF_TOKEN_PATH names its file (hf auth login)",
    "WANDB_API_KEY": "wandb login keeps it in ~/.netrc",
    "SANDBOX_TOKEN": "SANDBOX_TOKEN_FILE names its file",
}


def notes(config: DictConfig) -> list[str]:
    """One line for each token that is set here, where the run joins a cluster that is already up; else nothing."""
    address = config.ray_kwargs.ray_init.get("address") or os.environ.get("RAY_ADDRESS")
    if address in (None, "", "local"):
        return []
    return [
        f"{name} is not sent to the Ray at {address}: set it where `ray start` runs on each node, or on storage that "
        f"all nodes see {how}"
        for name, how in GIVEN_BY.items()
        if os.environ.get(name)
    ]
