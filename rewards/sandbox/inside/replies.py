"""Schemas of the messages of a program's process on its call channel and of a judge on its verdict channel.

The other side of the channel is model code, so the type and size of every field are checked before it is used. Values
stay JSON forms here: `codec.decode` turns them into values, within its own bounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rewards.sandbox.inside.frames import BadFrame
from rewards.sandbox.inside.outcomes import OUTCOMES

GONE = "gone"
"""A judge's verdict when the program's process has ended."""
_OUTCOMES = frozenset({*OUTCOMES, GONE})
MAX_NAME, MAX_TEXT, MAX_ARGUMENTS = 200, 2000, 64


@dataclass(frozen=True)
class Returned:
    """A value. `ended`: the iterator is exhausted. `updates`: changes of shared containers (shared.py)."""

    form: Any
    ended: bool = False
    updates: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Raised:
    """An exception: its type's name, its message, its last traceback line.

    syntax: the program did not compile. arguments: forms of `args`, if they are data. on, kind: numbers of the object
    and of its class, for an exception whose class is not a builtin.
    """

    type: str
    text: str
    line: str
    syntax: bool = False
    arguments: list[Any] | None = None
    on: int | None = None
    kind: int | None = None
    updates: tuple[Any, ...] = ()

    @property
    def out_of_memory(self) -> bool:
        """Whether the program reports that it ran out of memory."""
        return self.type == "MemoryError"


@dataclass(frozen=True)
class CalledBack:
    """A call by the program of a function that a test passed to it: its number and the forms of the arguments."""

    function: int
    arguments: list[Any]
    keywords: Any
    updates: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Gone:
    """The program's process ended during loading; `detail`: "timeout" or the known reason."""

    detail: str = ""


Reply = Returned | Raised | CalledBack


def read_reply(message: Any) -> Reply:
    """Parse a reply of the program; raises `BadFrame` for anything else."""
    if type(message) is dict:
        updates = _updates(message.get("sync", []))
        if "x" in message:
            return _raised(message["x"], updates)
        if "v" in message:
            return Returned(message["v"], message.get("end") is True, updates)
        if type(message.get("k")) is int and type(message.get("args")) is list:
            return CalledBack(message["k"], message["args"], message.get("kwargs", {"d": []}), updates)
    raise BadFrame("the program sent an invalid reply")


def _updates(updates: Any) -> tuple[Any, ...]:
    if type(updates) is not list or any(type(pair) is not list or len(pair) != 2 for pair in updates):
        raise BadFrame("the program sent invalid updates")
    return tuple(updates)


def _raised(error: Any, updates: tuple[Any, ...] = ()) -> Raised:
    if type(error) is not dict:
        raise BadFrame("the program sent an invalid exception")
    arguments, on, kind = error.get("args"), error.get("on"), error.get("kind")
    listed = type(arguments) is list and len(arguments) <= MAX_ARGUMENTS
    return Raised(
        type=_text(error.get("type"), MAX_NAME),
        text=_text(error.get("text"), MAX_TEXT),
        line=_text(error.get("line"), MAX_TEXT),
        syntax=error.get("syntax") is True,
        arguments=arguments if listed else None,
        on=on if type(on) is int else None,
        kind=kind if type(kind) is int else None,
        updates=updates,
    )


def _text(value: Any, limit: int) -> str:
    return value[:limit] if type(value) is str else ""


def read_loaded(message: Any) -> Raised | Gone | None:
    """Parse a judge's first message: None if the program was loaded, else the exception or `Gone`.

    Raises `BadFrame` for anything else.
    """
    if type(message) is not dict or type(message.get("loaded")) is not bool:
        raise BadFrame("the judge sent an invalid first message")
    if message["loaded"]:
        return None
    error = message.get("error")
    if type(error) is dict and "gone" not in error:
        reply = read_reply({"x": error})
        assert isinstance(reply, Raised)
        return reply
    detail = error.get("detail") if type(error) is dict else None
    return Gone(_text(detail, MAX_TEXT))


def read_verdict(message: Any) -> dict[str, Any]:
    """Parse a judge's verdict on one case; raises `BadFrame` for anything else."""
    if type(message) is not dict or str(message.get("outcome")) not in _OUTCOMES:
        raise BadFrame("the judge sent an invalid verdict")
    texts = {name: message[name][:MAX_TEXT] for name in ("detail", "error_type") if type(message.get(name)) is str}
    return {"outcome": str(message["outcome"]), **texts}
