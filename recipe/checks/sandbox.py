"""Can the run's sandbox, named or embedded, execute the answers to its rows?"""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pandas as pd
from omegaconf import DictConfig, ListConfig

from recipe.checks import PreflightFinding
from recipe.records.run_directory import RunDirectory
from rewards.sandbox import InfrastructureError, Sandbox
from rewards.sandbox.client import readiness
from rewards.settings import JudgeSettings

PROGRAMS = frozenset({"code", "refactor", "stdio", "sql"})
"""Verifiers whose answers always run in the sandbox."""


def check(config: DictConfig, run: RunDirectory) -> list[PreflightFinding]:
    """Refuse named sandboxes that do not respond. If the rows' answers run in a sandbox, refuse also an embedded one
    that does not start, and missing packages (numpy; DuckDB and math-verify where rows or reward need them).
    """
    value = config.sandbox.url
    urls = list(value) if isinstance(value, ListConfig) else [value] if value else []
    problems = [problem for url in urls if (problem := _unreachable(url))]
    needed = packages_needed(config)
    if problems or needed is None:
        return problems
    return [problem for url in urls or [None] if (problem := _incapable(url, config.sandbox.isolation, needed))]


def packages_needed(config: DictConfig) -> list[str] | None:
    """Packages that the rows' answers need in the sandbox in addition to numpy; None if no answer runs there."""
    rows = [row for key in ("train_files", "val_files") for row in _rows(config.data.get(key))]
    sources = {source for source, _ in rows}
    math = "latex" in sources or ("gsm8k" in sources and _extraction(config) == "math_verify")
    if not math and not sources & PROGRAMS:
        return None
    duckdb = any(source == "sql" and _engine(truth) == "duckdb" for source, truth in rows)
    return ["duckdb"] * duckdb + ["math_verify"] * math


def _extraction(config: DictConfig) -> str | None:
    """The GSM8K extraction of the settings; None if the reward check refuses them."""
    try:
        return JudgeSettings.of_config(config).gsm8k_extraction
    except ValueError:
        return None


def _rows(paths: Any) -> list[tuple[str, str]]:
    """Verifier and ground truth of each row; files that the data check refuses are skipped."""
    rows: list[tuple[str, str]] = []
    for path in paths if isinstance(paths, ListConfig) else [paths]:
        try:
            frame = pd.read_parquet(Path(path).expanduser(), columns=["data_source", "reward_model"])
            rows += [(row.data_source, row.reward_model["ground_truth"]) for row in frame.itertuples()]
        except Exception:
            continue
    return rows


def _engine(truth: str) -> str | None:
    try:
        engine: str | None = json.loads(truth).get("engine")
        return engine
    except (ValueError, AttributeError):
        return None


def _unreachable(url: str) -> PreflightFinding | None:
    base = url.removesuffix("/").removesuffix("/run_code")
    try:
        answer = httpx.get(f"{base}/v1/ping", timeout=5, trust_env=False)
        if answer.status_code == 200:
            return None
        why = f"HTTP {answer.status_code}"
    except httpx.HTTPError as error:
        why = str(error) or type(error).__name__
    return PreflightFinding(
        f"the sandbox at {base} does not answer /v1/ping ({why})",
        "sandbox.url",
        "start it (python -m rewards.sandbox serve), or use the embedded one: sandbox.url=null",
    )


def _incapable(url: str | None, isolation: str | None, needed: list[str]) -> PreflightFinding | None:
    name = f"the sandbox at {url}" if url else "the embedded sandbox"
    where = "sandbox.url" if url else "sandbox.isolation"
    try:
        result = asyncio.run(_import_in_a_program(url, isolation, needed))
    except (InfrastructureError, ValueError, OSError) as error:
        return PreflightFinding(
            f"{name} can't run programs: {error}", where, "see docs/reference/sandbox.md for its needs"
        )
    problem = readiness.problem(result)
    fix = "install them where that sandbox runs, in the interpreter of its server"
    return PreflightFinding(f"{name}: {problem}", where, fix) if problem else None


async def _import_in_a_program(url: str | None, isolation: str | None, needed: list[str]) -> dict[str, Any]:
    async with Sandbox(url, isolation=isolation, attempts=2, queue_timeout=30.0) as sandbox:
        code = readiness.program(readiness.IMPORTED, needed)
        return vars(await sandbox.run(code, timeout=readiness.SECONDS, memory_mb=readiness.MEMORY_MB))
