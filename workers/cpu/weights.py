"""New weights for vLLM's CPU build, which packs them for its kernels and keeps no other copy.

verl loads weights into the model's parameters bucket by bucket, and on a CPU those are empty after the packing. vLLM's
layerwise reload makes new ones, takes weights in a checkpoint's format, and packs them again.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightReceiver
from verl.workers.rollout.vllm_rollout.utils import VLLM_LORA_INT_ID

from workers.digests.extension import ComparedAdapterExtension
from workers.digests.weights import HeldWeights


class CpuWeightsExtension(HeldWeights, ComparedAdapterExtension):
    """verl's part of a vLLM worker: receives all weights before it loads the first.

    verl loads while it receives. When that fails, the trainer waits for ever for a receipt; here the transfer always
    comes to its end, and an error reaches the trainer after it.
    """

    # Of the vLLM worker that this extends:
    model_runner: Any
    remove_lora: Callable[[int], bool]

    def update_weights_from_ipc(
        self, peft_config: dict[str, Any] | None = None, base_sync_done: bool = False, use_shm: bool = False
    ) -> None:
        """Receive weights from the trainer, an adapter's or all, and use them from the next request on."""
        received = self._receive(use_shm)
        if peft_config and base_sync_done:
            self.remove_lora(VLLM_LORA_INT_ID)
            self._update_weights(received, peft_config=peft_config, base_sync_done=True)
        else:
            checkpoint = ((name.replace(".base_layer.", "."), tensor) for name, tensor in received)
            self.model_runner.reload_weights(weights_iterator=checkpoint)
            pack_kept_weights(self.model_runner.get_model())

    def _receive(self, use_shm: bool) -> list[tuple[str, Tensor]]:
        received: list[tuple[str, Tensor]] = []
        failures: list[Exception] = []

        def keep(bucket: list[tuple[str, Tensor]], is_last: bool) -> None:
            if failures:
                return
            try:
                received.extend((name, tensor.clone()) for name, tensor in bucket)  # the bucket's memory is reused
            except Exception as error:  # such as too little memory
                # Its traceback holds the bucket's memory, which the receiver frees before its last receipt.
                failures.append(error.with_traceback(None))
                received.clear()

        receiver = BucketedWeightReceiver(self._get_zmq_handle(), torch.device("cpu"), use_shm)
        receiver.receive_weights(on_bucket_received=keep)
        if failures:
            raise failures[0]
        return received


def pack_kept_weights(model: nn.Module) -> None:
    """Pack again the weights that vLLM keeps beside their packed form, as its reload does for layers that it loads.

    A head that shares the embedding's weight is loaded as the embedding, and would keep the old packed form.
    """
    layers: Iterable[Any] = model.modules()
    for layer in layers:
        if hasattr(layer, "cpu_linear") and layer.weight.numel():
            layer.quant_method.process_weights_after_loading(layer)
