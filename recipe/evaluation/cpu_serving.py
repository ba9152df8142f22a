"""What vLLM gets on a CPU outside of training: the values of configs/platform/cpu.yaml, which explains them."""

from functools import cache
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

import configs

# Read by vLLM and torch. No chunked prefill, because after a chunk vLLM rewinds the request's random generator, which
# torch does not support on a CPU.
_ENVIRONMENT = ("VLLM_CPU_KVCACHE_SPACE", "TORCH_COMPILE_DISABLE")


@cache
def cpu_options() -> dict[str, bool | int]:
    """Engine arguments of vLLM by their names in Python."""
    rollout = _platform().actor_rollout_ref.rollout
    return {
        "enforce_eager": rollout.enforce_eager,
        "block_size": rollout.engine_kwargs.vllm.block_size,
        "enable_chunked_prefill": rollout.enable_chunked_prefill,
    }


def cpu_flags() -> list[str]:
    """The same as options of `vllm serve`."""
    flags = []
    for name, value in cpu_options().items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            flags.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            flags += [f"--{flag}", str(value)]
    return flags


@cache
def cpu_environment() -> dict[str, str]:
    """Environment variables of the engine's process."""
    variables = _platform().ray_kwargs.ray_init.runtime_env.env_vars
    return {name: variables[name] for name in _ENVIRONMENT}


def _platform() -> DictConfig:
    loaded = OmegaConf.load(Path(configs.__path__[0], "platform", "cpu.yaml"))
    assert isinstance(loaded, DictConfig)
    return loaded
