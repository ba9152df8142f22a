"""Arithmetic and threads of this machine's processor, for runs without an accelerator."""

import os
from pathlib import Path
from typing import Literal

from omegaconf import DictConfig, OmegaConf

Precision = Literal["auto", "bfloat16", "float32"]

BFLOAT16_FLAGS = {"amx_bf16", "avx512_bf16", "bf16"}


def hardware_precision(cpuinfo: Path = Path("/proc/cpuinfo")) -> Precision:
    """``bfloat16`` where the processor multiplies it in hardware, else ``float32``."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return "float32"
    named = (line.partition(":")[2].split() for line in lines if line.startswith(("flags", "Features")))
    return "bfloat16" if BFLOAT16_FLAGS.intersection(*[set().union(*named)]) else "float32"


def settle_precision(config: DictConfig, key: str) -> None:
    """Replace ``auto`` at this key by what the processor is good at, in place."""
    if OmegaConf.select(config, key) == "auto":
        OmegaConf.update(config, key, hardware_precision())


def threads_per_rank(ranks: int) -> int:
    """Cores for each of the ranks on this machine. Training and generation take turns, so either may use all."""
    return max(1, len(os.sched_getaffinity(0)) // ranks)
