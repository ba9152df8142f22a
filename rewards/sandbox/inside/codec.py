"""Plain data between the process that runs the program and the process that judges it.

Only values travel, never behaviour: an object of the program's own class becomes a handle. The judge's own interpreter
therefore builds every value that the judge compares, so a lying `__eq__` is never called. Nothing here unpickles or
evaluates. `decode` is the schema: it accepts only the forms that `encode` produces, within `Bounds`.
"""

from __future__ import annotations

import builtins
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

from rewards.sandbox.inside.shared import MUTABLE, Shared

MAX_DEPTH = 100
_SMALL = 1 << 63
_ATOMS = (str, bool, float, type(None))
_VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))
_EXACT = frozenset({tuple, dict, set, frozenset, complex, bytes, bytearray, range, *_VIEWS})
_TYPES = {
    name: kind
    for name, kind in vars(builtins).items()
    if isinstance(kind, type) and (issubclass(kind, BaseException) or kind.__name__ in (
        "bool", "bytearray", "bytes", "complex", "dict", "float", "frozenset", "int", "list", "object", "range", "set",
        "slice", "str", "tuple",
    ))
} | {"NoneType": type(None)}  # fmt: skip
_NAMED: dict[str, Any] = {**_TYPES, "Ellipsis": ..., "NotImplemented": NotImplemented}
_NAMES = {value: name for name, value in _NAMED.items()}
"""Types and constants sent by name: they can be neither created nor changed."""

Remember = Callable[[Any], Any]
"""Turns an object that is not plain data into the JSON that represents it."""


class NotData(TypeError):
    """A value that has no plain-data form, or is nested too deeply to have one."""


class OutOfBounds(ValueError):
    """A well-formed form that is larger than this side accepts."""


@dataclass(frozen=True)
class Bounds:
    """Limits on decoding a form, in addition to its size in bytes and its depth.

    entries: total keys of dicts and members of sets; crafted hashes can collide, which takes quadratic time. bits: size
    of one integer.
    """

    entries: int = 1 << 20
    bits: int = 1 << 23


DATA = Bounds()
"""For a process that is killed with the program: its time counts as the program's."""
QUICK = Bounds(entries=512, bits=1 << 14)
"""For the worker: a form within the frame limit and these bounds decodes within a few milliseconds."""


def is_flat(value: Any) -> bool:
    """Whether a value is an atom, or a list, tuple or dict of atoms: these types, not subclasses of them."""
    items = [*value, *value.values()] if type(value) is dict else value if type(value) in (list, tuple) else [value]
    return all(type(item) in (int, *_ATOMS) for item in items)


def refuse(value: Any) -> Any:
    """The `Remember` of a side that sends plain data only."""
    raise NotData(f"{type(value).__name__} is not plain data")


def encode(
    value: Any,
    remember: Remember = refuse,
    *,
    by_value: bool = True,
    shared: Shared | None = None,
    contents: bool = False,
    depth: int = 0,
) -> Any:
    """Return the JSON form of `value`; raises `NotData` if it has none and `remember` refuses it.

    `by_value`: encode an object of a subclass of a builtin type as its builtin value; otherwise `remember` makes a
    handle of it, so that it keeps its behaviour. `shared`: the containers that both sides hold; `contents`: encode only
    the items of this container, not its number.
    """
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is int:
        return value if -_SMALL < value < _SMALL else {"i": hex(value)}
    if depth > MAX_DEPTH:
        raise NotData(f"nested more than {MAX_DEPTH} levels deep")

    def inner(item: Any) -> Any:
        return encode(item, remember, by_value=by_value, shared=shared, depth=depth + 1)

    if shared is not None and kind in MUTABLE and not contents:
        return shared.form(
            value,
            lambda: encode(value, remember, by_value=by_value, shared=shared, contents=True, depth=depth),
        )
    if kind is list:
        return [inner(item) for item in value]
    if kind in _EXACT or (by_value and issubclass(kind, BUILTIN)):
        return _encode_builtin(value, inner)
    return _encode_library(value, inner, remember)


BUILTIN = (tuple, dict, list, set, frozenset, str, int, float, complex, bytes, bytearray)


def _encode_builtin(value: Any, inner: Callable[[Any], Any]) -> Any:
    # Unbound methods of the builtin on purpose: a subclass cannot override them.
    if isinstance(value, tuple):
        return {"t": [inner(item) for item in tuple.__iter__(value)]}
    if isinstance(value, dict):
        return {"d": [[inner(key), inner(item)] for key, item in dict.items(value)]}
    if isinstance(value, list):
        return [inner(item) for item in list.__iter__(value)]
    if isinstance(value, set):
        return {"s": [inner(item) for item in set.__iter__(value)]}
    if isinstance(value, frozenset):
        return {"f": [inner(item) for item in frozenset.__iter__(value)]}
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return inner(int.__add__(value, 0))
    if isinstance(value, float):
        return float.__add__(value, 0.0)
    if isinstance(value, complex):
        return {"c": [value.real, value.imag]}
    if isinstance(value, (bytes, bytearray)):
        return {"b" if isinstance(value, bytes) else "a": bytes(value).decode("latin-1")}
    if isinstance(value, range):
        return {"r": [inner(part) for part in (value.start, value.stop, value.step)]}
    return {"v": [_VIEWS.index(type(value)), [inner(item) for item in value]]}


