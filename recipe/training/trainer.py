"""verl's synchronous V1 trainer with our hooks. Nothing of verl's step is copied here.

What is ours: the actor worker, masking of samples that could not be verified, accuracy per skill, and the
run directory.
"""

import hashlib
import json
from collections import defaultdict
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import ray
import torch
import transfer_queue as tq
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.utils import Role
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils import tensordict_utils as tu
from verl.utils.dataset.rl_dataset import collate_fn

from recipe.records.credit_page import write_credit_page
from recipe.records.report import update_report
from recipe.records.run_directory import RunDirectory, write_atomically
from recipe.records.skill_record import update_skill_report
from recipe.training.batch_skills import (
    dealt_over_ranks,
    first_accepted,
    memory_flags,
    prompt_halves,
    prompt_of,
    skill_ids,
)
from recipe.training.credit_batch import PREFIX, credit_tensors, replay_metrics
from recipe.training.failure_buffer import FailureBuffer, task_of
from recipe.training.plan import make_plan
from recipe.training.prompts import PromptSchedule, rows_by_skill
from recipe.training.protector import Protector
from recipe.training.settings import read_settings
from recipe.training.skill_accuracy import accuracy_by_skill, training_accuracy, without_masked
from rewards.environments import recovery
from rewards.manager import TRAINED_ON
from workers.actor import CpuReadyTrainingWorker, SkillCreditActorRolloutRefWorker
from workers.constraints import HALF, SKILL
from workers.credit import shape_advantages
from workers.memory_rows import MEMORY
from workers.penalties import PENALTY
from workers.safe_update import PROTECTION
from workers.solution_store import Solution

PROTECTOR_FILE = "protector.json"  # in a checkpoint's folder


class TooManyMaskedError(RuntimeError):
    """More samples of a step than the configured share could not be verified: the reward infrastructure is down."""


