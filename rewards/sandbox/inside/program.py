"""Execution of a model's program in a child of a fork server: as a script, or loaded as a module that answers calls.

This code shares its process with the program, so nothing that it reports decides a verdict: it sends output and values,
which are compared elsewhere (worker.py for printed output, judge.py for values).
"""

from __future__ import annotations

import atexit
import base64
import builtins
import contextlib
import io
import os
import signal
import socket
import sys
import threading
import types
from typing import Any, NoReturn

from rewards.sandbox.inside.coverage import compile_probed
from rewards.sandbox.inside.exports import Exports
from rewards.sandbox.inside.frames import receive_frame, send_frame

PATH = "main.py"
"""Path of the program's source file; the fork server makes it absolute."""
READY, DONE, NEXT = b"r", b"d", b"n"
"""The only messages on the control channel between a program's process and the worker: confined, run ended, run
again."""
MODULE = "main"
"""Module name of a program whose functions are tested, as if a test had imported it."""


def write_files(files: dict[str, str | None]) -> None:
    """Write the base64 files of a request below the working directory; raises `ValueError` for a path outside it."""
    root = os.path.realpath(".")
    for path, content in files.items():
        target = os.path.realpath(os.path.join(root, path))
        if os.path.isabs(path) or not target.startswith(root + os.sep):
            raise ValueError(f"file path {path!r} is not below the working directory")
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as file:
            file.write(base64.b64decode(content or ""))


