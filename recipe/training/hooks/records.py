"""Our hooks for what a step of verl's V1 trainers leaves in the run's records, also if the run then dies.

verl computes the metrics of a step last, after its checkpoint, the transfer of weights and its validation. A run that
dies in between resumes with the next step, so a checkpoint keeps the metrics so far, and the next start records them.
"""

import copy
import json
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf
from transfer_queue import KVBatchMeta

from recipe.health.alerts import Alerts
from recipe.records.experiment_page import failure_logged, update_report, write_credit_page
from recipe.records.run_directory import STEP_TIME, numbers, write_atomically
from recipe.records.skill_record import stage_metrics, update_skill_report
from recipe.training.hooks.validation import ValidationHooks
from recipe.training.protector import checkpoint_folder
from recipe.training.step_samples import readable_samples

METRICS_FILE = "metrics.json"
"""In a checkpoint: metrics of its step, without those of what follows it."""
VALIDATED = "skill/mean/accuracy"
"""A metric of every validation."""


class RecordHooks(ValidationHooks):
    """The part of our hooks that writes metrics, samples and reports; `recipe.training.hooks.step` has the rest."""

    alerts: Alerts
    _trained: tuple[KVBatchMeta, dict[str, Any]]  # the step's batch and its metrics so far
    _unrecorded: dict[str, Any] | None = None  # metrics of the checkpoint's step, of which the run has no row

    def on_init_end(self) -> None:
        super().on_init_end()
        resume_in_trackio(self.config)

    def step(self, metrics: dict[str, Any], timing_raw: dict[str, Any]) -> KVBatchMeta:
        batch = super().step(metrics, timing_raw)
        samples = readable_samples(batch, self.settings.run.generations_per_step, self.tokenizer)
        if samples:
            self.run_directory.log_generations(self.global_steps, "train", samples)
        self._trained = batch, metrics
        return batch

    def _save_checkpoint(self) -> None:
        # Before the rest, because verl then marks this checkpoint as the latest.
        folder = checkpoint_folder(self.config.trainer, self.global_steps)
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / METRICS_FILE, json.dumps(self._metrics_so_far()))
        super()._save_checkpoint()

    def _metrics_so_far(self) -> dict[str, float]:
        """verl's metrics of this step, with the seconds of its parts until now as those of the step."""
        batch, metrics = self._trained
        seconds = self.timing_raw | {"step": sum(self.timing_raw.values())}
        found, epoch = dict(metrics), (self.global_steps - 1) // self.steps_per_epoch
        counts = self._rollout_moe_lb_metrics_accumulator
        self._rollout_moe_lb_metrics_accumulator = copy.deepcopy(counts)  # each computation adds to it
        super()._compute_metrics(batch, found, seconds, global_steps=self.global_steps, epoch=epoch)
        self._rollout_moe_lb_metrics_accumulator = counts
        return numbers(found)

    def _load_checkpoint(self) -> None:
        self.run_directory.repair_marker()
        super()._load_checkpoint()
        path = checkpoint_folder(self.config.trainer, self.global_steps) / METRICS_FILE
        if path.exists() and not self._has_row():
            self._unrecorded = json.loads(path.read_text())

    def _log_first_validation(self, metrics: dict[str, Any]) -> None:
        self._log_metrics(self.global_steps, (self._unrecorded or {}) | metrics)

    def on_train_begin(self) -> None:
        if self._unrecorded is not None:
            self._record_checkpoint(self._unrecorded)
        super().on_train_begin()

    def _record_checkpoint(self, metrics: dict[str, Any]) -> None:
        """Record the step of the checkpoint, with the validation that the run owes it."""
        first, self.global_steps = self.global_steps, self._start_step
        every, last = self.config.trainer.test_freq, self.global_steps >= self.total_training_steps
        if not self._has_row() and every > 0 and (last or self.global_steps % every == 0):
            self.on_validate_begin()
            metrics = metrics | self._validate()
            self.on_validate_end()
        if not self._has_row():
            self._log_metrics(self.global_steps, metrics)
        self.logger.log(data=metrics, step=self.global_steps)
        self.global_steps = first

    def _log_metrics(self, step: int, metrics: dict[str, Any]) -> None:
        """Record a step's metrics, plus the stage's metrics at the end of a stage."""
        if VALIDATED in metrics:
            metrics.update(stage_metrics(self.run_directory, metrics | {"step": step}, self.settings))
        self.alerts.check(self.run_directory.log_metrics(step, metrics))

    def _compute_metrics(
        self, batch: KVBatchMeta, metrics: dict[str, Any], timing_raw: dict[str, Any], global_steps: int, epoch: int
    ) -> None:
        super()._compute_metrics(batch, metrics, timing_raw, global_steps=global_steps, epoch=epoch)
        self._log_metrics(global_steps, metrics)
        self.run_directory.log_event(
            "step", step=global_steps, reward=metrics.get("critic/score/mean"),
            accuracy=metrics.get(VALIDATED), seconds=metrics.get(STEP_TIME),
        )  # fmt: skip
        if VALIDATED in metrics:
            with failure_logged(self.run_directory, global_steps):
                update_report(self.run_directory)
                update_skill_report(self.run_directory, self.settings)
                write_credit_page(self.run_directory, global_steps)


def resume_in_trackio(config: DictConfig) -> None:
    """Begin the run in trackio, or resume it: verl would begin another one of its name after each restart."""
    if "trackio" not in config.trainer.logger:
        return
    import trackio

    trackio.init(
        project=config.trainer.project_name,
        name=config.trainer.experiment_name,
        config=cast(dict[str, Any], OmegaConf.to_container(config, resolve=True)),
        resume="allow",
    )
