"""SIGTERM ends a run with a checkpoint after the step under way: Slurm and spot machines send it before they kill.

The driver catches the signal and leaves a file in the run directory; the trainer looks for it after each step
(``recipe/training/hooks/step.py``).
"""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from recipe.records.run_directory import RunDirectory
from rewards.sandbox.isolation import syscalls

FILE = "stop"
SAME_REQUEST = 5.0
"""Seconds within which signals count as one: a process group's and one passed on by a study."""


class RunStopped(RuntimeError):
    """The run ended early on request; the message addresses the user."""


def stop_requested(run: RunDirectory) -> bool:
    """Whether a stop of the run was requested."""
    return (run.path / FILE).exists()


@contextmanager
def passing_sigterm_on(command: subprocess.Popen[Any]) -> Iterator[list[int]]:
    """Let a command that this process waits for get its SIGTERM; for the main thread only. Yields those so far."""
    asked: list[int] = []

    def pass_on(number: int, frame: object) -> None:
        asked.append(number)
        command.send_signal(number)

    before = signal.signal(signal.SIGTERM, pass_on)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGTERM, before)


def end_with_parent() -> None:
    """Let SIGTERM end this process when the thread that started it ends, even by SIGKILL; also as a `preexec_fn`.

    Without it a command would go on writing beside the one that resumes its work.
    """
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGTERM)


def stop(run: RunDirectory, step: int, save: Callable[[], None]) -> None:
    """Save a checkpoint of this step, unless there is one, and record that the run ends with it; for the trainer."""
    if run.last_checkpoint != step:
        save()
    run.log_event("stop", step=step)


@contextmanager
def stopping_on_sigterm(run: RunDirectory) -> Iterator[None]:
    """Let SIGTERM end the training within the block; for the main thread only.

    The first one asks the trainer, which ends after its step. Before the first step, or at a signal more than
    `SAME_REQUEST` seconds later, the block ends at once.

    Raises:
        RunStopped: the run ended early; the message names the step, and whether a checkpoint was saved.
    """
    (run.path / FILE).unlink(missing_ok=True)
    began = len(run.events())
    asked_at: list[float] = []
    at_once: list[bool] = []

    def ask(*signal_and_frame: object) -> None:
        asked_at.append(time.monotonic())
        training = any(event["event"] == "ready" for event in run.events()[began:])
        if training and len(asked_at) > 1 and asked_at[-1] - asked_at[0] < SAME_REQUEST:
            return
        if not training or len(asked_at) > 1:
            at_once.append(True)
            raise KeyboardInterrupt  # the one exception of a signal's handler that ends ray.get: it drops others
        (run.path / FILE).touch()
        print("SIGTERM: the run ends after this step, with a checkpoint; a second one ends it at once", file=sys.stderr)

    before = signal.signal(signal.SIGTERM, ask)
    try:
        yield
    except KeyboardInterrupt:
        if not at_once:
            raise
        checkpoint = "no checkpoint" if run.last_checkpoint is None else f"the checkpoint of step {run.last_checkpoint}"
        raise RunStopped(f"SIGTERM ended it at once; there is {checkpoint}") from None
    finally:
        signal.signal(signal.SIGTERM, before)
    if stops := [event["step"] for event in run.events()[began:] if event["event"] == "stop"]:
        raise RunStopped(f"SIGTERM ended it after step {stops[-1]}, with a checkpoint")
