"""The isolation modes: which layers a server requires, and what stays exposed without each."""

from __future__ import annotations

import logging
from typing import Literal, get_args

from rewards.sandbox.isolation import landlock
from rewards.sandbox.server.slot import Slot

log = logging.getLogger("rewards.sandbox")

Mode = Literal["strict", "best", "minimal", "none"]
MODES: tuple[Mode, ...] = get_args(Mode)
"""strict: every layer. best: at least files and other processes are protected. minimal: the available layers. none:
limits only, for code that you trust."""
_FILES, _PROCESSES = "files", "processes"
_HOW_TO_PROCEED = (
    "Allow user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, or the container's "
    "seccomp profile), start the server as root, or use a kernel with Landlock (Linux 5.13). To go without on a "
    'machine that holds nothing of value: --isolation minimal, Sandbox(isolation="minimal") or '
    "sandbox.isolation=minimal"
)


def unprotected(active: set[str], *, signals_stay_inside: bool) -> dict[str, str]:
    """What the active layers leave open: a name for each gap and a plain description of what a program can do.

    `signals_stay_inside`: whether this kernel's Landlock blocks signals to processes outside.
    """
    gaps = {}
    if not active & {"mount_ns", "landlock"}:
        gaps[_FILES] = "a program can read what this user can read, and write what this user can write"
    if not active & {"pid_ns", "uid"} and "landlock" not in active:
        gaps[_PROCESSES] = "a program can read the environment and the memory of this user's processes"
    if not active & {"pid_ns", "uid", "seccomp"} and not ("landlock" in active and signals_stay_inside):
        gaps["signals"] = "a program can kill this user's processes"
    if "pid_ns" not in active:
        gaps["names of processes"] = "a program can list this machine's processes and their command lines"
    if not active & {"net_ns", "seccomp"}:
        gaps["network"] = "a program can open connections"
    if "mount_ns" not in active:
        gaps["disk"] = "files that a program writes to its folder fill this machine's /tmp, without a quota"
    if not active & {"user_ns", "uid"}:
        gaps["number of processes"] = "only the time limit stops a fork bomb"
    if "seccomp" not in active:
        gaps["kernel"] = "a program can use every system call that this user can use"
    return gaps


def require(slots: list[Slot], mode: str) -> None:
    """Log the active isolation layers; raises `SystemExit` if the mode requires more."""
    if mode == "none":
        log.warning("isolation: NONE, programs run with limits only; use this for code that you trust")
        return
    # A slot may lack a layer that another one has, and a server is only as safe as its least safe slot.
    missing = {layer: reason for slot in slots for layer, reason in slot.missing.items()}
    active = set.intersection(*(set(slot.active) for slot in slots))
    log.info("isolation: active layers: %s", " ".join(sorted(active)))
    listed = ", ".join(f"{layer} ({reason})" for layer, reason in sorted(missing.items()))
    exposed = unprotected(active, signals_stay_inside=landlock.protects_signals())
    if missing and mode == "strict":
        raise SystemExit(f"isolation strict: this machine lacks {listed}. On loopback, --isolation best allows that.")
    if mode == "best" and exposed.keys() & {_FILES, _PROCESSES, "signals"}:
        open_here = "; ".join(f"{name}: {text}" for name, text in exposed.items())
        raise SystemExit(
            f"isolation best: this machine can't protect itself from programs. {open_here}. Missing: {listed}. "
            f"{_HOW_TO_PROCEED}."
        )
    if missing:
        log.warning("isolation %s: going without %s", mode, listed)
    for name, text in exposed.items():
        log.warning("isolation %s: NOT protected: %s: %s", mode, name, text)
