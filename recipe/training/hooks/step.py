"""Our hooks in a step of verl's V1 trainers, of any mode; they copy no code of verl's step.

Each hook delegates to the module that implements it: prompts (`schedule`, `retries`), masking (`step_samples`), credit
(`credit_batch`), skills, protection and its state (`batch_skills`, `protector`).
"""

from functools import cached_property
from itertools import count
from typing import Any

import ray
import transfer_queue as tq
from omegaconf import OmegaConf
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.utils import Role
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.utils import tensordict_utils as tu

from recipe.health.alerts import Alerts
from recipe.records.run_directory import RunDirectory
from recipe.runtime.stop_request import stop, stop_requested
from recipe.settings import read_settings
from recipe.training.batch_skills import (
    accepted_solutions,
    balanced_over_ranks,
    by_prompt,
    constraint_fields,
    memory_flags,
    order_for_constraints,
    prompt_of,
)
from recipe.training.credit_batch import check_failures, shaped_by_credit
from recipe.training.failure_buffer import FailureBuffer
from recipe.training.hooks.records import RecordHooks
from recipe.training.hooks.replay_buffers import Patience, WatchedReplayBuffer
from recipe.training.hooks.validation import FIRST_AND_FINAL, recovery_metrics
from recipe.training.protector import (
    Protector,
    checkpoint_folder,
    has_plain_loss,
    load_state,
    resumed_folder,
    save_state,
)
from recipe.training.retries import prompt_batch, record_failures, rows_of_tasks, with_failed_again
from recipe.training.schedule import PromptSchedule, make_schedule
from recipe.training.skill_accuracy import skill_rewards, standardizes, training_accuracy
from recipe.training.step_samples import (
    TIMES_BEFORE,
    TimesBefore,
    check_share,
    component_means,
    digest_of_prompts,
    fetch,
    jagged,
    leave_out,
    masked_positions,
    reward_infos,
)
from rewards.counterfactual.groups import is_relative
from rewards.manager import TRAINED_ON
from rewards.skills import task_of
from workers.actor import CpuReadyTrainingWorker, SkillCreditActorRolloutRefWorker
from workers.agop import AGOP, PART, prompt_parts
from workers.update_request import PENALTY, PROTECTION


