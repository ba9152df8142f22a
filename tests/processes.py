"""Processes of tests: what one has started and leaves behind, and one with its own Ray."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import psutil

PATIENCE = 3000
"""Seconds that a command gets: each ends within 10 minutes on two quiet cores, but not beside other tests. What hangs
is ended by the time limit of its test."""


def living_descendants(pid: int) -> list[psutil.Process]:
    """Everything that a process has started and that still lives, none if the process itself is gone.

    A process that has ended and waits for its parent does not count.
    """
    living: list[psutil.Process] = []
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if child.status() != psutil.STATUS_ZOMBIE:
                    living.append(child)
    return living


def command_line(process: psutil.Process) -> str:
    """The words of a process's command, separated by NUL as in /proc; empty when it is gone."""
    try:
        return "\0".join(process.cmdline())
    except psutil.Error:
        return ""


def output_with_ray(module: str, folder: Path) -> str:
    """What `python -m module folder` prints, which starts its own Ray on a CPU; fails unless it ends with status 0."""
    environment = os.environ | {"VERL_PLATFORM": "cpu", "RAY_ADDRESS": "", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
    command = [sys.executable, "-m", module, str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
