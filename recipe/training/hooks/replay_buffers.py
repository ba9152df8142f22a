"""verl's replay buffers that give up where no batch can be filled: verl would silently draw new prompts for ever."""

from collections import Counter
from dataclasses import dataclass
from typing import Any, Self

import transfer_queue as tq
from verl.trainer.ppo.v1.replay_buffer import DAPO_FILTERED_REWARD_COUNTS_KEY, ReplayBuffer, ReplayBufferAsync

from recipe.records.run_directory import RunDirectory
from recipe.training.step_samples import check_share

REPORTED_BATCHES = 5
"""After so many batches of left out groups, and again after as many, the console warns."""
FAILED_PROMPTS = "failed_prompts"
"""Event: prompts of a batch, of which at least one answer is missing."""


class PromptsFailError(RuntimeError):
    """Too many prompts failed since the last batch: the agent loop or the reward raises for each."""


class NoSignalError(RuntimeError):
    """Too many groups were left out since the last batch: in each, all answers got the same."""


@dataclass(frozen=True)
class Patience:
    """What may happen between two batches before the run ends.

    batch: prompts of a batch; twice as many may fail. batches: of left out groups, verl's
    ``algorithm.filter_groups.max_num_gen_batches``, which its V1 trainers ignore; 0 for any number. masked_share: of
    the samples in a batch or more of left out groups.
    """

    batch: int
    batches: int = 0
    masked_share: float = 1.0


class WatchedReplayBuffer(ReplayBuffer):
    """Ends the run when too many prompts fail, or no group has a signal (``algorithm.filter_groups``).

    Samples that cannot be verified all score 0, so verl leaves out the groups of a sandbox that is down. A group is
    evicted once all of its answers have scores, which wait for their replays: none of these is left to cancel.
    """

    _patience: Patience
    _run: RunDirectory
    failed = 0
    """Prompts that the last batch lacks answers of: synchronous trainers, and validations, take what there is."""

    @classmethod
    def in_place_of(cls, buffer: ReplayBuffer, patience: Patience, run: RunDirectory) -> Self:
        """A buffer of this class with all that verl built its own one with; events go to `run`."""
        made = cls.__new__(cls)
        vars(made).update(vars(buffer), _patience=patience, _run=run)
        made._begin()
        return made

    def _begin(self) -> None:
        """Reset the counts."""
        self._failures = self._left_out = self._reports = 0
        self._values = Counter[float]()  # left out groups by what all of their answers got
        self._masked = Counter[bool]()  # their samples by whether they could not be verified

    def _evict_terminal_groups(
        self, global_steps: int, partition_id: str, eviction_reasons: tuple[set[str], set[str], set[str], Any]
    ) -> tuple[set[str], int, int, dict[str, Any]]:
        _, left_out, failed, _ = eviction_reasons
        self._failures += len(failed)
        if self._failures > 2 * self._patience.batch:
            raise PromptsFailError(_message(global_steps, f"{self._failures} prompts failed since the last batch"))
        if left_out:
            self._masked.update(self._masked_flags(partition_id, left_out))
        evicted: tuple[set[str], int, int, dict[str, Any]] = super()._evict_terminal_groups(
            global_steps, partition_id, eviction_reasons
        )
        if left_out:
            self._left_out += len(left_out)
            self._values.update(evicted[3][DAPO_FILTERED_REWARD_COUNTS_KEY])
            # verl evicts before it looks whether the batch is complete.
            whole = len(self._sampleable_terminal_keys(partition_id, eviction_reasons))
            self._check_signal(global_steps, incomplete=whole < self._patience.batch)
        return evicted

    def _masked_flags(self, partition_id: str, groups: set[str]) -> list[bool]:
        keys = [key for key in self.partitions[partition_id] if key.split("_")[0] in groups]
        found = tq.kv_batch_get(keys=keys, partition_id=partition_id, select_fields=["extra_fields"])["extra_fields"]
        return [bool(fields.get("reward_extra_info", {}).get("masked")) for fields in list(found)]

    def _check_signal(self, step: int, incomplete: bool) -> None:
        """End the run if too much was left out since the last batch, and warn before.

        Raises:
            TooManyMaskedError: most of it could not be verified. NoSignalError: all answers of each group got the same.
        """
        batches = self._left_out / self._patience.batch
        if batches >= 1:
            share = self._masked[True] / self._masked.total()
            check_share(share, self._patience.masked_share, step, self._run.path)
        values = {f"{value:g}": count for value, count in sorted(self._values.items())}
        if incomplete and 0 < self._patience.batches < batches:
            counts = ", ".join(f"{count} with {value}" for value, count in values.items())
            raise NoSignalError(
                f"step {step}: {self._left_out} groups were left out since the last batch, as all answers of each have "
                f"one {self.filter_groups_metric} ({counts}): more than algorithm.filter_groups.max_num_gen_batches="
                f"{self._patience.batches} batches. Choose prompts that are neither too easy nor too hard, or more "
                "answers per prompt (actor_rollout_ref.rollout.n)."
            )
        if batches >= REPORTED_BATCHES * (self._reports + 1):
            self._reports += 1
            self._run.log_event("left_out", step=step, groups=self._left_out, values=values)

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[Any, dict[str, Any]]:
        """verl's sample, unless too many of its prompts failed; counts are reset after it.

        Raises:
            PromptsFailError: more than the share of samples that may be masked.
        """
        found: tuple[Any, dict[str, Any]] = super().sample(global_steps, partition_id, batch_size)
        self._begin()
        self.failed = len(self.failure_keys[partition_id])
        if self.failed:
            self._run.log_event(FAILED_PROMPTS, step=global_steps, prompts=self.failed, batch=batch_size)
        if self.failed > self._patience.masked_share * batch_size:
            raise PromptsFailError(_message(global_steps, f"{self.failed} of {batch_size} prompts failed"))
        return found


def _message(step: int, what: str) -> str:
    return (
        f"step {step}: {what}: their agent loop or reward raises an error, see logs/ for the first. Fix it, and start "
        "the same run again."
    )


class WatchedAsyncReplayBuffer(WatchedReplayBuffer, ReplayBufferAsync):
    """The same for asynchronous trainers."""
