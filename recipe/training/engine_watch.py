"""Ends a run whose rollout engine has died: verl waits forever for an engine that no longer takes its weights."""

import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOOK_EVERY_SECONDS = 5.0
# verl is given this long to notice by itself, which it does while it generates.
GRACE_SECONDS = 30.0
# Not the user's own interrupt: that is ignored in a process that a script started in the background.
SIGNAL = signal.SIGUSR2
# A dead engine's last words stand at the end of its log.
TAIL_BYTES = 1 << 18

# What the processes of vLLM write when they meet an exception that nothing handles.
_FATAL = re.compile(rb"EngineCore encountered a fatal error|EngineCore failed to start|WorkerProc hit an exception")
_CAUSE = re.compile(r"\(\w+ pid=\d+\) ERROR [^\]]*\] (\w*(?:Error|Exception)\b.*)")


class EngineDied(RuntimeError):
    """vLLM's engine process met an exception and is gone."""


def find_death(logs: Path, job: str) -> str | None:
    """The exception that a dead engine of this Ray job left in its log, and the log's name; None if there is none."""
    for file in sorted(logs.glob(f"worker-*-{job}-*.out")):
        with open(file, "rb") as log:
            log.seek(max(0, file.stat().st_size - TAIL_BYTES))
            tail = log.read()
        if _FATAL.search(tail):
            causes = _CAUSE.findall(tail.decode(errors="replace"))
            return f"{causes[0] if causes else 'vLLM names no exception'} ({file.name})"
    return None


@contextmanager
def ending_when_the_engine_dies(logs: Path | None, job: str) -> Iterator[None]:
    """Interrupts the block when a vLLM engine of this Ray job has died in it; for the main thread only.

    Raises:
        EngineDied: with the engine's own exception and the log file that has its stack trace.
    """
    over, lock, main = threading.Event(), threading.Lock(), threading.get_ident()
    found: list[str] = []

    def end_the_block(*signal_and_frame: object) -> None:
        raise EngineDied(f"vLLM's engine died: {found[0]}")

    def watch(folder: Path) -> None:
        while not over.wait(LOOK_EVERY_SECONDS):
            death = find_death(folder, job)
            if death is not None and not over.wait(GRACE_SECONDS):
                with lock:
                    if not over.is_set():
                        found.append(death)
                        signal.pthread_kill(main, SIGNAL)  # a sleeping or waiting call is interrupted too
                return

    before = signal.signal(SIGNAL, end_the_block)
    if logs is not None:
        threading.Thread(target=watch, args=(logs,), daemon=True).start()
    try:
        yield
    finally:
        with lock:
            over.set()
        signal.signal(SIGNAL, before)
