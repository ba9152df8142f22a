"""A judge and a program's process without a server: the same code, two forked processes, a verdict per case."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rewards.sandbox.inside import judge, program
from rewards.sandbox.inside.frames import receive_frame


@contextlib.contextmanager
def other_side(serve: Callable[[socket.socket], object]) -> Iterator[socket.socket]:
    """The judge's end of a call channel whose other end a forked process serves."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        try:
            ours.close()
            null = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(null, descriptor)
            serve(theirs)
        finally:
            os._exit(0)
    theirs.close()
    try:
        yield ours
    finally:
        ours.close()
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def judged(
    serve: Callable[[socket.socket], object],
    tests: Sequence[str],
    *,
    setup: str = "",
    entry_points: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """What the judge says of each test, up to the first after which the program is gone; of none, where it was not
    loaded."""
    verdicts, written = socket.socketpair()
    payload = {"cases": [{"source": test} for test in tests], "setup": setup, "entry_points": entry_points}
    with verdicts, written, other_side(serve) as calls:
        thread = threading.Thread(target=judge.CaseJudge(payload, written, calls).run, daemon=True)
        thread.start()
        verdicts.settimeout(20)
        if not receive_frame(verdicts)["loaded"]:
            return []
        found: list[dict[str, Any]] = []
        while len(found) < len(tests) and (not found or found[-1]["outcome"] != "gone"):
            found.append(receive_frame(verdicts))
        thread.join(20)
        return found


def check(code: str, tests: Sequence[str], **options: Any) -> list[dict[str, Any]]:
    """The verdicts on a program."""

    def serve(calls: socket.socket) -> None:
        program.PATH = os.devnull
        program.serve_calls(code, calls)

    return judged(serve, tests, **options)
