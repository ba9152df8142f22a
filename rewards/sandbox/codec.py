"""Plain data between the process that runs the program and the process that judges it.

Only values travel, never behaviour: an object of the program's own class becomes a handle, a subclass of a builtin
becomes the builtin that it holds. What the judge compares is therefore always made by the judge's own interpreter,
so an `__eq__` that lies is never asked. Nothing here unpickles or evaluates.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

MAX_DEPTH = 100
MAX_FRAME = 16 * 1024 * 1024
_SMALL = 1 << 63
_HEADER = struct.Struct("!I")
_ATOMS = (str, bool, float, type(None))

Remember = Callable[[Any], Any]
"""Turns an object that is no plain data into the JSON that stands for it."""


class NotData(TypeError):
    """A value that has no plain-data form, or is nested too deeply to have one."""


def refuse(value: Any) -> Any:
    """The `Remember` of a side that sends plain data only."""
    raise NotData(f"{type(value).__name__} is not plain data")


def encode(value: Any, remember: Remember = refuse, depth: int = 0) -> Any:
    """Return the JSON form of `value`; raises `NotData` for what has none and `remember` does not take."""
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is int:
        return value if -_SMALL < value < _SMALL else {"i": hex(value)}
    if depth > MAX_DEPTH:
        raise NotData(f"nested more than {MAX_DEPTH} levels deep")
    if kind is list:
        return [encode(item, remember, depth + 1) for item in value]
    return _encode_tagged(value, remember, depth + 1)


def _encode_tagged(value: Any, remember: Remember, depth: int) -> Any:
    # The unbound methods of the builtin are called on purpose: a subclass can't put its own in their place.
    if isinstance(value, tuple):
        return {"t": [encode(item, remember, depth) for item in tuple.__iter__(value)]}
    if isinstance(value, dict):
        return {"d": [[encode(k, remember, depth), encode(v, remember, depth)] for k, v in dict.items(value)]}
    if isinstance(value, list):
        return [encode(item, remember, depth) for item in list.__iter__(value)]
    if isinstance(value, (set, frozenset)):
        tag, items = ("s", set.__iter__(value)) if isinstance(value, set) else ("f", frozenset.__iter__(value))
        return {tag: [encode(item, remember, depth) for item in items]}
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return encode(int.__add__(value, 0), remember, depth)
    if isinstance(value, float):
        return float.__add__(value, 0.0)
    if isinstance(value, complex):
        return {"c": [value.real, value.imag]}
    if isinstance(value, (bytes, bytearray)):
        return {"b" if isinstance(value, bytes) else "a": bytes(value).decode("latin-1")}
    if type(value) is range:
        return {"r": [value.start, value.stop, value.step]}
    return _encode_library(value, remember, depth)


def _encode_library(value: Any, remember: Remember, depth: int) -> Any:
    kind = type(value)
    if kind is Decimal:
        return {"D": str(value)}
    if kind is Fraction:
        return {"F": [encode(value.numerator), encode(value.denominator)]}
    if kind is datetime or kind is date or kind is time:
        return {"T": [kind.__name__, value.isoformat()]}
    if kind is timedelta:
        return {"L": [value.days, value.seconds, value.microseconds]}
    if kind.__module__ == "numpy" and hasattr(value, "tolist"):
        return encode(value.tolist(), remember, depth)
    return remember(value)


_TIMES: dict[str, Callable[[str], Any]] = {
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
}


UNREADABLE = (ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError, RecursionError)
"""What `decode` raises for a form that `encode` does not make."""


def decode(form: Any, recall: Callable[[Any], Any] = refuse) -> Any:
    """Return the value of a JSON form; `recall` turns the content of an `"o"` (handle) tag into an object.

    Raises `UNREADABLE` for a form that `encode` does not make: the other side is not trusted.
    """
    if isinstance(form, list):
        return [decode(item, recall) for item in form]
    if not isinstance(form, dict):
        return form
    ((tag, body),) = form.items()
    if tag == "t":
        return tuple(decode(item, recall) for item in body)
    if tag == "d":
        return {decode(key, recall): decode(item, recall) for key, item in body}
    if tag in ("s", "f"):
        return (set if tag == "s" else frozenset)(decode(item, recall) for item in body)
    if tag == "o":
        return recall(body)
    return _decode_scalar(tag, body)


def _decode_scalar(tag: str, body: Any) -> Any:
    if tag == "i":
        return int(body, 16)
    if tag == "c":
        return complex(*body)
    if tag == "b":
        return body.encode("latin-1")
    if tag == "a":
        return bytearray(body.encode("latin-1"))
    if tag == "r":
        return range(*body)
    if tag == "D":
        return Decimal(body)
    if tag == "F":
        return Fraction(decode(body[0]), decode(body[1]))
    if tag == "T":
        return _TIMES[body[0]](body[1])
    if tag == "L":
        return timedelta(*body)
    raise ValueError(f"unknown tag {tag!r}")


def frame(message: Any) -> bytes:
    """One JSON message behind its length."""
    body = json.dumps(message, separators=(",", ":")).encode()
    return _HEADER.pack(len(body)) + body


def send_frame(channel: socket.socket, message: Any) -> None:
    """Write one message; raises `OSError` when the other side is gone."""
    channel.sendall(frame(message))


def receive_frame(channel: socket.socket) -> Any:
    """Read one message; raises `EOFError` at the end, `ValueError` for what is no frame of ours."""
    (size,) = _HEADER.unpack(_read_exactly(channel, _HEADER.size))
    if size > MAX_FRAME:
        raise ValueError(f"frame of {size} bytes is above {MAX_FRAME}")
    return json.loads(_read_exactly(channel, size))


def _read_exactly(channel: socket.socket, size: int) -> bytes:
    data = channel.recv(size, socket.MSG_WAITALL)
    while len(data) < size:
        more = channel.recv(size - len(data), socket.MSG_WAITALL)
        if not more:
            raise EOFError("the other side closed the channel")
        data += more
    return data


class FrameTooLarge(ValueError):
    """A frame above the limit of the side that reads."""


class FrameBuffer:
    """Frames out of bytes that arrive in pieces, for the side that polls; none larger than `limit` bytes."""

    def __init__(self, limit: int = MAX_FRAME) -> None:
        self._data = bytearray()
        self._limit = limit

    def feed(self, data: bytes) -> list[Any]:
        """Add bytes, return the messages that they complete; raises `ValueError` for what is no frame."""
        self._data += data
        messages = []
        while len(self._data) >= _HEADER.size:
            (size,) = _HEADER.unpack_from(self._data)
            if size > self._limit:
                raise FrameTooLarge(f"frame of {size} bytes is above {self._limit}")
            end = _HEADER.size + size
            if len(self._data) < end:
                break
            messages.append(json.loads(bytes(self._data[_HEADER.size : end])))
            del self._data[:end]
        return messages
