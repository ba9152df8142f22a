"""Alerts reach a real offline file of W&B, once per rule and run, and the run's events."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import wandb
from omegaconf import DictConfig, OmegaConf

from recipe.health.alerts import Alerts
from recipe.records.run_directory import RunDirectory
from tests.e2e.wandb_file import parsed, wait_for_exit

CONFIG: DictConfig = OmegaConf.create({"trainer": {"logger": ["console", "wandb"]}})
LINE = {"actor/projection/verified_level/sql": 0.2, "actor/projection/line/sql": 0.3}


def train(run: RunDirectory, rows: Mapping[int, Mapping[str, float]], config: DictConfig = CONFIG) -> None:
    """What a start of the trainer does with the metrics of these steps."""
    alerts = Alerts(run, config)
    for step, metrics in rows.items():
        alerts.check(run.log_metrics(step, dict(metrics)))


def recorded(run: RunDirectory) -> list[tuple[int, str]]:
    return [(event["step"], event["rule"]) for event in run.events() if event["event"] == "alert"]


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.prepare(str(tmp_path), "e", "r")


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of an offline W&B run that is under way."""
    monkeypatch.setenv("WANDB_SILENT", "true")
    wandb.init(project="p", dir=str(tmp_path), mode="offline")
    yield tmp_path
    wandb.finish()


@pytest.mark.slow
def test_each_kind_of_finding_is_one_alert_in_the_offline_file(run: RunDirectory, offline: Path) -> None:
    entropy = {step: {"actor/entropy": 1.0 if step <= 5 else 0.01} for step in range(1, 11)}
    masked = {3: {"reward/masked_share": 0.25}, 4: {"reward/masked_share": 0.5}}
    train(run, {step: row | masked.get(step, {}) for step, row in entropy.items()})
    train(run, {11: LINE, 12: LINE, 13: {"reward/masked_share": 0.5}})  # the run was stopped and resumed
    assert recorded(run) == [(3, "masked"), (10, "entropy"), (11, "line")]
    wandb.finish()
    (file,) = offline.glob("wandb/offline-run-*/*.wandb")
    wait_for_exit(file)
    alerts = list(parsed(file, "alert"))
    assert [one.title for one in alerts] == ["health: masked", "health: entropy", "health: line"]
    assert alerts[0].text.startswith("samples without a verdict in 1 steps, most in step 3: 25.0%. Healthy: ")
    assert alerts[1].text.startswith("fell from 1 to 0.01 nats per token")
    assert alerts[2].text.startswith("sql ended step 11 below its line")
    assert {one.level for one in alerts} == {"WARN"}


def test_j_near_its_line_alerts_before_it_crosses_and_crossing_alerts_again(run: RunDirectory) -> None:
    levels = {1: 0.99, 2: 0.95, 3: 0.92, 4: 0.91, 5: 0.89}
    constant = {"actor/projection/anchor/sql": 1.0, "actor/projection/line/sql": 0.9}
    rows = {step: constant | {"actor/projection/verified_level/sql": level} for step, level in levels.items()}
    train(run, rows, OmegaConf.create({"trainer": {"logger": ["console"]}}))
    assert recorded(run) == [(3, "near line"), (5, "line")]


def test_a_policy_that_collapses_alerts_while_it_trains(run: RunDirectory) -> None:
    accuracy = {step: {"train_skill/parts/accuracy": 0.7 if step <= 37 else 0.0} for step in range(1, 45)}
    train(run, accuracy, OmegaConf.create({"trainer": {"logger": ["console"]}}))
    assert recorded(run) == [(41, "collapsed")]  # the mean of five steps is below a third of 70%


def test_a_healthy_run_alerts_nobody(run: RunDirectory) -> None:
    train(run, {step: {"actor/entropy": 1.0, "reward/masked_share": 0.0, "reward/acc": 0.0} for step in range(1, 9)})
    assert run.events() == []


def test_a_run_that_does_not_log_to_wandb_records_the_alert_alone(run: RunDirectory, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)  # an import would fail
    train(run, {1: {"reward/masked_share": 0.5}}, OmegaConf.create({"trainer": {"logger": ["console"]}}))
    assert recorded(run) == [(1, "masked")]


def test_a_failing_alert_is_recorded_and_training_continues(run: RunDirectory, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    train(run, {1: {"reward/masked_share": 0.5}, 2: LINE})
    assert [event["event"] for event in run.events()] == ["alert", "report_failed", "alert", "report_failed"]
