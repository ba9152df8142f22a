"""Environment variables that a cluster's nodes get from the user's shell.

``python -m recipe.runtime.environment COMMAND`` prints the runtime environment of a submitted job, as JSON
(scripts/ray_submit.sh).
"""

import json
import os
import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from recipe.runtime.options import forwarded_variables

ROOT = Path(__file__).resolve().parents[2]

# Read by libraries inside Ray workers; a cluster's nodes do not inherit them from the driver's shell.
# Tokens (HF_TOKEN, WANDB_API_KEY, SANDBOX_TOKEN) are excluded: Ray shows these variables in its logs and its dashboard.
# Nodes get them from the environment of `ray start`, or from the files that *_TOKEN_FILE and *_TOKEN_PATH name.
FORWARDED = (
    "HF_HOME", "HF_HUB_OFFLINE", "WANDB_MODE", "WANDB_ENTITY", "WANDB_BASE_URL", "TRACKIO_DIR",
    "VLLM_CPU_OMP_THREADS_BIND", "SANDBOX_TOKEN_FILE", "HF_TOKEN_PATH",
)  # fmt: skip
# Families of such variables: the network interfaces and transports between ranks.
FORWARDED_PREFIXES = ("NCCL_", "GLOO_")


def forwarded(environment: Mapping[str, str], also: Iterable[str] = ()) -> dict[str, str]:
    """The variables that every Ray worker gets, plus those in `also`; unset ones are left out."""
    names = {*FORWARDED, *also}
    return {name: value for name, value in environment.items() if name in names or name.startswith(FORWARDED_PREFIXES)}


def job_environment(command: str, interpreter: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """Ray's runtime environment for a submitted module or launcher of this checkout.

    environment: of the submitting shell; its SUBMIT_ENV names further variables to forward. A launcher (``.sh``) gets
    the options of studies, and the platform gpu_ray unless the user names another one.
    """
    also = set(environment.get("SUBMIT_ENV", "").split())
    if command.endswith(".sh"):
        # A study on a cluster may submit each of its runs as a job.
        also |= forwarded_variables() | {"RAY_API_SERVER_ADDRESS"}
        environment = dict(environment) | {"PLATFORM": environment.get("PLATFORM") or "gpu_ray"}
    # Relative paths refer to this folder, not to the copy that Ray unpacks; the run adds its variables to the job's.
    variables = forwarded(environment, also) | {
        "SKILLCREDIT_HOME": str(ROOT), "RAY_OVERRIDE_JOB_RUNTIME_ENV": "1", "PYTHONUNBUFFERED": "1",
    }  # fmt: skip
    runtime: dict[str, Any] = {"env_vars": variables, "excludes": [".git", ".venv", "data", "outputs"]}
    # Ray passes the interpreter's path to a shell unquoted.
    if (quoted := shlex.quote(interpreter)) != interpreter:
        runtime["py_executable"] = quoted
    return runtime


if __name__ == "__main__":
    print(json.dumps(job_environment(sys.argv[1], sys.executable, os.environ)))
