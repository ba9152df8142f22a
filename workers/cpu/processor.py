"""Arithmetic and threads of this machine's processor, for runs without an accelerator."""

import os
import platform
from pathlib import Path
from typing import Literal

from omegaconf import DictConfig, OmegaConf

Precision = Literal["auto", "bfloat16", "float32"]

BFLOAT16_FLAGS = {"amx_bf16", "avx512_bf16", "bf16"}
INSTRUCTIONS = {
    "amx_bf16": "AMX", "avx512_bf16": "AVX512-BF16", "avx512f": "AVX512", "avx2": "AVX2", "sve": "SVE", "asimd": "NEON",
}  # fmt: skip
"""Flag and name of vector instructions, the widest first."""


CPUINFO = Path("/proc/cpuinfo")


def hardware_precision(cpuinfo: Path | None = None) -> Precision:
    """``bfloat16`` where the processor multiplies it in hardware, else ``float32``."""
    try:
        lines = (cpuinfo or CPUINFO).read_text().splitlines()
    except OSError:
        return "float32"
    named = (line.partition(":")[2].split() for line in lines if line.startswith(("flags", "Features")))
    return "bfloat16" if BFLOAT16_FLAGS.intersection(*[set().union(*named)]) else "float32"


def processor(cpuinfo: Path | None = None) -> str:
    """The processor's kind: its model name and widest instructions, which decide how sums are rounded.

    A seed is reproducible on one kind only. Virtual machines give processors of several generations one name.
    """
    try:
        lines = (cpuinfo or CPUINFO).read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown processor"
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    flags = set((fields.get("flags") or fields.get("Features", "")).split())
    names = [fields.get("model name") or platform.processor() or "unknown processor"]
    return ", ".join(names + [name for flag, name in INSTRUCTIONS.items() if flag in flags][:1])


def settle_precision(config: DictConfig, key: str) -> None:
    """Replace ``auto`` at this key by what the processor is good at, in place."""
    if OmegaConf.select(config, key) == "auto":
        OmegaConf.update(config, key, hardware_precision())


def precision_note(precision: str, key: str) -> str:
    """One line for the user on the precision that the key has; a warning if the processor only emulates it."""
    if hardware_precision() == "bfloat16":
        return f"precision: {precision} ({key}); weights and optimiser: float32"
    lacking = "this processor has neither AMX nor AVX512-BF16 nor Arm's bf16"
    if precision == "bfloat16":
        return (
            f"warning: {key}=bfloat16, but {lacking}: a product in bfloat16 takes 3 times as long as in float32, and "
            f"100 times without AVX512. Set {key}=auto"
        )
    return f"precision: {precision} ({key}), because {lacking}; weights and optimiser: float32"


def cores_note(ranks: int) -> str:
    """One line for the user on the cores that this process may use, and how its ranks share them."""
    count, threads = cores(), os.environ.get("OMP_NUM_THREADS") or threads_per_rank(ranks)
    note = f"cores: {count}; threads of each process: {threads} (OMP_NUM_THREADS)"
    return note + (f"; {ranks} ranks share them: set trainer.n_gpus_per_node={count}" if ranks > count else "")


def threads_per_rank(ranks: int) -> int:
    """Cores for each of the ranks on this machine. Training and generation take turns, so either may use all."""
    return max(1, cores() // ranks)


def cores(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Cores that this process may use: those that it may run on, and no more than its container's share of time."""
    allowed = len(os.sched_getaffinity(0))
    for names in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):  # cgroup 2, then 1
        try:
            quota, period = " ".join((cgroup / name).read_text() for name in names).split()
            return min(allowed, max(1, int(quota) // int(period))) if int(quota) > 0 else allowed
        except (OSError, ValueError):
            continue  # no such file, or "max"
    return allowed
