"""verl on a machine without an accelerator: a platform named ``cpu`` on which FSDP2 runs.

Covered: one or more data-parallel ranks over gloo, FSDP2, LoRA, vLLM's CPU build as rollout engine.
Not covered: tensor parallelism, offloading (there is nowhere to offload to), CUDA IPC.
"""

import os
import resource
import types
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import psutil
import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry

PLATFORM = "cpu"


class CpuDeviceModule(types.ModuleType):
    """Stand-in for ``torch.cuda``, where verl expects it: memory, streams and random state."""

    def is_available(self) -> bool:
        return True

    def device_count(self) -> int:
        return 1

    def current_device(self) -> str:
        return "cpu"

    def set_device(self, device: Any) -> None:
        """A process has one CPU device; there is nothing to select."""

    def get_device_name(self, device: Any = None) -> str:
        return "cpu"

    def synchronize(self, device: Any = None) -> None:
        """CPU kernels have finished when their call returns."""

    def empty_cache(self) -> None:
        """torch keeps no cache of CPU memory."""

    def ipc_collect(self) -> None:
        """There are no shared device handles to collect."""

    def memory_allocated(self, device: Any = None) -> int:
        resident: int = psutil.Process().memory_info().rss
        return resident

    memory_reserved = memory_allocated

    def max_memory_allocated(self, device: Any = None) -> int:
        """The peak since this process began; it cannot be reset."""
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    max_memory_reserved = max_memory_allocated

    def reset_peak_memory_stats(self, device: Any = None) -> None:
        """The operating system's peak cannot be reset."""

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        memory = psutil.virtual_memory()
        return memory.available, memory.total

    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, device: Any = None) -> None:
        torch.set_rng_state(state)

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def current_stream(self, device: Any = None) -> Any:
        return torch.cpu.current_stream()

    def stream(self, stream: Any) -> Any:
        return nullcontext()


@PlatformRegistry.register(PLATFORM)
class PlatformCpu(PlatformBase):
    """The platform that ``VERL_PLATFORM=cpu`` selects. Ray assigns it as logical GPUs, one per rank."""

    _module = CpuDeviceModule("workers.cpu.verl_platform.device")

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = _module

    def is_available(self) -> bool:
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        """False, so that verl never detects it: a GPU machine has a CPU too. ``VERL_PLATFORM=cpu`` selects it."""
        return False

    def current_device(self) -> Any:
        # verl moves tensors with ``.to(get_device_id())``; an index would mean a GPU.
        return "cpu"

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None:
        self._module.set_device(device_index)

    def synchronize(self, device_index: int | None = None) -> None:
        self._module.synchronize(device_index)

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        """The C library's allocator has no such settings."""

    def empty_cache(self) -> None:
        self._module.empty_cache()

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None:
        """No device profiler."""

    def profiler_stop(self) -> None:
        """No device profiler."""

    def ray_resource_name(self) -> str:
        # verl's resource check looks for GPU (or NPU) in the cluster; the config declares logical ones.
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> None:
        return None


def is_cpu_platform() -> bool:
    """Whether this process runs on the CPU platform."""
    return os.environ.get("VERL_PLATFORM", "").strip().lower() == PLATFORM
