"""Alerts of a run: what its health finds while it trains, once per rule, in its events, in W&B and in trackio."""

import time
from collections.abc import Sequence

from omegaconf import DictConfig

from recipe.health.record import Record
from recipe.health.rules import Finding, findings
from recipe.records.experiment_page import failure_logged
from recipe.records.run_directory import RunDirectory

ALERTED = ("masked", "collapsed", "entropy", "near line", "line")
"""Rules that a step can break permanently; the others are read when a run has ended (`recipe.doctor`)."""
EVENT = "alert"
KEPT = 64
"""Of the first rows and of the newest ones: rules compare the two, and have read the others when they were new."""


class Alerts:
    """Sends each kind of finding once per run, also over restarts: the events record which ones were sent."""

    def __init__(self, run: RunDirectory, config: DictConfig):
        self._run, self._config = run, config
        self._rows = run.metrics()
        self._sent = {event.get("rule") for event in run.events() if event["event"] == EVENT}

    def check(self, row: dict[str, float]) -> None:
        """Judge the run with this row of metrics, its newest, and send what is found for the first time."""
        self._rows.append(row)
        del self._rows[KEPT:-KEPT]
        waiting = [name for name in ALERTED if name not in self._sent]
        with failure_logged(self._run, int(row["step"])):
            for finding in findings(Record(self._rows, [], self._config, time.time()), waiting):
                self._sent.add(finding.rule.name)
                self._run.log_event(EVENT, step=int(row["step"]), rule=finding.rule.name, seen=finding.seen)
                send(finding, self._config.trainer.logger)


def send(finding: Finding, loggers: str | Sequence[str]) -> None:
    """Raise the finding as an alert of this process's runs in W&B and trackio, where the run logs to them."""
    # Backticks and the like are Markdown, which both show.
    text = f"{finding.seen}. Healthy: {finding.rule.metric}: {finding.rule.healthy}. Try: {finding.rule.advice}"
    title = f"health: {finding.rule.name}"
    if "wandb" in loggers:
        import wandb

        if wandb.run is not None:
            wandb.run.alert(title=title, text=text, level="WARN")
    if "trackio" in loggers:
        import trackio

        if trackio.context_vars.current_run.get() is not None:
            trackio.alert(title=title, text=text)
