"""Driver inside a SandboxFusion program: forks the model's program, then reads the tests, judges, prints verdicts.

The verdict lines carry a nonce that reaches this process after the program was forked off. That defeats every attack
without access to the judge's memory: printed verdicts, exit codes, patched builtins, lying objects, frames. It cannot
stop a program that attacks this process through the kernel (ptrace, /proc), because both run as the same user.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from typing import Any

from rewards.sandbox.inside import judge, program

MARK = "verdict"


class PrintingJudge(judge.CaseJudge):
    """A judge that prints its verdicts and enforces the time limits itself."""

    def __init__(self, payload: dict[str, Any], calls: socket.socket, output: int) -> None:
        super().__init__(payload, calls, calls)
        self._nonce = payload["nonce"]
        self._seconds = float(payload["timeout"])
        self._deadline = time.monotonic() + float(payload["total"])
        self._output = output
        signal.signal(signal.SIGALRM, self._out_of_time)
        self._wind()

    def _wind(self) -> None:
        """Start the timer of the next case: its own limit or the remaining total, if that is shorter."""
        signal.setitimer(signal.ITIMER_REAL, max(0.001, min(self._seconds, self._deadline - time.monotonic())))

    def _out_of_time(self, *_: Any) -> None:
        raise self.program.gone("timeout")

    def _send(self, message: dict[str, Any]) -> None:
        line = f"\n{MARK} {self._nonce} {json.dumps(message)}\n".encode()
        while line:
            line = line[os.write(self._output, line) :]
        self._wind()


def read_block() -> Any:
    """Read one length-prefixed JSON block from standard input and not a byte more."""
    size = b""
    while not size.endswith(b"\n"):
        size += os.read(0, 1)
    data = b""
    while len(data) < int(size):
        data += os.read(0, int(size) - len(data))
    return json.loads(data)


def main() -> None:
    """Judge the cases up to the first one that kills the program."""
    code = read_block()
    theirs, ours = socket.socketpair()
    child = os.fork()
    null = os.open(os.devnull, os.O_RDWR)
    if child == 0:
        ours.close()
        os.setsid()
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        program.serve_calls(code, theirs)
    theirs.close()
    output = os.dup(1)
    sys.stdout = open(null, "w", closefd=False)  # noqa: SIM115 - test output never affects the verdict
    try:
        PrintingJudge(read_block(), ours, output).run()
    finally:
        os.killpg(child, signal.SIGKILL)
