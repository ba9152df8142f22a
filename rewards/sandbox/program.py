"""What the child of a fork server does with a model's program: run it as a script, or load it and answer calls.

This code shares its process with the program, so nothing that it says decides a verdict: it reports output and values,
which are compared elsewhere (worker.py for printed output, judge.py for values).
"""

from __future__ import annotations

import atexit
import base64
import builtins
import io
import os
import signal
import socket
import sys
import threading
import types
from collections.abc import Callable
from typing import Any, NoReturn

from rewards.sandbox.codec import decode, encode, receive_frame, send_frame

PATH = "main.py"
"""Where the program's source goes; the fork server sets it to an absolute path."""


def write_files(files: dict[str, str | None]) -> None:
    """Write the base64 files of a request below the working directory; raises `ValueError` for a path that leaves
    it."""
    root = os.path.realpath(".")
    for path, content in files.items():
        target = os.path.realpath(os.path.join(root, path))
        if os.path.isabs(path) or not target.startswith(root + os.sep):
            raise ValueError(f"file path {path!r} is not below the working directory")
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as file:
            file.write(base64.b64decode(content or ""))


def compile_program(code: str) -> types.CodeType | None:
    """Compile the program; on failure print what Python prints and return None."""
    try:
        # Plain descriptors: a child pays for every part of the library that it touches first.
        source = code.encode()
        descriptor = os.open(PATH, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        while source:
            source = source[os.write(descriptor, source) :]
        os.close(descriptor)
        return compile(code, PATH, "exec", 0, True)
    except SyntaxError:
        sys.excepthook(*_without_our_frames())
    except (ValueError, OverflowError, RecursionError, MemoryError) as error:
        # Null bytes, lone surrogates and too deep nesting: no traceback, as CPython prints for what it can't parse.
        print(f"SyntaxError: {error}", file=sys.stderr)
    return None


def _without_our_frames() -> Any:
    kind, error, frames = sys.exc_info()
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    return kind, error.with_traceback(frames) if error else error, frames


def _fresh_main() -> dict[str, Any]:
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=PATH, __builtins__=builtins, __cached__=None)
    sys.modules["__main__"] = module
    return module.__dict__


def execute(compiled: types.CodeType) -> int:
    """Run a compiled program as `__main__` and return the exit code that Python would end with."""
    code = 0
    try:
        exec(compiled, _fresh_main())  # noqa: S102 - this is the sandboxed child, and this is what it is for
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
    # What the interpreter does between the last line and the exit, in its order.
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    except BaseException:
        sys.excepthook(*sys.exc_info())
    try:
        # Files that the program left open are closed, and so written, when its names go.
        sys.modules["__main__"].__dict__.clear()
        _flush()
    except BaseException:
        code = code or 120
    return code


def _flush() -> None:
    for stream in {sys.stdout, sys.__stdout__}:
        if stream is not None:
            stream.flush()


def _fresh_streams() -> None:
    # A second run in one process must not find what the first left in a buffer or in place of a stream.
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), encoding="utf-8", errors="replace")
    out = io.BufferedWriter(io.FileIO(1, "w", closefd=False))
    sys.stdout = sys.__stdout__ = io.TextIOWrapper(out, encoding="utf-8", errors="surrogateescape")  # type: ignore[misc]


def run_script(code: str, control: int | None) -> NoReturn:
    """Run the program once, or once for each input that the worker puts behind standard input (`control` given)."""
    compiled = compile_program(code)
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
        # Exit handlers of one run belong to that run: a real end would have called them here.
        atexit._run_exitfuncs()
        _flush()
        send_frame(control, {"done": True})
        try:
            receive_frame(control)
        except EOFError:
            end(0)
        _fresh_streams()
        status = execute(compiled)


_READS: dict[str, Callable[[Any], Any]] = {"len": len, "str": str, "repr": repr}


class Exports:
    """The objects of the program that the judge holds by number."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        self.namespace = namespace
        self.objects: list[Any] = []

    def remember(self, value: Any) -> Any:
        """The JSON of a handle for what has no plain-data form."""
        self.objects.append(value)
        return {"o": [len(self.objects) - 1, type(value).__name__]}

    def recall(self, body: Any) -> Any:
        """The object of a handle."""
        return self.objects[body[0]]

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do one request of the judge: look a name up, call, get an attribute, step an iterator, take len/str/repr."""
        what = request["op"]
        if what == "name":
            return {"v": encode(self.namespace[request["name"]], self.remember)}
        if what == "run":
            return self._run(request)
        target = self.recall(request["on"])
        if what == "attribute":
            return {"v": encode(getattr(target, request["name"]), self.remember)}
        if what == "iterate":
            return {"v": self.remember(iter(target))}
        if what == "next":
            return {"v": [encode(item, self.remember) for item in _take(target, 256)]}
        if what == "item":
            return {"v": encode(target[decode(request["key"], self.recall)], self.remember)}
        if what == "call":
            return self._call(target, request)
        return {"v": encode(_READS[what](target))}

    def _run(self, request: dict[str, Any]) -> dict[str, Any]:
        """Call a name of the program with plain data, for plain data: all that a simple test asks."""
        try:
            target = self.namespace[request["name"]]
        except KeyError:
            raise NameError(f"name {request['name']!r} is not defined") from None
        return {"v": encode(target(*decode(request["args"]), **decode(request["kwargs"])), self.remember)}

    def _call(self, target: Any, request: dict[str, Any]) -> dict[str, Any]:
        arguments = decode(request["args"], self.recall)
        keywords = decode(request["kwargs"], self.recall)
        value = target(*arguments, **keywords)
        reply = {"v": encode(value, self.remember)}
        # Python passes lists by reference: a program that sorts its argument in place must be seen to have done so.
        changed = [encode(argument, self.remember) for argument in arguments]
        if changed != request["args"]:
            reply["args"] = changed
        return reply


def _take(iterator: Any, count: int) -> list[Any]:
    items = []
    for item in iterator:
        items.append(item)
        if len(items) == count:
            break
    return items


def describe(error: BaseException) -> dict[str, Any]:
    """The plain-data form of an exception: type name, message, last traceback line."""
    name = type(error).__name__
    try:
        text = str(error)
    except BaseException:
        text = ""
    text = text[:2000]
    return {"type": name, "text": text, "line": f"{name}: {text}" if text else name}


def serve_calls(code: str, calls: socket.socket) -> NoReturn:
    """Load the program, then answer the judge's calls until it closes the channel."""
    compiled = compile_program(code)
    if compiled is None:
        send_frame(calls, {"x": {"type": "SyntaxError", "line": "SyntaxError", "text": "", "syntax": True}})
        os._exit(1)
    namespace = _fresh_main()
    end = os._exit
    try:
        exec(compiled, namespace)  # noqa: S102 - the sandboxed child
        send_frame(calls, {"v": True})
    except BaseException as error:
        send_frame(calls, {"x": describe(error)})
        end(1)
    exports = Exports(namespace)
    while True:
        try:
            request = receive_frame(calls)
        except (EOFError, OSError):
            end(0)
        try:
            reply = exports.answer(request)
        except BaseException as error:
            reply = {"x": describe(error)}
        send_frame(calls, reply)


def execute_command(payload: dict[str, Any]) -> NoReturn:
    """Become another program (a compiler, bash, a compiled binary), after writing its source if there is one."""
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
