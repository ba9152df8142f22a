"""A part of vLLM's worker that uses the first adapter that it receives, and none after it."""

from typing import Any

from torch import Tensor

from workers.digests.extension import ComparedAdapterExtension


class LosesLaterAdapters(ComparedAdapterExtension):
    """Stands for an engine that loses an adapter, which verl does not notice: it answers with the base weights."""

    def _update_weights(
        self, weights: list[tuple[str, Tensor]], peft_config: dict[str, Any], base_sync_done: bool
    ) -> None:
        is_adapter = bool(peft_config and base_sync_done)
        if not (is_adapter and getattr(self, "has_one", False)):
            super()._update_weights(weights, peft_config=peft_config, base_sync_done=base_sync_done)
            self.has_one = is_adapter