class SkillCreditHooks(RecordHooks):
    """Masked infrastructure failures, credit, skills and records, in front of a trainer of verl's that sets MODE."""

    MODE: str
    """The mode whose name verl compares: that of verl's own trainer behind these hooks."""
    SAMPLED_LOG_PROBS = "old_log_probs"
    """verl's field of the log-probabilities by the policy that sampled."""
    ACTOR_WORKER: type = SkillCreditActorRolloutRefWorker
    """The Ray actor of policy and reference."""

    def __init__(self, config: Any):
        self.settings = read_settings(config)
        self.run_directory = RunDirectory(config.run.directory)
        self.alerts = Alerts(self.run_directory, config)
        actor = config.actor_rollout_ref.actor
        self.protector = Protector(self.settings, has_plain_loss(actor), actor.loss_agg_mode, config.data.seed)
        self.failures = FailureBuffer(self.settings.failures.capacity)
        self.schedule: PromptSchedule | None = None
        self._memory_prompts: set[str] = set()
        self._submission_order: dict[str, int] = {}  # of each prompt that is being answered
        self._next_submission = count()
        self._times = TimesBefore()
        super().__init__(config)

    def _build_replay_buffer(self) -> ReplayBuffer:
        # verl compares this name in many places; ours are its trainers under other names.
        self.trainer_mode = self.MODE
        buffer = super()._build_replay_buffer()
        # verl polls every 2 s without a config key: with small models that is most of a step.
        buffer.poll_interval = self.settings.run.poll_interval
        own = self._own_buffers.get(type(buffer))  # none for a user's sampler
        batches = OmegaConf.select(self.config, "algorithm.filter_groups.max_num_gen_batches") or 0
        patience = Patience(self.config.data.train_batch_size, batches, self.settings.run.max_masked_share)
        return own.in_place_of(buffer, patience, self.run_directory) if own else buffer

    @property
    def _own_buffers(self) -> dict[type[ReplayBuffer], type[WatchedReplayBuffer]]:
        """Our buffer in place of each of verl's."""
        return {ReplayBuffer: WatchedReplayBuffer}

    def _init_dataloader(self) -> None:
        super()._init_dataloader()
        data, rows = self.config.data, self.train_dataset.dataframe
        self.schedule = make_schedule(self.settings, rows, data.train_batch_size, self.total_training_steps, data.seed)

    def _fetch_one_gen_batch(self) -> TensorDict:
        """The next prompts: the plan's, or verl's own."""
        if self.schedule is None:
            share, batch = self.settings.failures.share, super()._fetch_one_gen_batch()
            if share == 0:
                return batch
            return with_failed_again(batch, self.failures, share, self.train_dataset, self._rows_of_tasks)
        prompts = self.schedule.at(self.global_steps)
        batch = prompt_batch(self.train_dataset, prompts.rows)
        self._memory_prompts = {uid for uid, memory in zip(batch["uid"], prompts.memory, strict=True) if memory}
        return batch

    @cached_property
    def _rows_of_tasks(self) -> dict[str, int]:
        return rows_of_tasks(self.train_dataset)

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()
        for role in (Role.Actor, Role.ActorRollout, Role.ActorRolloutRef, Role.RefPolicy):
            if role in self.role_worker_mapping:
                self.role_worker_mapping[role] = ray.remote(self.ACTOR_WORKER)
        if Role.Critic in self.role_worker_mapping:
            # verl annotates this table with the type of its first entry.
            self.role_worker_mapping[Role.Critic] = ray.remote(CpuReadyTrainingWorker)  # type: ignore[assignment]

    def _submit_batch_to_rollout(self, batch: TensorDict) -> int:
        self.run_directory.log_event(
            "prompts", step=self.global_steps, count=len(batch), digest=digest_of_prompts(list(batch["extra_info"]))
        )
        if self.settings.credit.kind != "off":
            # Validation samples do not pass through here, so they never get replays.
            tu.assign_non_tensor_stack(batch, TRAINED_ON, [True] * len(batch))
        tu.assign_non_tensor_stack(batch, TIMES_BEFORE, self._times_before(batch))
        self._submission_order |= dict(zip(batch["uid"], self._next_submission, strict=False))
        return super()._submit_batch_to_rollout(batch)

    def _times_before(self, batch: TensorDict) -> list[int]:
        """For each prompt, a number that distinguishes it from others of the step and task; it decides the seeds."""
        return self._times.of(self.global_steps, map(task_of, list(batch["extra_info"])))

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        infos = reward_infos(batch)
        masked, share = masked_positions(infos)
        metrics["reward/masked_share"] = share
        metrics.update(component_means(infos))
        if self.settings.failures.share > 0:
            metrics.update(record_failures(batch, infos, self.failures))
        if self.schedule is not None and self.schedule.learns:
            tasks = list(map(task_of, list(fetch(batch, "extra_info")["extra_info"])))
            metrics.update(self.schedule.record(infos, [prompt_of(key) for key in batch.keys], tasks))
        if masked:
            self.run_directory.log_event("masked", step=self.global_steps, samples=len(masked), share=share)
            check_share(share, self.settings.run.max_masked_share, self.global_steps, self.run_directory.path)
            leave_out(batch, masked)
        batch = super()._compute_advantage(batch, metrics)
        if self.settings.credit.kind != "off":
            batch = self._shape_advantages(batch, infos, metrics)
        trained = training_accuracy(infos)
        self.protector.record_training(trained)
        metrics.update(
            trained | recovery_metrics("train_agent", [[info.get(key) for info in infos] for key in FIRST_AND_FINAL])
        )
        if self.settings.projection.closed_loop:
            prompts, standardized = [prompt_of(key) for key in batch.keys], standardizes(self.config.algorithm)
            tokens = [float(mask.sum()) for mask in fetch(batch, "response_mask")["response_mask"].unbind()]
            self.protector.record_rewards(skill_rewards(infos, prompts, tokens, standardized))
        if self.protector.solutions is not None:
            for skill, task, solution in accepted_solutions(batch, infos, self._memory_prompts):
                self.protector.solutions.add(skill, task, solution)
        if self.settings.projection.method != "off":
            batch = self._name_skills(batch, infos)
        return self._name_agop_parts(batch) if self._agop_parts else batch

    @property
    def _agop_parts(self) -> int:
        """Number of batch parts whose policy gradients this step measures; 0 if it measures none."""
        agop = self.settings.agop
        return agop.parts if agop.every and self.global_steps % agop.every == 0 else 0

    def _name_agop_parts(self, batch: KVBatchMeta) -> KVBatchMeta:
        """Add to each sample the part of the batch whose policy gradient it belongs to."""
        parts = prompt_parts([prompt_of(key) for key in batch.keys], self._agop_parts)
        fields = TensorDict({PART: parts}, batch_size=len(parts))
        return tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=fields)

    def _name_skills(self, batch: KVBatchMeta, infos: list[dict[str, Any]]) -> KVBatchMeta:
        """Add to each sample its skill, its half, and whether it serves constraints only; deal these over the ranks."""
        names = list(self.settings.skills.names or [])
        fields = constraint_fields(names, batch, infos, self._memory_flags(batch))
        batch = tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=fields)
        if self.settings.projection.constraint_source != "solutions":
            batch.reorder(order_for_constraints(batch, fields, self._ranks))
        return batch

    @property
    def _ranks(self) -> int:
        """The actor's data-parallel ranks."""
        return int(max(self.actor_rollout_wg._dispatch_info["actor"])) + 1

    def _memory_flags(self, batch: KVBatchMeta) -> list[bool]:
        return memory_flags(batch, self._memory_prompts, self.config.actor_rollout_ref.rollout.n)

    def _balance_batch(
        self,
        batch: KVBatchMeta,
        metrics: dict[str, Any],
        logging_prefix: str = "global_seqlen",
        keep_minibatch: bool = False,
    ) -> KVBatchMeta:
        self._read_places(batch, metrics)
        batch.reorder(by_prompt(batch.keys, self._submission_order))
        self._submission_order.clear()  # of prompts that verl dropped, too
        batch = super()._balance_batch(batch, metrics, logging_prefix, keep_minibatch)
        if self._memory_prompts:
            lengths = [tag["seq_len"] for tag in batch.tags]
            batch.reorder(balanced_over_ranks(self._memory_flags(batch), lengths, self._ranks))
        return batch

    def _read_places(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> None:
        """For trainers whose batches have prompts of several steps: read which ones, before they are used."""

    @property
    def _plan_step(self) -> int:
        """The plan's step that this update belongs to."""
        return self.global_steps

    def _update_actor(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        stage, guarded, finished, earlier = 0, None, [], []
        if self.schedule is not None and self.settings.stages is not None:
            plan, step = self.schedule.plan, self._plan_step
            stage, guarded = int(plan.stage[step - 1]), plan.guarded(step)
            finished, earlier = plan.just_finished(step), plan.earlier(step)
            metrics["protocol/stage"] = stage + 1
        if protection := self.protector.protection(guarded, self.global_steps):
            batch.extra_info[PROTECTION] = protection.to_dict()
        if penalty := self.protector.wanted_penalty(stage, finished, earlier):
            batch.extra_info[PENALTY] = penalty.to_dict()
        if self._agop_parts:
            batch.extra_info[AGOP] = self._agop_parts
        metrics.update(self.protector.metrics(guarded))
        batch = super()._update_actor(batch, metrics)
        self.protector.record_update(metrics)
        return batch

    def _shape_advantages(
        self, batch: KVBatchMeta, infos: list[dict[str, Any]], metrics: dict[str, Any]
    ) -> KVBatchMeta:
        """Redistribute the advantage over the tokens of each sample by its credits.

        Done before the batch is split over the actor's ranks: groups are whole, and results are the same for any
        number of ranks.
        """
        check_failures(infos, self.global_steps, self.run_directory)
        credit, sampled = self.settings.credit, self.SAMPLED_LOG_PROBS
        data = fetch(batch, "advantages", "response_mask", "uid")
        log_probs = fetch(batch, sampled)[sampled] if credit.max_probability < 1.0 else None
        uids = [str(uid) for uid in list(data["uid"])]
        rows, shaping = shaped_by_credit(
            data["advantages"], data["response_mask"], uids, infos, credit, self.global_steps, log_probs,
            is_relative(self.config.algorithm),
        )  # fmt: skip
        metrics.update(shaping)
        fields = TensorDict({"advantages": jagged(rows)}, batch_size=len(rows))
        return tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=fields)

    def on_init_end(self) -> None:
        super().on_init_end()
        self._start_step = self.global_steps
        self.run_directory.log_event(
            "ready", step=self.global_steps, total_steps=self.total_training_steps, resumed=self.global_steps > 0
        )

    def on_step_begin(self) -> None:
        super().on_step_begin()
        self.run_directory.log_event("generate", step=self.global_steps)

    def on_step_end(self) -> None:
        # Before the engines go on: a checkpoint of samples and prompts that change meanwhile may lack some.
        if self.global_steps < self.total_training_steps and stop_requested(self.run_directory):
            stop(self.run_directory, self.global_steps, self._save_checkpoint)
            self.total_training_steps = self.global_steps  # verl's loop ends
        super().on_step_end()

    def on_sample_end(self) -> None:
        self._require_living()  # before the engines sleep
        super().on_sample_end()
        self.run_directory.log_event("update", step=self.global_steps)

    def _save_checkpoint(self) -> None:
        self.run_directory.log_event("save", step=self.global_steps)
        # Our state first, because verl then marks this checkpoint as the latest.
        failures = self.failures if self.settings.failures.share > 0 else None
        save_state(checkpoint_folder(self.config.trainer, self.global_steps), self.protector, failures, self.schedule)
        super()._save_checkpoint()

    def _load_checkpoint(self) -> None:
        super()._load_checkpoint()
        if self.global_steps > 0:
            folder = resumed_folder(self.config.trainer, self.global_steps)
            load_state(folder, self.protector, self.failures, self.schedule)
