"""Can the run reach the Ray that it would join, and is the dashboard port free that it would open?

And which access tokens are set on the driver, but not sent to the nodes of another cluster?
"""

import os
import socket

from omegaconf import DictConfig

from recipe.checks import PreflightFinding
from recipe.records.run_directory import RunDirectory

# Ray shows a job's variables in its logs and its dashboard, so these are never among them (runtime/environment.py).
TOKENS = {
    "HF_TOKEN": "HF_TOKEN_PATH names its file (hf auth login)",
    "WANDB_API_KEY": "wandb login keeps it in ~/.netrc",
    "SANDBOX_TOKEN": "SANDBOX_TOKEN_FILE names its file",
}


def check(config: DictConfig, run: RunDirectory) -> list[PreflightFinding]:
    """Refuse an address without a listener and a port that is in use."""
    options = config.ray_kwargs.ray_init
    problems = []
    address = options.get("address") or os.environ.get("RAY_ADDRESS")
    if address and address not in ("local", "auto"):
        host, _, port = address.removeprefix("ray://").rpartition(":")
        if not _listens(host, port):
            problems.append(
                PreflightFinding(
                    f"no Ray listens at {address}", "RAY_ADDRESS", "start it (ray start --head), or unset it"
                )
            )
    elif options.get("include_dashboard") and options.get("dashboard_port"):
        port = options.dashboard_port
        if _listens("127.0.0.1", port):
            problems.append(
                PreflightFinding(
                    f"port {port} is busy",
                    "ray_kwargs.ray_init.dashboard_port",
                    "choose another, or stop the program that uses it",
                )
            )
    return problems


def token_notes(config: DictConfig) -> list[str]:
    """One line per token that is set here, if the run joins a running cluster; else nothing."""
    address = config.ray_kwargs.ray_init.get("address") or os.environ.get("RAY_ADDRESS")
    if address in (None, "", "local"):
        return []
    return [
        f"{name} is not sent to the Ray at {address}: set it where `ray start` runs on each node, or on shared storage "
        f"{how}"
        for name, how in TOKENS.items()
        if os.environ.get(name)
    ]


def _listens(host: str, port: str | int) -> bool:
    try:
        with socket.create_connection((host.strip("[]") or "127.0.0.1", int(port)), timeout=3):
            return True
    except (OSError, ValueError):
        return False
