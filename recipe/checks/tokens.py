"""Access tokens that are set on the driver but are not sent to the nodes of another cluster."""

import os

from omegaconf import DictConfig

# Ray shows a job's variables in its logs and its dashboard, so these are never among them (runtime/environment.py).
ALTERNATIVES = {
    "HF_TOKEN": "HF_TOKEN_PATH names its file (hf auth login)",
    "WANDB_API_KEY": "wandb login keeps it in ~/.netrc",
    "SANDBOX_TOKEN": "SANDBOX_TOKEN_FILE names its file",
}


def notes(config: DictConfig) -> list[str]:
    """One line per token that is set here, if the run joins a running cluster; else nothing."""
    address = config.ray_kwargs.ray_init.get("address") or os.environ.get("RAY_ADDRESS")
    if address in (None, "", "local"):
        return []
    return [
        f"{name} is not sent to the Ray at {address}: set it where `ray start` runs on each node, or on shared storage "
        f"{how}"
        for name, how in ALTERNATIVES.items()
        if os.environ.get(name)
    ]
