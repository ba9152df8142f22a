"""Can the run reach the Ray that it would join, and is the dashboard port free that it would open?"""

import os
import socket

from omegaconf import DictConfig

from recipe.checks import Problem
from recipe.records.run_directory import RunDirectory


def check(config: DictConfig, run: RunDirectory) -> list[Problem]:
    """Refuse an address without a listener and a port that is in use."""
    options = config.ray_kwargs.ray_init
    problems = []
    address = options.get("address") or os.environ.get("RAY_ADDRESS")
    if address and address not in ("local", "auto"):
        host, _, port = address.removeprefix("ray://").rpartition(":")
        if not _listens(host, port):
            problems.append(
                Problem(f"no Ray listens at {address}", "RAY_ADDRESS", "start it (ray start --head), or unset it")
            )
    elif options.get("include_dashboard") and options.get("dashboard_port"):
        port = options.dashboard_port
        if _listens("127.0.0.1", port):
            problems.append(
                Problem(
                    f"port {port} is busy",
                    "ray_kwargs.ray_init.dashboard_port",
                    "choose another, or stop the program that uses it",
                )
            )
    return problems


def _listens(host: str, port: str | int) -> bool:
    try:
        with socket.create_connection((host.strip("[]") or "127.0.0.1", int(port)), timeout=3):
            return True
    except (OSError, ValueError):
        return False
