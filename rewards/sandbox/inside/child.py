"""The entry point of a confined child of a fork server."""

from __future__ import annotations

import gc
import marshal
import os
import socket
import struct
import sys
import threading
from typing import NoReturn

from rewards.sandbox.inside import judge, program

CONTROL, CALLS = 100, 101
"""Descriptors of the channel to the worker and, where there is one, of the call channel."""
_SIZE = struct.Struct("!I")


def run_child() -> NoReturn:
    """Read an order from the worker and carry it out."""
    # marshal, because it is one C call; the worker is the trusted side of this channel.
    payload = marshal.loads(_read_order())
    gc.enable()
    os.register_at_fork(after_in_child=threading._after_fork)  # type: ignore[attr-defined]
    mode = payload["mode"]
    if mode == "judge":
        # Test output never affects the verdict, and a program can influence how much there is.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        judge.CaseJudge(payload, socket.socket(fileno=CONTROL), socket.socket(fileno=CALLS)).run()
        os._exit(0)
    if payload.get("files"):
        try:
            program.write_files(payload["files"])
        except (OSError, ValueError) as error:
            os.write(2, f"sandbox: {error}\n".encode())
            os._exit(1)
    if mode == "command":
        os.close(CONTROL)
        program.execute_command(payload)
    sys.path.insert(0, os.path.dirname(program.PATH))
    sys.argv = ["main.py"]
    if mode == "serve":
        program.serve_calls(payload["code"], socket.socket(fileno=CALLS))
    program.run_script(payload["code"], CONTROL if payload["reuse"] else None)


def _read_order() -> bytes:
    (size,) = _SIZE.unpack(os.read(CONTROL, 4))
    data = os.read(CONTROL, size)
    while len(data) < size:
        data += os.read(CONTROL, size - len(data))
    return data
