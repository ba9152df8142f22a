"""Our engines in verl's registry: the policy's, which can be passed in parts, and a critic's for device ``cpu``.

And what a process needs before they can be built in it.
"""

from datetime import timedelta
from typing import Any

import torch
from tensordict import TensorDict
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.distributed_c10d import _set_pg_timeout
from transformers import AutoModelForTokenClassification
from verl.utils.device import get_device_name, get_vendor
from verl.utils.distributed import initialize_global_process_group_ray
from verl.workers.engine import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead, FSDPEngineWithValueHead

from workers.constraints import Loss
from workers.pass_in_parts import WantedParts, pass_in_parts
from workers.platform_cpu import is_cpu_platform

BACKENDS = ["fsdp", "fsdp2"]


# How long a rank of this process waits for the others; None: as long as torch has it.
_limit: timedelta | None = None


def limit_groups(*meshes: DeviceMesh | None) -> None:
    """Give the process's time limit to the groups of meshes: new groups have torch's, whatever the first one has."""
    if _limit is not None:
        for group in (group for mesh in meshes if mesh is not None for group in mesh.get_all_groups()):
            _set_pg_timeout(_limit, group)


class PolicyEngine(FSDPEngineWithLMHead):
    """verl's engine of the policy, whose next training pass goes in parts where `wanted_parts` asks for it.

    Its groups (FSDP's, a copy's and a sequence's) wait as long as the process's own.
    """

    wanted_parts: WantedParts | None = None

    def _init_device_mesh(self) -> None:
        super()._init_device_mesh()
        limit_groups(self.device_mesh, self.ulysses_device_mesh)

    def forward_backward_batch(self, data: TensorDict, loss_function: Loss, forward_only: bool = False) -> Any:
        wanted = self.wanted_parts
        if wanted is None or forward_only:
            return super().forward_backward_batch(data, loss_function, forward_only)
        self.wanted_parts = None
        return pass_in_parts(self, super().forward_backward_batch, wanted, data, loss_function)


class CpuValueEngine(FSDPEngineWithValueHead):
    """verl's critic with the attention that its configuration names: verl itself insists on flash-attention here."""

    def _build_module(self) -> torch.nn.Module:
        """The policy's body with one output a token; every rank loads all of it."""
        config = self.model_config.hf_config
        config.num_labels, config.classifier_dropout = 1, 0.0
        folder = str(self.model_config.local_path)
        module = AutoModelForTokenClassification.from_pretrained(folder, config=config, torch_dtype=torch.float32)
        if self.model_config.enable_gradient_checkpointing:
            module.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        return module


def register_engines() -> None:
    """Enter them under this platform's vendor, which verl prefers to its own entries; nothing where they are there."""
    device, vendor = get_device_name(), get_vendor()
    engines = {"language_model": PolicyEngine} | ({"value_model": CpuValueEngine} if device == "cpu" else {})
    for model_type, engine in engines.items():
        if (device, vendor) not in EngineRegistry._engines[model_type]["fsdp2"]:
            EngineRegistry.register(model_type, BACKENDS, device=device, vendor=vendor)(engine)


def prepare_worker_process(timeout_seconds: int | None = None) -> None:
    """Enter our engines in verl's registry, and join the process group where verl would join another one or none.

    verl joins without a time limit of its own, which leaves torch's, and skips that where a group exists. On the CPU it
    names the backend ``cpu:gloo,<device>:<backend>``, which torch refuses when the device is the cpu itself.

    Args:
        timeout_seconds: how long a rank waits for the others (``actor_rollout_ref.nccl_timeout``); None: torch's limit.
    """
    global _limit
    register_engines()
    _limit = None if timeout_seconds is None else timedelta(seconds=timeout_seconds)
    if is_cpu_platform() or timeout_seconds is not None:
        initialize_global_process_group_ray(timeout_seconds, backend="gloo" if is_cpu_platform() else None)
