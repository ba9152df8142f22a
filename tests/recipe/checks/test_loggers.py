"""Without a login of W&B a run is refused before it starts, unless it needs none."""

import os
from pathlib import Path

import pytest
import wandb

from recipe.checks import loggers
from recipe.records.run_directory import RunDirectory
from tests.composing import composed

LOGS_THERE = "trainer.logger=[console,wandb]"


@pytest.fixture(autouse=True)
def _no_account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))  # where `wandb login` keeps the key
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))


def found(tmp_path: Path, *overrides: str) -> list[str]:
    return [str(one) for one in loggers.check(composed("experiment=quickstart", *overrides), RunDirectory(tmp_path))]


@pytest.mark.slow
def test_no_account_is_refused_with_the_ways_out(tmp_path: Path):
    (problem,) = found(tmp_path, LOGS_THERE)
    assert "W&B has no login" in problem
    assert "trainer.logger" in problem
    assert "WANDB_MODE=offline" in problem


def test_a_login_that_cannot_be_used_is_refused_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def rejected(prompt: bool) -> bool:
        raise wandb.errors.UsageError("the key is too short")

    monkeypatch.setattr(wandb, "login", rejected)
    (problem,) = found(tmp_path, LOGS_THERE)
    assert "W&B's login could not be verified: the key is too short" in problem


def test_a_login_is_accepted_and_leaves_no_service_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(wandb, "login", lambda prompt: True)
    assert found(tmp_path, LOGS_THERE) == []
    assert "WANDB_SERVICE" not in os.environ


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "environment"),
    [
        ([], {}),
        ([LOGS_THERE], {"WANDB_MODE": "offline"}),
        ([LOGS_THERE], {"RAY_ADDRESS": "head:6379"}),  # its nodes may have one
    ],
)
def test_a_run_that_needs_no_login_here_is_not_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overrides: list[str], environment: dict[str, str]
):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert found(tmp_path, *overrides) == []