@register_trainer("skillcredit")
class SkillCreditTrainer(PPOTrainerSync):
    """Synchronous PPO, GRPO or REINFORCE with masked infrastructure failures, skills and records."""

    def __init__(self, config: Any):
        self.settings = read_settings(config)
        self.run_directory = RunDirectory(config.run.directory)
        self.protector = Protector(self.settings)
        self.failures = FailureBuffer(self.settings.failures.capacity)
        self.schedule: PromptSchedule | None = None
        self._memory_prompts: set[str] = set()
        super().__init__(config)

    def _build_replay_buffer(self) -> ReplayBuffer:
        # verl compares this name in many places; we are its synchronous trainer under a name of our own.
        self.trainer_mode = "sync"
        buffer = super()._build_replay_buffer()
        # verl looks every 2 s and has no key for it: on small models that would be most of a step.
        buffer.poll_interval = self.settings.run.poll_interval
        return buffer

    def _init_dataloader(self) -> None:
        super()._init_dataloader()
        plan = make_plan(self.settings, self.config.data.train_batch_size)
        if plan is not None:
            protocol, rows = self.settings.protocol, rows_by_skill(self.train_dataset.dataframe, self.settings.skills)
            self.schedule = PromptSchedule(plan, rows, protocol.memory_size, protocol.seed)

    def _fetch_one_gen_batch(self) -> TensorDict:
        """The prompts of a plan with stages, or verl's next ones."""
        if self.schedule is None:
            return self._with_failed_again(super()._fetch_one_gen_batch())
        prompts = self.schedule.at(self.global_steps)
        batch: dict[str, Any] = collate_fn([self.train_dataset[row] for row in prompts.rows])
        uids = [str(uuid4()) for _ in prompts.rows]
        batch["uid"] = np.array(uids, dtype=object)
        self._memory_prompts = {uid for uid, memory in zip(uids, prompts.memory, strict=True) if memory}
        return tu.get_tensordict(batch)

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()
        for role in (Role.Actor, Role.ActorRollout, Role.ActorRolloutRef):
            if role in self.role_worker_mapping:
                self.role_worker_mapping[role] = ray.remote(SkillCreditActorRolloutRefWorker)
        if Role.Critic in self.role_worker_mapping:
            # verl types this table by its first entry
            self.role_worker_mapping[Role.Critic] = ray.remote(CpuReadyTrainingWorker)  # type: ignore[assignment]

    def _with_failed_again(self, batch: TensorDict) -> TensorDict:
        """The batch, of which a share makes room for prompts that the policy failed before."""
        count = int(self.settings.failures.share * len(batch))
        kept = batch[: len(batch) - count]
        tasks = self.failures.draw(count, without=map(task_of, list(kept["extra_info"])))
        rows = [self.train_dataset[self._rows_of_tasks[task]] for task in tasks if task in self._rows_of_tasks]
        if not rows:
            return batch
        again = collate_fn(rows)
        again["uid"] = np.array([str(uuid4()) for _ in rows], dtype=object)
        return tu.concat_tensordict([batch[: len(batch) - len(rows)], tu.get_tensordict(again)])

    @cached_property
    def _rows_of_tasks(self) -> dict[str, int]:
        """Where each task stands in the training data, which may have changed since a checkpoint was made."""
        return {task_of(info): row for row, info in enumerate(self.train_dataset.dataframe["extra_info"])}

    def _see_failures(self, batch: KVBatchMeta, infos: list[dict[str, Any]], metrics: dict) -> None:
        tasks = map(task_of, list(self._fetch(batch, "extra_info")))
        judged = [(task, info) for task, info in zip(tasks, infos, strict=True) if info and not info.get("masked")]
        self.failures.see((task, info.get("acc", 0.0) > 0) for task, info in judged)
        metrics["failures/waiting"] = len(self.failures)

    def _checkpoint_folder(self) -> Path:
        """Of this step, or of the checkpoint that the configuration names."""
        named = self.config.trainer.resume_from_path if self.config.trainer.resume_mode == "resume_path" else None
        return Path(named or f"{self.config.trainer.default_local_dir}/global_step_{self.global_steps}")

    def _submit_batch_to_rollout(self, batch: TensorDict) -> int:
        self.run_directory.log_event(
            "prompts", step=self.global_steps, count=len(batch), digest=_digest_of_prompts(list(batch["extra_info"]))
        )
        if self.settings.credit.kind != "off":
            # Validation samples come another way: they never pay for replays.
            tu.assign_non_tensor_stack(batch, TRAINED_ON, [True] * len(batch))
        return super()._submit_batch_to_rollout(batch)

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        extra_fields = list(self._fetch(batch, "extra_fields"))
        # What verl pads a batch with repeats the first sample's components: it has none of its own.
        infos = [
            fields.get("reward_extra_info", {}) if isinstance(fields, dict) and not tag.get("is_padding") else {}
            for fields, tag in zip(extra_fields, batch.tags, strict=True)
        ]
        masked = [position for position, info in enumerate(infos) if info.get("masked")]
        metrics["reward/masked_share"] = len(masked) / max(sum(map(bool, infos)), 1)
        metrics.update(_means_of_numbers(infos))
        if self.settings.failures.share > 0:
            self._see_failures(batch, infos, metrics)
        if masked:
            self._leave_out(batch, masked, metrics["reward/masked_share"])
        batch = super()._compute_advantage(batch, metrics)
        if self.settings.credit.kind != "off":
            batch = self._shape_advantages(batch, infos, metrics)
        metrics.update(training_accuracy(infos))
        metrics.update(_recovery("train_agent", [[info.get(key) for info in infos] for key in ("first_acc", "acc")]))
        if self.protector.solutions is not None:
            self._keep_solutions(batch, infos)
        if self.settings.projection.method != "off":
            batch = self._name_skills(batch, infos)
        return batch

    def _name_skills(self, batch: KVBatchMeta, infos: list[dict[str, Any]]) -> KVBatchMeta:
        """Tell the actor which skill each sample belongs to, in which half, and whether it is memory only."""
        skills = skill_ids(list(self.settings.skills.names or []), infos)
        fields = {
            SKILL: skills,
            HALF: prompt_halves(skills, [prompt_of(key) for key in batch.keys]),
            MEMORY: torch.tensor(self._memory_flags(batch)),
        }
        return tq.kv_batch_put(
            keys=batch.keys, partition_id=batch.partition_id, fields=TensorDict(fields, batch_size=len(skills))
        )

    def _memory_flags(self, batch: KVBatchMeta) -> list[bool]:
        return memory_flags(batch, self._memory_prompts, self.config.actor_rollout_ref.rollout.n)

    def _keep_solutions(self, batch: KVBatchMeta, infos: list[dict[str, Any]]) -> None:
        """Add what the verifier accepted among the samples that are trained on, the first of each prompt."""
        assert self.protector.solutions is not None
        positions = first_accepted(batch.keys, infos, self._memory_prompts)
        if not positions:
            return
        fields = ["prompts", "responses", "response_mask", "extra_info"]
        keys = [batch.keys[position] for position in positions]
        data = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=fields)
        for row, (position, info) in enumerate(zip(positions, list(data["extra_info"]), strict=True)):
            tokens = (data[field][row].tolist() for field in fields[:3])
            self.protector.solutions.add(infos[position]["skill"], _identity(info), Solution(*tokens))

    def _balance_batch(
        self, batch: KVBatchMeta, metrics: dict, logging_prefix: str = "global_seqlen", keep_minibatch: bool = False
    ) -> KVBatchMeta:
        batch = super()._balance_batch(batch, metrics, logging_prefix, keep_minibatch)
        if self._memory_prompts:
            ranks = max(self.actor_rollout_wg._dispatch_info["actor"]) + 1
            lengths = [tag["seq_len"] for tag in batch.tags]
            batch.reorder(dealt_over_ranks(self._memory_flags(batch), lengths, ranks))
        return batch

    def _update_actor(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        stage, earlier, finished = 0, None, []
        if self.schedule is not None:
            plan = self.schedule.plan
            stage, earlier = int(plan.stage[self.global_steps - 1]), plan.earlier(self.global_steps)
            finished = plan.just_finished(self.global_steps)
            metrics["protocol/stage"] = stage + 1
        for key, wanted in (
            (PROTECTION, self.protector.protection(earlier)),
            (PENALTY, self.protector.pull(stage, finished)),
        ):
            if wanted:
                batch.extra_info[key] = wanted
        metrics.update(self.protector.metrics(earlier))
        return super()._update_actor(batch, metrics)

    def _shape_advantages(self, batch: KVBatchMeta, infos: list[dict[str, Any]], metrics: dict) -> KVBatchMeta:
        """Move advantage between the tokens of each sample by its credits.

        Here and not in the actor's ranks: every group is whole, and any number of ranks trains on the same numbers.
        """
        credit = self.settings.credit
        data = tq.kv_batch_get(
            keys=batch.keys, partition_id=batch.partition_id, select_fields=["advantages", "response_mask", "uid"]
        )
        mask = data["response_mask"].to_padded_tensor(0)
        credits, step_ids = credit_tensors(infos, mask.shape[1])
        uids = [str(uid) for uid in list(data["uid"])]
        numbers = {uid: number for number, uid in enumerate(dict.fromkeys(uids))}
        groups = torch.tensor([numbers[uid] for uid in uids])
        shaped, statistics = shape_advantages(
            data["advantages"].to_padded_tensor(0.0), credits, step_ids, mask, strength=credit.strength,
            normalization=credit.normalization, tolerance=credit.tolerance, groups=groups,
        )  # fmt: skip
        metrics.update(statistics | replay_metrics(infos))
        rows = [row[: len(own)] for row, own in zip(shaped, data["advantages"].unbind(), strict=True)]
        fields = TensorDict(
            {"advantages": torch.nested.as_nested_tensor(rows, layout=torch.jagged)}, batch_size=len(rows)
        )
        return tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=fields)

    def _leave_out(self, batch: KVBatchMeta, masked: list[int], share: float) -> None:
        """Give unverified samples no loss tokens and a group of their own, so that no baseline sees them."""
        self.run_directory.log_event("masked", step=self.global_steps, samples=len(masked), share=share)
        if share > self.settings.run.max_masked_share:
            raise TooManyMaskedError(
                f"step {self.global_steps}: {share:.0%} of the samples could not be verified, more than "
                f"run.max_masked_share={self.settings.run.max_masked_share}. The sandbox or a verifier is down: "
                f"see logs/ in {self.run_directory.path}, mend it, and start the same run again."
            )
        keys = [batch.keys[position] for position in masked]
        data = tq.kv_batch_get(
            keys=keys, partition_id=batch.partition_id, select_fields=["uid", "response_mask", "loss_mask"]
        )
        uids = [f"{uid}-masked-{position}" for uid, position in zip(list(data["uid"]), masked, strict=True)]
        fields = {name: _zeros_like_rows(data[name]) for name in ("response_mask", "loss_mask")}
        tq.kv_batch_put(keys=keys, partition_id=batch.partition_id, fields=tu.get_tensordict({**fields, "uid": uids}))

    def _val_metrics_update(
        self,
        data_sources: list[str],
        sample_uids: list[str],
        reward_extra_infos_dict: dict[str, list],
        sample_turns: list,
        expected_acc_counts: dict[tuple[str, str], int] | None = None,
    ) -> dict[str, float]:
        ours = accuracy_by_skill(reward_extra_infos_dict)
        ours |= _recovery("agent", [reward_extra_infos_dict.get(key, []) for key in ("first_acc", "acc")])
        infos, counts = without_masked(data_sources, sample_uids, reward_extra_infos_dict, expected_acc_counts)
        metrics = super()._val_metrics_update(
            data_sources, sample_uids, infos, sample_turns, expected_acc_counts=counts
        )
        return metrics | ours

    def _validate(self) -> dict[str, float]:
        self.run_directory.log_event("validate", step=self.global_steps)
        metrics = super()._validate()
        self.protector.see({name: metrics.get(f"skill/{name}/accuracy") for name in self.protector.all_names})
        metrics |= self.protector.forgotten()
        if self.global_steps == 0 or self.config.trainer.val_only:
            self.run_directory.log_metrics(self.global_steps, metrics)
            update_report(self.run_directory)
        return metrics

    def on_init_end(self) -> None:
        super().on_init_end()
        self.run_directory.log_event(
            "ready", step=self.global_steps, total_steps=self.total_training_steps, resumed=self.global_steps > 0
        )

    def on_step_begin(self) -> None:
        super().on_step_begin()
        self.run_directory.log_event("generate", step=self.global_steps)

    def on_sample_end(self) -> None:
        super().on_sample_end()
        self.run_directory.log_event("update", step=self.global_steps)

    def _save_checkpoint(self) -> None:
        self.run_directory.log_event("save", step=self.global_steps)
        # Before verl names this checkpoint the latest one.
        folder = Path(self.config.trainer.default_local_dir) / f"global_step_{self.global_steps}"
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / PROTECTOR_FILE, json.dumps(self.protector.state()))
        if self.settings.failures.share > 0:
            self.failures.save(folder)
        super()._save_checkpoint()

    def _load_checkpoint(self) -> None:
        super()._load_checkpoint()
        if self.global_steps == 0:
            return
        folder = self._checkpoint_folder()
        self.failures.load(folder)
        if (folder / PROTECTOR_FILE).exists():
            self.protector.restore(json.loads((folder / PROTECTOR_FILE).read_text()))

    def _compute_metrics(
        self, batch: KVBatchMeta, metrics: dict, timing_raw: dict, global_steps: int, epoch: int
    ) -> None:
        super()._compute_metrics(batch, metrics, timing_raw, global_steps=global_steps, epoch=epoch)
        self._keep_generations(batch)
        self.run_directory.log_metrics(global_steps, metrics)
        self.run_directory.log_event(
            "step",
            step=global_steps,
            reward=metrics.get("critic/score/mean"),
            accuracy=metrics.get("skill/mean/accuracy"),
            seconds=metrics.get("timing_s/step"),
        )
        if "skill/mean/accuracy" in metrics:
            update_report(self.run_directory)
            update_skill_report(self.run_directory, self.settings.stages, self.settings.protocol.stage_steps)
            write_credit_page(self.run_directory, global_steps)

    def _keep_generations(self, batch: KVBatchMeta) -> None:
        """Write a few of the step's samples with all their reward components (verl's own dump loses these)."""
        keys = sorted(batch.keys)[: self.settings.run.generations_per_step]
        if not keys:
            return
        data = tq.kv_batch_get(
            keys=keys,
            partition_id=batch.partition_id,
            select_fields=["prompts", "responses", "rm_scores", "extra_fields", "reward_model"],
        )
        self.run_directory.log_generations(self.global_steps, "train", _readable(data, keys, self.tokenizer))

    def _fetch(self, batch: KVBatchMeta, field: str) -> Any:
        return tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=[field])[field]


