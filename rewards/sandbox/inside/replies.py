"""What a program's process may say on its call channel, and a judge on its own: the schemas of their messages.

The other side of the channel is model code, so every field has a type and a size before anything is done with it.
Values stay JSON forms here: `codec.decode` turns them into values, within its own bounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rewards.sandbox.inside.frames import BadFrame
from rewards.sandbox.inside.outcomes import OUTCOMES

GONE = "gone"
"""A judge's verdict where the program's process ended."""
_OUTCOMES = frozenset({*OUTCOMES, GONE})
MAX_NAME, MAX_TEXT, MAX_ARGUMENTS = 200, 2000, 64


@dataclass(frozen=True)
class Returned:
    """A value; `ended`: of an iterator; `updates`: of shared containers (shared.py)."""

    form: Any
    ended: bool = False
    updates: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Raised:
    """An exception: its type's name, its message, its last traceback line.

    syntax: the program did not compile. arguments: forms of `args`, where they are data. on, kind: numbers of the
    object and of its class, for an exception of a class that is no builtin.
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
        """Whether the program ran out of memory, by its own account."""
        return self.type == "MemoryError"


@dataclass(frozen=True)
class CalledBack:
    """The program calls a function that a test handed to it: its number and the forms of the arguments."""

    function: int
    arguments: list[Any]
    keywords: Any
    updates: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Gone:
    """The program's process ended while it was loaded; `detail`: "timeout", or what is known."""

    detail: str = ""


Reply = Returned | Raised | CalledBack


def read_reply(message: Any) -> Reply:
    """The reply that a message is; raises `BadFrame` for anything else."""
    if type(message) is dict:
        updates = _updates(message.get("sync", []))
        if "x" in message:
            return _raised(message["x"], updates)
        if "v" in message:
            return Returned(message["v"], message.get("end") is True, updates)
        if type(message.get("k")) is int and type(message.get("args")) is list:
            return CalledBack(message["k"], message["args"], message.get("kwargs", {"d": []}), updates)
    raise BadFrame("the program sent no reply of ours")


def _updates(updates: Any) -> tuple[Any, ...]:
    if type(updates) is not list or any(type(pair) is not list or len(pair) != 2 for pair in updates):
        raise BadFrame("the program sent no updates of ours")
    return tuple(updates)


def _raised(error: Any, updates: tuple[Any, ...] = ()) -> Raised:
    if type(error) is not dict:
        raise BadFrame("the program sent no exception of ours")
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
    """What a judge's first message says: None for a program that was loaded, the exception, or that it is gone.

    Raises `BadFrame` for anything else.
    """
    if type(message) is not dict or type(message.get("loaded")) is not bool:
        raise BadFrame("the judge sent no first message of ours")
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
    """A judge's verdict on one case; raises `BadFrame` for anything else."""
    if type(message) is not dict or str(message.get("outcome")) not in _OUTCOMES:
        raise BadFrame("the judge sent no verdict of ours")
    texts = {name: message[name][:MAX_TEXT] for name in ("detail", "error_type") if type(message.get(name)) is str}
    return {"outcome": str(message["outcome"]), **texts}
