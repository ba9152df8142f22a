"""The judge's end of the call channel: asks the program's process for values and raises what it raises."""

from __future__ import annotations

import builtins
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any

from rewards.sandbox.inside.codec import UNREADABLE, NotData, decode, encode
from rewards.sandbox.inside.exports import describe
from rewards.sandbox.inside.frames import BadFrame, receive_frame, send_frame
from rewards.sandbox.inside.proxies import ClassInfo, Stub, Unverifiable, mirrored_exception, read_class, stub_class
from rewards.sandbox.inside.replies import CalledBack, Raised, Returned, read_reply
from rewards.sandbox.inside.shared import Shared

MAX_DETAIL = 2000


class ProgramError(Exception):
    """An exception of the program whose class is unavailable in the judge."""


class ProgramGone(BaseException):
    """The program's process ended during a call. Not an Exception, so that no test swallows it."""


class RemoteProgram:
    """The program as its tests use it.

    `fatal`: the first error that decides the case no matter how the test handles it: a bare `except` must not turn the
    program's death, or a decision that proves nothing, into a pass.
    """

    def __init__(self, calls: socket.socket) -> None:
        self._calls = calls
        self._lock = threading.RLock()
        self._stubs: dict[int, Stub] = {}
        self._infos: dict[int, ClassInfo] = {}
        self._exceptions: dict[int, type[BaseException]] = {}
        self._functions: list[Callable[..., Any]] = []
        self._shared = Shared(0)
        self.fatal: ProgramGone | Unverifiable | None = None

    def loaded(self) -> Raised | None:
        """Wait until the program is loaded; returns the error that stopped it, or None."""
        reply = self._exchange(None)
        return reply if isinstance(reply, Raised) else None

    def gone(self, reason: str = "") -> ProgramGone:
        """The error to raise when the program's process can't continue; recorded in `fatal`."""
        self.fatal = self.fatal or ProgramGone(reason[:MAX_DETAIL])
        return self.fatal if isinstance(self.fatal, ProgramGone) else ProgramGone(reason[:MAX_DETAIL])

    def doubt(self, reason: str) -> Unverifiable:
        """The error to raise for a decision that proves nothing; recorded in `fatal`."""
        error = Unverifiable(reason[:MAX_DETAIL])
        self.fatal = self.fatal or error
        return error

    def _exchange(self, request: dict[str, Any] | None) -> Returned | Raised:
        with self._lock:
            try:
                if request is not None:
                    self._send(request)
                while isinstance(reply := read_reply(receive_frame(self._calls)), CalledBack):
                    self._send(self._called_back(reply))
            except (OSError, EOFError):
                raise self.gone() from None
            except BadFrame as error:
                raise self.gone(str(error)) from None
            return reply

    def _send(self, message: dict[str, Any]) -> None:
        updates = self._shared.updates(lambda value: encode(value, self._handle, shared=self._shared, contents=True))
        send_frame(self._calls, {**message, "sync": updates} if updates else message)

    def _called_back(self, call: CalledBack) -> dict[str, Any]:
        arguments, keywords = [self._decoded(form) for form in call.arguments], self._decoded(call.keywords)
        self._apply(call.updates)
        if not 0 <= call.function < len(self._functions):
            raise self.gone("the program called a function that it was not given")
        try:
            value = self._functions[call.function](*arguments, **keywords)
            return {"v": self._shared.attempt(lambda: self.form(value))}
        except AssertionError:
            raise self.doubt("an assertion of the test failed in a function that it gave to the program") from None
        except Exception as error:
            known = next(base for base in type(error).__mro__ if base.__module__ == "builtins")
            return {"x": {**describe(error), "type": known.__name__}}

    def _apply(self, updates: tuple[Any, ...]) -> None:
        """Apply the program's changes of shared containers on this side."""
        try:
            self._shared.apply(list(updates), self._decoded)
        except UNREADABLE as error:
            raise self.gone(f"the program changed a container that is not shared: {type(error).__name__}") from None

    def ask(self, op: str, on: int = 0, *arguments: Any, **fields: Any) -> Any:
        """Send a request and return its value; raises what the program raised."""
        reply = self._request(op, on, arguments, fields)
        value = self._decoded(reply.form)
        self._apply(reply.updates)
        return _harmless(value) if op in ("name", "attribute") else value

    def _request(self, op: str, on: int, arguments: Sequence[Any], fields: dict[str, Any]) -> Returned:
        forms = self._shared.attempt(lambda: [self.form(argument) for argument in arguments])
        reply = self._exchange({"op": op, "on": on, "args": forms, **fields})
        if isinstance(reply, Raised):
            error = self._exception(reply)
            self._apply(reply.updates)
            raise error
        return reply

    def items(self, number: int, count: int) -> list[Any]:
        """The next items of an iterator, at most `count`; empty at its end."""
        reply = self._request("next", number, (), {"count": count})
        if type(reply.form) is not list or len(reply.form) > count or not (reply.form or reply.ended):
            raise self.gone("the program sent invalid items of an iterator")
        items = [self._decoded(form) for form in reply.form]
        self._apply(reply.updates)
        return items

    def form(self, value: Any) -> Any:
        """The form of a value, a stand-in or a function of the test, for use in a request."""
        return encode(value, self._handle, shared=self._shared)

    def _handle(self, value: Any) -> Any:
        if issubclass(type(value), Stub):
            return {"o": [object.__getattribute__(value, "_number")]}
        if isinstance(value, type) and "_remote_class" in vars(value):
            return {"o": [vars(value)["_remote_class"]]}
        if callable(value):
            self._functions.append(value)
            return {"o": ["k", len(self._functions) - 1]}
        raise NotData(f"a {type(value).__name__} can't be handed to the program")

    def _decoded(self, form: Any) -> Any:
        if type(form) is dict and "n" in form:
            return NotImplemented
        try:
            return decode(form, self._recalled, shared=self._shared)
        except UNREADABLE as error:
            raise self.gone(f"the program sent a value that can't be read: {type(error).__name__}") from None

    def _recalled(self, body: Any) -> Any:
        number, kind, _, is_class = body
        if type(number) is not int or type(kind) is not int:
            raise ValueError("not a handle")
        if is_class and self._info(number).is_exception:
            return self.exception_class(number)
        if number not in self._stubs:
            info = self._info(kind)
            self._stubs[number] = stub_class(info)(self, number, info)
        return self._stubs[number]

    def _info(self, number: int) -> ClassInfo:
        if number not in self._infos:
            reply = self._request("class", number, (), {})
            self._infos[number] = read_class(number, reply.form)
            self._apply(reply.updates)
        return self._infos[number]

    def exception_class(self, number: int, depth: int = 0) -> type[BaseException]:
        """The judge's mirror of an exception class of the program."""
        if depth > 50:
            raise ValueError("an endless chain of exception classes")
        if number not in self._exceptions:
            info = self._info(number)
            made = mirrored_exception(info, lambda entry: self._base(entry, depth + 1))
            self._exceptions[number] = made
        return self._exceptions[number]

    def _base(self, entry: Any, depth: int) -> type[BaseException] | None:
        if type(entry) is int:
            return self.exception_class(entry, depth) if self._info(entry).is_exception else None
        return _builtin_exception(str(entry))

    def _exception(self, raised: Raised) -> BaseException:
        """The exception to raise in the test for one that the program raised."""
        try:
            kind = _builtin_exception(raised.type) if raised.kind is None else self.exception_class(raised.kind)
            arguments = [self._decoded(form) for form in raised.arguments or []]
            error = (kind or ProgramError)(*arguments) if raised.arguments is not None else (kind or ProgramError)(
                raised.text
            )  # fmt: skip
        except (TypeError, ValueError):
            error = ProgramError(raised.text)
        error.program_error = raised  # type: ignore[attr-defined]
        if raised.on is not None and raised.kind is not None:
            stub = self._recalled([raised.on, raised.kind, "", 0])
            type(error).__getattr__ = lambda own, name: _of_exception(own, name)  # type: ignore[attr-defined]
            error.__dict__["_stub"] = stub
        return error


def _harmless(value: Any) -> Any:
    """Replace every class that would catch the test's own failures by a subclass that does not."""
    if isinstance(value, tuple):
        return tuple(map(_harmless, value))
    if isinstance(value, type) and issubclass(AssertionError, value) and value is not object:
        return type(value.__name__, (value,), {})
    return value


def _of_exception(error: BaseException, name: str) -> Any:
    stub = error.__dict__.get("_stub")
    if stub is None or name.startswith("__"):
        raise AttributeError(f"{type(error).__name__!r} object has no attribute {name!r}")
    return getattr(stub, name)


def _builtin_exception(name: str) -> type[BaseException] | None:
    kind = getattr(builtins, name, None)
    return kind if isinstance(kind, type) and issubclass(kind, BaseException) else None
