"""Preflight checks that the run's sandbox supports what the rows need."""

import json
from pathlib import Path

import pandas as pd
import pytest

from recipe.checks import sandbox
from recipe.records.run_directory import RunDirectory
from rewards.sandbox import InfrastructureError
from rewards.sandbox.client import readiness
from tests.composing import composed
from tests.rewards.sandbox.conftest import start_server

MATH = "reward.custom_reward_function.reward_kwargs.gsm8k_extraction=math_verify"


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.prepare(str(tmp_path / "outputs"), "quickstart", "r")


def _file(folder: Path, *rows: tuple[str, dict]) -> str:
    path = folder / "rows.parquet"
    records = [{"data_source": name, "reward_model": {"ground_truth": json.dumps(truth)}} for name, truth in rows]
    pd.DataFrame(records).to_parquet(path)
    return f"data.train_files={path}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "more", "needed"),
    [
        ([("countdown", {})], [], None),
        ([("countdown", {}), ("code", {})], [], []),
        ([("stdio", {})], [], []),
        ([("sql", {"engine": "sqlite"})], [], []),
        ([("sql", {})], [], []),
        ([("sql", {"engine": "sqlite"}), ("sql", {"engine": "duckdb"})], [], ["duckdb"]),
        ([("gsm8k", {"answer": "1"})], [], None),
        ([("gsm8k", {"answer": "1"})], [MATH], ["math_verify"]),
        ([("latex", {"answer": "1"})], [], ["math_verify"]),
        ([("gsm8k", {"answer": "1"}), ("sql", {"engine": "duckdb"})], [MATH], ["duckdb", "math_verify"]),
        ([("countdown", {})], [MATH], None),
    ],
)
def test_the_packages_follow_from_rows_and_reward(tiny_arguments, tmp_path, rows, more, needed):
    files = _file(tmp_path, *rows)
    config = composed(*tiny_arguments, files, files.replace("train", "val", 1), *more)
    assert sandbox.packages_needed(config) == needed


@pytest.mark.slow
def test_files_that_can_not_be_read_are_left_to_the_check_of_the_data(tiny_arguments, tmp_path):
    missing = [f"data.{name}={tmp_path}/none.parquet" for name in ("train_files", "val_files")]
    assert sandbox.packages_needed(composed(*tiny_arguments, *missing)) is None


def test_reward_settings_that_are_none_are_left_to_their_own_check(tiny_arguments, tmp_path):
    files = _file(tmp_path, ("gsm8k", {"answer": "1"}), ("code", {}))
    config = composed(*tiny_arguments, files, files.replace("train", "val", 1))
    config.reward.custom_reward_function.reward_kwargs = 5
    assert sandbox.packages_needed(config) == []


def test_a_run_without_programs_starts_no_sandbox(tiny_arguments, tmp_path, run, monkeypatch):
    monkeypatch.setattr(sandbox, "_import_in_a_program", pytest.fail)
    files = _file(tmp_path, ("countdown", {}))
    assert sandbox.check(composed(*tiny_arguments, files, files.replace("train", "val", 1)), run) == []


def test_an_embedded_sandbox_that_does_not_start_is_a_problem(tiny_arguments, tmp_path, run, monkeypatch):
    async def refuse(*_: object) -> None:
        raise InfrastructureError("isolation best: this machine can't protect itself")

    monkeypatch.setattr(sandbox, "_import_in_a_program", refuse)
    (problem,) = sandbox.check(composed(*tiny_arguments, _file(tmp_path, ("code", {}))), run)
    assert "the embedded sandbox can't run programs: isolation best" in str(problem)
    assert problem.where == "sandbox.isolation"


@pytest.mark.slow
@pytest.mark.parametrize("named", [True, False])
def test_a_package_that_programs_can_not_import_is_a_problem(tiny_arguments, tmp_path, run, monkeypatch, named):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    arguments = [*tiny_arguments, _file(tmp_path, ("sql", {"engine": "duckdb"})), "sandbox.isolation=best"]
    server = start_server(workers=1) if named else None
    try:
        config = composed(*arguments, *([f"sandbox.url={server.url}/run_code"] if server else []))
        assert sandbox.check(config, run) == []
        monkeypatch.setattr(readiness, "IMPORTED", ("numpy", "no_such_package"))
        (problem,) = sandbox.check(config, run)
        assert "no_such_package: ModuleNotFoundError" in str(problem)
        assert (str(problem).startswith("the sandbox at http"), problem.where == "sandbox.url") == (named, named)
    finally:
        if server:
            server.stop()
