"""Our hooks in a step of verl's asynchronous trainers: order and places of prompts that are drawn ahead, versions.

With verl's client of the engines that continues interrupted requests, with new random draws for each part, and its
replay buffer for planned prompts, which are trained on in their order.
"""

import asyncio
from dataclasses import asdict
from typing import Any

import transfer_queue as tq
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync
from verl.trainer.ppo.v1.trainer_base import _count_tq_prompt_groups
from verl.utils import tensordict_utils as tu
from verl.workers.rollout.llm_server import FullyAsyncLLMServerClient, LLMServerClient

from recipe.training.asynchronous.prompts import DRAWN, DrawnPrompt, PromptStream, place_metrics, version_metrics
from recipe.training.batch_skills import by_group, prompt_of
from recipe.training.hooks.replay_buffers import WatchedAsyncReplayBuffer, WatchedReplayBuffer
from recipe.training.hooks.step import SkillCreditHooks
from recipe.training.protector import checkpoint_folder, resumed_folder
from recipe.training.retries import prompt_batch
from recipe.training.step_samples import fetch
from rewards.requests import reseeded

VALIDATION = "val"


class _SeededParts(LLMServerClient):
    """Sends a request with a seed derived from its own and from how many tokens are there already.

    An engine draws the first new token of a request with the first numbers of its seed: a continued answer would
    otherwise draw the numbers of its beginning again. A part that is interrupted before its first token is none: verl
    would take the weights at that time for those that the answer began with.
    """

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any], **options: Any
    ) -> Any:
        sampling = reseeded(sampling_params, len(prompt_ids))
        while True:
            output = await super().generate(request_id, prompt_ids=prompt_ids, sampling_params=sampling, **options)
            if output.token_ids or output.stop_reason not in ("aborted", "abort"):
                return output
            await asyncio.sleep(1)  # as verl's client does


class ContinuingClient(FullyAsyncLLMServerClient, _SeededParts):
    """verl's asynchronous client; each part of an interrupted answer has its own seed."""


class InOrderReplayBuffer(WatchedAsyncReplayBuffer):
    """Waits for the prompts that were drawn first; later ones are answered meanwhile.

    verl takes what finished first, so batches would have more of easy skills and short answers than the plan, and any
    number of memory prompts. Names of groups sort in the order of drawing (`DrawnPrompt.uid`).
    """

    def _has_enough_samples(
        self, global_steps: int, partition_id: str, batch_size: int, sampleable_keys: set[str]
    ) -> bool:
        enough: bool = super()._has_enough_samples(global_steps, partition_id, batch_size, sampleable_keys)
        if partition_id == VALIDATION or not enough:
            return enough
        unfinished = self.pending_keys[partition_id] | self.running_keys[partition_id]
        return unfinished.isdisjoint(sorted(sampleable_keys | unfinished)[:batch_size])

    def _select_prompt_uids(
        self, partition_id: str, sampleable_keys: set[str], batch_size: int
    ) -> tuple[list[str], dict[str, dict[str, Any]], dict[str, int]]:
        _, samples, steps = super()._select_prompt_uids(partition_id, sampleable_keys, batch_size)
        return sorted(sampleable_keys)[:batch_size], samples, steps


class AsynchronousHooks(SkillCreditHooks):
    """Our hooks for answers of earlier weights, in front of a trainer of verl's; planned prompts come in their order.

    Answers that an update interrupts are continued.
    """

    SAMPLED_LOG_PROBS = "rollout_log_probs"

    def __init__(self, config: Any):
        self._planned_step = 0
        super().__init__(config)

    @property
    def _own_buffers(self) -> dict[type[ReplayBuffer], type[WatchedReplayBuffer]]:
        planned = self.settings.stages is not None or self.settings.protocol.every_skill
        return {ReplayBufferAsync: InOrderReplayBuffer if planned else WatchedAsyncReplayBuffer}

    def _init_dataloader(self) -> None:
        super()._init_dataloader()
        self._stream = PromptStream(self.schedule)

    def get_llm_client(self) -> Any:
        return self._servers.get_client(client_cls=ContinuingClient)

    def _add_async_warmup_batches(self, num_warmup_batches: int | float) -> None:
        # A restart near the end, or a short run, has no use for all of them.
        super()._add_async_warmup_batches(min(num_warmup_batches, self._steps_left))

    @property
    def _steps_left(self) -> int:
        """Steps to do, this one included."""
        return int(self.total_training_steps) - self.global_steps + 1

    def prepare_step(self) -> dict[str, Any]:
        """Submit the next batch, or what the remaining steps need beside the prompts under way."""
        batch = self.config.data.train_batch_size
        missing = self._steps_left * batch - _count_tq_prompt_groups()
        if missing >= batch:
            metrics: dict[str, Any] = super().prepare_step()
            return metrics
        if missing > 0:
            self._add_prompts_to_generate(missing)
        return {}

    def _fetch_one_gen_batch(self) -> TensorDict:
        """The next prompt, verl's or the plan's, with its place in the plan."""
        if self.schedule is None:
            batch = super()._fetch_one_gen_batch()
            drawn = [self._stream.number() for _ in range(len(batch))]
        else:
            row, place = self._stream.draw()
            batch, drawn = prompt_batch(self.train_dataset, [row]), [place]
        tu.assign_non_tensor_stack(batch, "uid", [each.uid() for each in drawn])
        tu.assign_non_tensor_stack(batch, DRAWN, [asdict(each) for each in drawn])
        return batch

    def _times_before(self, batch: TensorDict) -> list[int]:
        # A prompt is answered again in the step that a restart begins with: only its number never repeats.
        return [fields["number"] for fields in list(batch[DRAWN])]

    def _read_places(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> None:
        """Read from the samples what the synchronous trainer remembers: order, memory prompts, step of the plan."""
        groups = by_group(batch)
        found = list(fetch(batch, DRAWN, keys=[keys[0] for keys in groups.values()])[DRAWN])
        drawn = {uid: DrawnPrompt(**fields) for uid, fields in zip(groups, found, strict=True)}
        self._submission_order = {uid: each.number for uid, each in drawn.items()}
        self._memory_prompts = {uid for uid, each in drawn.items() if each.memory}
        self._planned_step = max(each.step for each in drawn.values())
        tags = dict(zip(batch.keys, batch.tags, strict=True))
        of_group = {uid: [tags[key] for key in keys] for uid, keys in groups.items()}
        metrics.update(version_metrics(of_group, self.global_steps))
        if self.schedule is not None:
            metrics.update(place_metrics(drawn.values(), self.schedule.plan.stage.tolist()))

    @property
    def _plan_step(self) -> int:
        return self._planned_step

    def _save_checkpoint(self) -> None:
        self._stream.save(checkpoint_folder(self.config.trainer, self.global_steps))
        super()._save_checkpoint()

    def _load_checkpoint(self) -> None:
        super()._load_checkpoint()
        if self.global_steps > 0:
            self._stream.load(resumed_folder(self.config.trainer, self.global_steps), self.global_steps)
            clear_trained()


def clear_trained() -> None:
    """Clear samples without a prompt from the queue: verl's checkpoint keeps those that its step was trained on."""
    keys = (tq.kv_list("train") or {}).get("train", {})
    trained = [key for key in keys if prompt_of(key) not in keys]
    if trained:
        tq.kv_clear(keys=trained, partition_id="train")