def compile_program(code: str, *, covered: bool = False) -> types.CodeType | None:
    """Compile the program, with probes if `covered`; on failure print the same error as Python and return None."""
    try:
        # Plain descriptors: the first use of any library code costs a child time.
        source = code.encode()
        descriptor = os.open(PATH, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        while source:
            source = source[os.write(descriptor, source) :]
        os.close(descriptor)
        compiled = compile(code, PATH, "exec", 0, True)
        return (compile_probed(code, PATH) or compiled) if covered else compiled
    except SyntaxError:
        sys.excepthook(*_without_our_frames())
    except (ValueError, OverflowError, RecursionError, MemoryError) as error:
        # Null bytes, lone surrogates and too deep nesting: no traceback, like CPython for a file that it can't parse.
        print(f"SyntaxError: {error}", file=sys.stderr)
    return None


def _without_our_frames() -> Any:
    kind, error, frames = sys.exc_info()
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    return kind, error.with_traceback(frames) if error else error, frames


def _fresh_module(name: str) -> dict[str, Any]:
    module = types.ModuleType(name)
    module.__dict__.update(__file__=PATH, __builtins__=builtins, __cached__=None)
    # Code that looks up the program's module as __main__ (pickle, unittest, dataclasses) finds it too.
    sys.modules["__main__"] = sys.modules[name] = module
    return module.__dict__


def execute(compiled: types.CodeType) -> int:
    """Run a compiled program as `__main__` and return the exit code that Python would give."""
    code = 0
    try:
        exec(compiled, _fresh_module("__main__"))  # noqa: S102 - the sandboxed child exists for this
    except SystemExit as stop:
        code = _exit_code(stop.code)
    except BaseException:
        code = 1
        sys.excepthook(*_without_our_frames())
    return code


def _exit_code(value: Any) -> int:
    if value is None:
        return 0
    if isinstance(value, int):
        return value & 0xFF
    print(value, file=sys.stderr)
    return 1


def _finish(code: int) -> int:
    # The interpreter's steps between the last line and the exit, in its order.
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    except BaseException:
        sys.excepthook(*sys.exc_info())
    try:
        # Clearing the namespace closes, and so flushes, files that the program left open.
        sys.modules["__main__"].__dict__.clear()
        _flush()
    except BaseException:
        code = code or 120
    return code


def _flush() -> None:
    # Like the interpreter at exit: a stream that the program closed is already flushed, and only the current standard
    # output can fail the program.
    if sys.stdout is not None and not sys.stdout.closed:
        sys.stdout.flush()
    if sys.__stdout__ is not sys.stdout:
        with contextlib.suppress(ValueError, OSError, AttributeError):
            sys.__stdout__.flush()  # type: ignore[union-attr]


def fresh_streams() -> None:
    """Install new standard streams over the current descriptors.

    For a second run in one process, which must not see buffers or replaced streams of the first, and for the fork
    server, whose own streams may have been opened on a file where its children have a pipe.
    """
    sys.stdin = sys.__stdin__ = _reader(0, "<stdin>")  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _writer(1, "<stdout>", "surrogateescape", line_buffering=False)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _writer(2, "<stderr>", "backslashreplace", line_buffering=True)  # type: ignore[misc]


def _reader(descriptor: int, name: str) -> io.TextIOWrapper:
    raw = _named(io.FileIO(descriptor, closefd=False), name, io.BufferedReader)
    # No newline translation, as in Python's own streams.
    return io.TextIOWrapper(raw, "utf-8", "surrogateescape", newline="\n")


def _writer(descriptor: int, name: str, errors: str, *, line_buffering: bool) -> io.TextIOWrapper:
    raw = _named(io.FileIO(descriptor, "w", closefd=False), name, io.BufferedWriter)
    return io.TextIOWrapper(raw, "utf-8", errors, newline="\n", line_buffering=line_buffering)


def _named(file: io.FileIO, name: str, buffered: Any) -> Any:
    file.name = name
    return buffered(file)


def run_script(code: str, control: int | None, *, covered: bool = False) -> NoReturn:
    """Run the program once or, with `control`, once for each input that the worker puts on standard input."""
    compiled = compile_program(code, covered=covered)
    if compiled is None:
        os._exit(1)
    status = execute(compiled)
    if control is not None:
        _run_again_on_demand(compiled, status, socket.socket(fileno=control))
    os._exit(_finish(status))


def _run_again_on_demand(compiled: types.CodeType, status: int, control: socket.socket) -> NoReturn:
    end = os._exit
    while True:
        if status or threading.active_count() > 1:
            end(_finish(status))
        # Exit handlers belong to the run that registered them: a real exit would call them here.
        atexit._run_exitfuncs()
        _flush()
        control.sendall(DONE)
        if control.recv(1) != NEXT:
            end(0)
        fresh_streams()
        status = execute(compiled)


def serve_calls(code: str, calls: socket.socket, *, covered: bool = False) -> NoReturn:
    """Load the program, then answer the judge's calls until it closes the channel.

    The program is loaded as a module: its main block does not run. A program that exits while it loads (`sys.exit`,
    `unittest.main`) is tested with the names it has defined so far.
    """
    compiled = compile_program(code, covered=covered)
    if compiled is None:
        send_frame(calls, {"x": {"type": "SyntaxError", "line": "SyntaxError", "text": "", "syntax": True}})
        os._exit(1)
    namespace = _fresh_module(MODULE)
    end = os._exit
    exports = Exports(namespace, calls)
    try:
        with contextlib.suppress(SystemExit):
            exec(compiled, namespace)  # noqa: S102 - the sandboxed child
        send_frame(calls, {"v": True})
    except BaseException as error:
        send_frame(calls, {"x": exports.describe(error)})
        end(1)
    while True:
        try:
            request = receive_frame(calls)
        except (EOFError, OSError):
            end(0)
        exports.serve(request)


def execute_command(payload: dict[str, Any]) -> NoReturn:
    """Replace this process by another program (a compiler, bash, a compiled binary), after writing its source if given.

    Exits with 127 if it cannot be executed.
    """
    argv = payload["argv"]
    try:
        if "code" in payload:
            with open(payload["source"], "wb") as file:
                file.write(payload["code"].encode("utf-8", "surrogatepass"))
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.execvp(argv[0], argv)
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
        os._exit(127)
