"""A part of vLLM's worker that receives each adapter, and uses the first alone."""

from typing import Any

from workers.cpu.weights import CpuWeightsExtension


class LosesLaterAdapters(CpuWeightsExtension):
    """Stands for an engine that goes on with an old adapter of the same number, which verl does not notice."""

    def update_weights_from_ipc(
        self, peft_config: dict[str, Any] | None = None, base_sync_done: bool = False, use_shm: bool = False
    ) -> None:
        is_adapter = bool(peft_config and base_sync_done)
        if is_adapter and getattr(self, "has_one", False):
            self._receive(use_shm)
            return
        super().update_weights_from_ipc(peft_config, base_sync_done, use_shm)
        self.has_one = is_adapter
