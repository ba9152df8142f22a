"""New base weights for vLLM's CPU build, which packs them for its kernels and keeps no other copy.

verl loads weights into the model's parameters bucket by bucket, and on a CPU those are empty after the packing. vLLM's
layerwise reload makes them anew, takes weights in a checkpoint's format, and packs them again.
"""

from typing import Any

import torch
from torch import Tensor
from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightReceiver
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension


class CpuWeightsExtension(vLLMColocateWorkerExtension):
    """verl's part of a vLLM worker; base weights are collected and reloaded at once, adapters arrive as in verl."""

    model_runner: Any  # of the vLLM worker that this extends

    def update_weights_from_ipc(
        self, peft_config: dict[str, Any] | None = None, base_sync_done: bool = False, use_shm: bool = False
    ) -> None:
        """Receive weights from the trainer and use them from the next request on."""
        if peft_config and base_sync_done:
            super().update_weights_from_ipc(peft_config, base_sync_done, use_shm)
            return
        received: list[tuple[str, Tensor]] = []

        def keep(bucket: list[tuple[str, Tensor]], is_last: bool) -> None:
            received.extend((name, tensor.clone()) for name, tensor in bucket)  # the bucket's memory is reused

        receiver = BucketedWeightReceiver(self._get_zmq_handle(), torch.device("cpu"), use_shm)
        receiver.receive_weights(on_bucket_received=keep)
        self.model_runner.reload_weights(weights_iterator=iter(received))
