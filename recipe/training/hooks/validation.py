"""Our hooks in validations of verl's V1 trainers: accuracy of skills, greedy accuracy, what restarts may decide."""

from typing import Any

from verl.trainer.ppo.v1.trainer_base import PPOTrainer

from recipe.records.experiment_page import failure_logged, update_report
from recipe.records.run_directory import RunDirectory
from recipe.runtime.death_watch import require_living
from recipe.settings import Settings
from recipe.training.hooks.replay_buffers import FAILED_PROMPTS
from recipe.training.hooks.shared_validation import read_shared, share, shared_file
from recipe.training.protector import Protector
from recipe.training.schedule import PromptSchedule
from recipe.training.skill_accuracy import RESAMPLED, accuracy_by_skill, means_over_prompts, without_masked
from recipe.training.step_samples import FewerAnswers, GreedyPrompts, greedy_metrics
from rewards.environments import recovery
from rewards.skills import skill_assigner

FIRST_AND_FINAL = ("first_acc", "acc")
KNOWN_AFTER = 2.0
"""Seconds after which Ray knows of an actor's death that others have noticed."""


class ValidationHooks(PPOTrainer):
    """The part of our hooks that validates; `recipe.training.hooks.step` has the rest."""

    settings: Settings
    run_directory: RunDirectory
    protector: Protector
    schedule: PromptSchedule | None
    _start_step: int

    def _log_first_validation(self, metrics: dict[str, Any]) -> None:
        """Record a validation before this process's first step."""
        raise NotImplementedError

    @property
    def _servers(self) -> Any:
        """verl's manager of the engines that answer."""
        return self.llm_server_manager

    def _require_living(self) -> None:
        """Fail if a process died while answers were generated and verified.

        Without its answers verl would train on, or validate, what others there are.

        Raises:
            ProcessDied, ray.exceptions.RayError: which process.
        """
        engines = self._servers.server_handles if self.config.actor_rollout_ref.rollout.name == "vllm" else []
        failed = getattr(self.replay_buffer, "failed", 0)  # none in a user's sampler
        require_living(engines, KNOWN_AFTER if failed else 0.0)

    def _val_metrics_update(
        self,
        data_sources: list[str],
        sample_uids: list[str],
        reward_extra_infos_dict: dict[str, list[Any]],
        sample_turns: list[Any],
        expected_acc_counts: dict[tuple[str, str], int] | None = None,
    ) -> dict[str, float]:
        ours = accuracy_by_skill(reward_extra_infos_dict)
        ours |= recovery_metrics("agent", [reward_extra_infos_dict.get(key, []) for key in FIRST_AND_FINAL])
        infos, counts = without_masked(data_sources, sample_uids, reward_extra_infos_dict, expected_acc_counts)
        resampled = {name: values for name, values in infos.items() if name in RESAMPLED}
        metrics = super()._val_metrics_update(
            data_sources, sample_uids, resampled, sample_turns, expected_acc_counts=counts
        )
        return metrics | means_over_prompts(data_sources, sample_uids, infos) | ours

    def _validate(self) -> dict[str, float]:
        self.run_directory.log_event("validate", step=self.global_steps)
        metrics = self._shared_or_measured()
        metrics |= self.protector.forgotten(metrics)
        # A validation that only a restart adds must not decide: an uninterrupted run would not have it.
        every = self.config.trainer.test_freq
        if self.global_steps == 0 or (every > 0 and self.global_steps % every == 0):
            self.protector.record_validation(metrics)
        # A validation before this process's first step belongs to no step that writes a row of metrics. It gets its
        # own row, unless the run already wrote one for this step before it was stopped.
        if self.config.trainer.val_only or (self.global_steps == self._start_step and not self._has_row()):
            self._log_first_validation(metrics)
            with failure_logged(self.run_directory, self.global_steps):
                update_report(self.run_directory)
        return metrics

    def _shared_or_measured(self) -> dict[str, float]:
        """Metrics of the validation's answers; before training those of a run that began alike, if wanted."""
        first = self.global_steps == 0 and self.settings.run.share_first_validation
        file = shared_file(self.config, self.run_directory) if first else None
        if file is None:
            return self._measured()
        if found := read_shared(file):
            run, metrics = found
            self.run_directory.log_event("validation_shared", run=run)
            return metrics
        failed = self._failed_prompts
        metrics = self._measured()
        if self._failed_prompts == failed:
            with failure_logged(self.run_directory, self.global_steps):
                share(file, self.run_directory, metrics)
        return metrics

    @property
    def _failed_prompts(self) -> int:
        """Number of times that answers of prompts failed in this run."""
        return sum(event["event"] == FAILED_PROMPTS for event in self.run_directory.events())

    def _measured(self) -> dict[str, float]:
        prompts = self.val_dataloader
        self.val_dataloader = self._validated_prompts(prompts)
        try:
            metrics = super()._validate()
        finally:
            self.val_dataloader = prompts
        self._require_living()
        return metrics | self._greedy_accuracy(metrics)

    def _validated_prompts(self, prompts: Any) -> Any:
        """The validation's prompts; in the middle of a run fewer answers of skills that its stage did not train."""
        few = self.settings.protocol.val_n_of_others
        if few is None or self.schedule is None or not 0 < self.global_steps < self.total_training_steps:
            return prompts
        skills, plan = self.settings.skills, self.schedule.plan
        fully = plan.stages[int(plan.stage[self.global_steps - 1])]
        answers = self.config.actor_rollout_ref.rollout.val_kwargs.n, few
        return FewerAnswers(prompts, skill_assigner(skills.by, skills.column, skills.function), fully, answers)

    def _greedy_accuracy(self, metrics: dict[str, float]) -> dict[str, float]:
        """Greedy accuracy on the validation prompts, by a second validation unless the first (`metrics`) was greedy."""
        if self.config.actor_rollout_ref.rollout.val_kwargs.temperature == 0:
            return greedy_metrics(metrics)
        if not self.settings.run.greedy_validation:
            return {}
        sampled = self.val_dataloader
        self.val_dataloader = GreedyPrompts(sampled)
        try:
            greedy = greedy_metrics(super()._validate())
        finally:
            self.val_dataloader = sampled
        self._require_living()
        return greedy

    def _dump_generations(
        self, inputs: Any, outputs: Any, gts: Any, scores: Any, reward_extra_infos_dict: Any, dump_path: str
    ) -> None:
        # verl names a dump by its step only: in the same folder, greedy answers would overwrite the sampled ones.
        folder = f"{dump_path}/greedy" if isinstance(self.val_dataloader, GreedyPrompts) else dump_path
        super()._dump_generations(inputs, outputs, gts, scores, reward_extra_infos_dict, folder)

    def _has_row(self) -> bool:
        return any(row["step"] == self.global_steps for row in self.run_directory.metrics())


def recovery_metrics(prefix: str, columns: list[list[Any]]) -> dict[str, float]:
    """`rewards.environments.recovery` of the columns FIRST_AND_FINAL; empty if no agent acted."""
    return {f"{prefix}/{name}": value for name, value in recovery(zip(*columns, strict=False)).items()}