def _recovery(prefix: str, columns: list[list[Any]]) -> dict[str, float]:
    """`rewards.environments.recovery` of the columns `first_acc` and `acc`; nothing where no agent acted."""
    return {f"{prefix}/{name}": value for name, value in recovery(zip(*columns, strict=False)).items()}


def _digest_of_prompts(extra_infos: list[dict[str, Any]]) -> str:
    """Names a step's prompts in a few letters, so that two logs tell whether they trained on the same data."""
    identities = "\n".join(map(_identity, extra_infos))
    return hashlib.sha256(identities.encode()).hexdigest()[:16]


def _identity(extra_info: dict[str, Any]) -> str:
    """A prompt's name in the data."""
    return str(extra_info.get("id", extra_info.get("index")))


def _zeros_like_rows(nested: torch.Tensor) -> torch.Tensor:
    """A jagged tensor of the same row lengths, all zeros."""
    return torch.nested.as_nested_tensor([torch.zeros_like(row) for row in nested.unbind()], layout=torch.jagged)


def _readable(data: TensorDict, keys: list[str], tokenizer: Any) -> list[dict[str, Any]]:
    rows = []
    for position, (key, extra, truth) in enumerate(
        zip(keys, list(data["extra_fields"]), list(data["reward_model"]), strict=True)
    ):
        info = extra.get("reward_extra_info", {}) if isinstance(extra, dict) else {}
        rows.append(
            {
                "key": key,
                "prompt": tokenizer.decode(data["prompts"][position], skip_special_tokens=True),
                "response": tokenizer.decode(data["responses"][position], skip_special_tokens=True),
                "ground_truth": truth.get("ground_truth"),
                "score": float(data["rm_scores"][position].sum()),
                **{name: _plain(value) for name, value in info.items()},
            }
        )
    return rows


def _plain(value: Any) -> Any:
    """Arrays as lists, for JSON."""
    return value.tolist() if hasattr(value, "tolist") else value


def _means_of_numbers(infos: list[dict[str, Any]]) -> dict[str, float]:
    """The mean of every reward component over the samples that were verified, and the share of each error class."""
    values: dict[str, list[float]] = defaultdict(list)
    verified = [info for info in infos if info and not info.get("masked")]
    for info in verified:
        for key, value in info.items():
            if key == "error":
                values[f"error/{value}"].append(1.0)
            elif isinstance(value, int | float) and not key.startswith(PREFIX):
                values[key].append(float(value))
    count = max(len(verified), 1)
    return {f"reward/{key}": sum(numbers) / count for key, numbers in values.items() if key != "masked"}
