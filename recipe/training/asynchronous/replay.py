"""verl's replay buffer for planned prompts, which are trained on in their order."""

from typing import Any

from recipe.training.hooks.replay import WatchedAsyncReplayBuffer

VALIDATION = "val"


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