def _encode_library(value: Any, inner: Callable[[Any], Any], remember: Remember) -> Any:
    kind = type(value)
    if kind is Decimal:
        return {"D": str(value)}
    if kind is Fraction:
        return {"F": [inner(value.numerator), inner(value.denominator)]}
    if kind is datetime or kind is date or kind is time:
        return {"T": [kind.__name__, value.isoformat()]}
    if kind is timedelta:
        return {"L": [value.days, value.seconds, value.microseconds]}
    if kind is deque:
        return {"q": [value.maxlen, [inner(item) for item in value]]}
    if (kind is type or value is ... or value is NotImplemented) and value in _NAMES:
        return {"y": _NAMES[value]}
    if kind.__module__ == "numpy" and hasattr(value, "tolist"):
        return inner(value.tolist())
    return remember(value)


UNREADABLE = (ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError, RecursionError)
"""What `decode` raises for a form that `encode` does not produce, including `OutOfBounds`."""


def decode(
    form: Any, recall: Callable[[Any], Any] = refuse, bounds: Bounds = DATA, shared: Shared | None = None
) -> Any:
    """Return the value of a JSON form; `recall` turns the content of an `"o"` (handle) tag into an object.

    Raises `OutOfBounds` for a form larger than `bounds`, and another of `UNREADABLE` for one that `encode` does not
    produce: the other side is not trusted.
    """
    return _Decoder(recall, bounds, shared).value(form, 0)


class _Decoder:
    def __init__(self, recall: Callable[[Any], Any], bounds: Bounds, shared: Shared | None) -> None:
        self.shared = shared
        self.recall = recall
        self.bounds = bounds
        self.entries = 0

    def value(self, form: Any, depth: int) -> Any:
        kind = type(form)
        if kind in _ATOMS:
            return form
        if kind is int:
            return self._whole(form)
        if depth > MAX_DEPTH + 1:
            raise ValueError(f"nested more than {MAX_DEPTH} levels deep")
        if kind is list:
            return [self.value(item, depth + 1) for item in form]
        ((tag, body),) = form.items()
        if tag in _CONTAINERS:
            return self._container(tag, body, depth + 1)
        if tag == "o":
            return self.recall(body)
        if tag in ("&", "=") and self.shared is not None:
            return self.shared.value(tag, body, lambda inner: self.value(inner, depth + 1))
        return self._scalar(tag, body)

    def _whole(self, number: int) -> int:
        if number.bit_length() > self.bounds.bits:
            raise OutOfBounds(f"a whole number of more than {self.bounds.bits} bits")
        return number

    def _container(self, tag: str, body: Any, depth: int) -> Any:
        if tag == "q":
            most, body = body
            return deque([self.value(item, depth) for item in _list(body)], most)
        if tag == "v":
            kind, body = body
            pairs = [self.value(item, depth) for item in _list(body)]
            self._count(len(pairs))
            # Views of keys and of items get a dict that holds them; a view of values keeps only their order.
            return (dict.fromkeys(pairs).keys, dict(enumerate(pairs)).values, lambda: dict(pairs).items())[kind]()
        items = [[self.value(part, depth) for part in pair] for pair in body] if tag == "d" else [
            self.value(item, depth) for item in _list(body)
        ]  # fmt: skip
        if tag in "dsf":
            self._count(len(items))
        return _CONTAINERS[tag](items)

    def _count(self, entries: int) -> None:
        self.entries += entries
        if self.entries > self.bounds.entries:
            raise OutOfBounds(f"more than {self.bounds.entries} keys and members of sets")

    def _scalar(self, tag: str, body: Any) -> Any:
        if tag == "i":
            # Hexadecimal digits are read in linear time; four bits each.
            if len(_text(body)) > self.bounds.bits // 4 + 3:
                raise OutOfBounds(f"a whole number of more than {self.bounds.bits} bits")
            return int(body, 16)
        if tag == "D":
            return _decimal(_text(body), self.bounds)
        if tag == "F":
            above, below = (self.value(part, MAX_DEPTH) for part in _list(body))
            if {type(above), type(below)} != {int} or (above * below).bit_length() > 1 << 16:
                raise ValueError("a fraction is two whole numbers of at most 65536 bits together")
            return Fraction(above, below)
        if tag == "r":
            return range(*(self.value(part, MAX_DEPTH) for part in _list(body)))
        return _SCALARS[tag](body)


_CONTAINERS: dict[str, Callable[[list[Any]], Any]] = {
    "t": tuple, "d": dict, "s": set, "f": frozenset, "q": list, "v": list,
}  # fmt: skip
_TIMES: dict[str, Callable[[str], Any]] = {
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
}
_SCALARS: dict[str, Callable[[Any], Any]] = {
    "c": lambda body: complex(*map(float, _list(body))),
    "b": lambda body: _text(body).encode("latin-1"),
    "a": lambda body: bytearray(_text(body).encode("latin-1")),
    "T": lambda body: _TIMES[body[0]](_text(body[1])),
    "L": lambda body: timedelta(*map(int, _list(body))),
    "y": lambda body: _NAMED[body],
}


def _list(body: Any) -> list[Any]:
    if type(body) is not list:
        raise ValueError("not a list")
    return body


def _text(body: Any) -> str:
    if type(body) is not str:
        raise ValueError("not a string")
    return body


def _decimal(text: str, bounds: Bounds) -> Decimal:
    # Parsing decimal digits takes more than linear time, and an exponent of nine digits makes an integer that takes
    # minutes to print.
    if len(text) > min(bounds.bits // 4, 10_000) + 16:
        raise OutOfBounds("a decimal of too many digits")
    value = Decimal(text)
    if value.is_finite() and abs(value.adjusted()) > 100_000:
        raise ValueError("a decimal with an exponent above 100000")
    return value


def shown(value: Any, limit: int = 200) -> str:
    """The truncated repr of a value, for messages; never raises, even for huge numbers."""
    try:
        text = repr(value)
    except (ValueError, RecursionError, MemoryError):
        text = f"a {type(value).__name__} too large to be shown"
    return text if len(text) <= limit else text[: limit - 3] + "..."
