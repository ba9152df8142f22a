"""Does the sandbox answer? Asked only where a url is named: the embedded one starts with the run."""

import httpx
from omegaconf import DictConfig, ListConfig

from recipe.checks.problem import Problem
from recipe.records.run_directory import RunDirectory


def check(config: DictConfig, run: RunDirectory) -> list[Problem]:
    """Pings every named sandbox by SandboxFusion's own route."""
    value = config.sandbox.url
    urls = list(value) if isinstance(value, ListConfig) else [value] if value else []
    problems = []
    for url in urls:
        base = url.removesuffix("/").removesuffix("/run_code")
        try:
            answer = httpx.get(f"{base}/v1/ping", timeout=5)
            answered = answer.status_code == 200
            why = f"HTTP {answer.status_code}"
        except httpx.HTTPError as error:
            answered, why = False, str(error) or type(error).__name__
        if not answered:
            problems.append(
                Problem(
                    f"the sandbox at {base} does not answer /v1/ping ({why})",
                    "sandbox.url",
                    "start it (python -m rewards.sandbox serve), or use the embedded one: sandbox.url=null",
                )
            )
    return problems
