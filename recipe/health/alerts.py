"""Alerts of a run: what its health finds while it trains, once per rule, in its events and in W&B."""

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
                send_to_wandb(finding, self._config.trainer.logger)


def send_to_wandb(finding: Finding, loggers: str | Sequence[str]) -> None:
    """Raise the finding as an alert of this process's W&B run, if the run logs to W&B."""
    if "wandb" not in loggers:
        return
    import wandb

    if wandb.run is not None:
        # Backticks and the like are Markdown, which W&B's messages show.
        text = f"{finding.seen}. Healthy: {finding.rule.metric}: {finding.rule.healthy}. Try: {finding.rule.advice}"
        wandb.run.alert(title=f"health: {finding.rule.name}", text=text, level="WARN")
