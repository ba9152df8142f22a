"""The judge's stand-ins for objects of the program: a test uses them as it would use the objects themselves.

Every operation on a stand-in is a request to the program's process; the reply is data or another stand-in. One question
is never sent: whether an object equals, precedes or contains something. The program's own class would decide, and a
class can be written to accept everything. Objects that hold a builtin value (a subclass of list, a namedtuple, a
Counter) are compared by that value instead.
"""

from __future__ import annotations

import collections
import opcode
import operator
import types
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol

from rewards.sandbox.inside.exports import HAS_EQUALITY, IS_DATA, IS_EXCEPTION, IS_LIBRARY, OPERATORS, SPECIAL
from rewards.sandbox.inside.shared import MUTABLE

MAX_ITEMS = 1_000_000
_CHUNK = 256
_GENERAL = frozenset({"__bool__", "__hash__", "__iter__", "__next__", "__exit__", "__contains__", "__format__"})
# The types that isinstance() reports for objects whose type a test cannot name otherwise.
_TYPES: dict[str, type] = {
    "generator": types.GeneratorType, "function": types.FunctionType, "method": types.MethodType, "type": type,
    "module": types.ModuleType, "map": map, "filter": filter, "zip": zip, "enumerate": enumerate, "reversed": reversed,
    "property": property, "memoryview": memoryview, "coroutine": types.CoroutineType,
    "Counter": collections.Counter, "OrderedDict": collections.OrderedDict, "defaultdict": collections.defaultdict,
}  # fmt: skip
# Subclasses of dict whose instances compare and count differently.
_DICTS = {"Counter": collections.Counter, "OrderedDict": collections.OrderedDict}
_CONVERSIONS = (
    "__len__", "__index__", "__int__", "__float__", "__complex__", "__round__", "__abs__", "__neg__", "__pos__",
    "__invert__",
)  # fmt: skip
# Dunder attributes that a test may read; those that the interpreter or a library probes for are left out.
_READ = frozenset({
    "__name__", "__qualname__", "__module__", "__doc__", "__dict__", "__annotations__", "__defaults__", "__wrapped__",
    "__cause__", "__context__", "__notes__", "__traceback__", "__self__", "__func__", "__members__", "__slots__",
    "__iter__", "__next__", "__len__", "__call__", "__eq__", "__hash__", "__add__", "__init__",
})  # fmt: skip
_COMPARING = frozenset({
    "startswith", "endswith", "issubset", "issuperset", "isdisjoint", "symmetric_difference", "difference",
})  # fmt: skip
# Methods of builtin values that do not change the value.
_QUESTIONS = frozenset(
    name for kind in (str, bytes, tuple, list, dict, set, frozenset, int, float, complex)
    for name in vars(kind) if not name.startswith("_")
) - {
    name for kind, reader in ((list, tuple), (set, frozenset), (bytearray, bytes))
    for name in vars(kind) if name not in vars(reader)
} - {"pop", "popitem", "update", "setdefault", "clear", "copy", "get", "fromkeys"}  # fmt: skip
_RAISE = opcode.opmap["RAISE_VARARGS"]
TEST_FILES = ("test", "setup")
"""File names that the code of tests is compiled with."""


class Unverifiable(BaseException):
    """The test asked an object of the program's own class for a decision; its answer would prove nothing."""


class Remote(Protocol):
    """What a stand-in needs from the program's process."""

    def ask(self, op: str, on: int = 0, *arguments: Any, **fields: Any) -> Any:
        """Send a request about an object and return its value; raises what the program raised."""

    def items(self, number: int, count: int) -> list[Any]:
        """The next items of an iterator, at most `count`; empty at its end."""

    def exception_class(self, number: int) -> type[BaseException]:
        """The judge's mirror of an exception class of the program."""

    def doubt(self, reason: str) -> Unverifiable:
        """The error to raise for a decision that proves nothing; recorded, so that no test can swallow it."""


@dataclass(frozen=True)
class ClassInfo:
    """The judge's description of a class of the program."""

    number: int
    name: str
    flags: int
    special: frozenset[str]
    bases: tuple[Any, ...]

    @property
    def holds_data(self) -> bool:
        """Whether instances hold a builtin value."""
        return bool(self.flags & IS_DATA)

    @property
    def is_exception(self) -> bool:
        """Whether it is an exception class."""
        return bool(self.flags & IS_EXCEPTION)

    @property
    def compares(self) -> bool:
        """Whether it defines `__eq__`."""
        return bool(self.flags & HAS_EQUALITY)


def read_class(number: int, form: Any) -> ClassInfo:
    """Parse the program's description of a class; raises ValueError or TypeError if it is malformed."""
    name, flags, bits, bases = form
    mask = int(bits, 16)
    special = frozenset(method for bit, method in enumerate(SPECIAL) if mask >> bit & 1)
    if type(name) is not str or type(flags) is not int or len(bases) > 64:
        raise ValueError("not the description of a class")
    return ClassInfo(number, name[:200], flags, special, tuple(bases))


class Stub:
    """An object in the program's process; `stub_class` adds the special methods of its class."""

    __slots__ = ("_data", "_info", "_mixed", "_number", "_remote", "_taken", "_waiting")

    def __init__(self, remote: Remote, number: int, info: ClassInfo) -> None:
        attributes = {
            "_remote": remote,
            "_number": number,
            "_info": info,
            "_mixed": False,
            "_taken": 0,
            "_waiting": [],
            "_data": None,
        }
        for name, value in attributes.items():
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in _READ:
            # A library that finds __array_interface__ or the like would trust it.
            raise AttributeError(f"{self._info.name!r} object has no attribute {name!r}")
        if self._info.holds_data and name in _QUESTIONS:
            return getattr(data_of(self), name)
        if name in _COMPARING:
            raise self._remote.doubt(f"the test has an object of the program's class {self._info.name} compare itself")
        return self._remote.ask("attribute", self._number, name=name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._remote.ask("set", self._number, value, name=name)

    def __delattr__(self, name: str) -> None:
        self._remote.ask("delete", self._number, name=name)

    def __str__(self) -> str:
        return str(self._remote.ask("text", self._number, how="str"))

    def __repr__(self) -> str:
        return str(self._remote.ask("text", self._number, how="repr"))

    def __dir__(self) -> list[str]:
        return [str(name) for name in vars(type(self))]

    def __instancecheck__(self, instance: Any) -> bool:
        return self._remote.ask("instance", self._number, instance) is True

    def __subclasscheck__(self, kind: Any) -> bool:
        return self._remote.ask("subclass", self._number, kind) is True

    def __bool__(self) -> bool:
        if self._info.holds_data:
            return bool(data_of(self))
        _require_unmixed(self)
        # Gives away no more than a plain value: a program can return a true value for any reason.
        if "__bool__" in self._info.special:
            return _special(self, "__bool__") is True
        return "__len__" not in self._info.special or operator.index(_special(self, "__len__")) > 0

    def _compared(self, other: Any, compare: Callable[[Any, Any], Any]) -> Any:
        left, right = data_of(self), data_of(other) if isinstance(other, Stub) else other
        return compare(left, right)

    def __eq__(self, other: object) -> Any:
        return False if other is None else self._compared(other, operator.eq)

    def __ne__(self, other: object) -> Any:
        return True if other is None else self._compared(other, operator.ne)

    def __lt__(self, other: Any) -> Any:
        return self._compared(other, operator.lt)

    def __le__(self, other: Any) -> Any:
        return self._compared(other, operator.le)

    def __gt__(self, other: Any) -> Any:
        return self._compared(other, operator.gt)

    def __ge__(self, other: Any) -> Any:
        return self._compared(other, operator.ge)

    def __hash__(self) -> int:
        if self._info.holds_data:
            return hash(data_of(self))
        if self._info.compares:
            raise self._remote.doubt(
                f"the test puts objects of the program's class {self._info.name} into a set or dict"
            )
        return hash(("stub", self._number))

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        if self._info.is_exception:
            return self._remote.exception_class(self._info.number)
        known = _TYPES.get(self._info.name) if self._info.flags & IS_LIBRARY else None
        return type(data_of(self)) if known is None and self._info.holds_data else known or type(self)

    def __copy__(self) -> Any:
        return self._remote.ask("copy", self._number, deep=False)

    def __deepcopy__(self, _: Any) -> Any:
        return self._remote.ask("copy", self._number, deep=True)

    def __reduce_ex__(self, _: Any) -> Any:
        raise TypeError(f"an object of the program's class {self._info.name} can't be pickled by a test")

    def __mro_entries__(self, _: Any) -> Any:
        raise self._remote.doubt(f"the test derives a class from the program's class {self._info.name}")


def data_of(stub: Stub) -> Any:
    """The builtin value that an object holds; raises `Unverifiable` if its class holds none."""
    if not stub._info.holds_data:
        raise stub._remote.doubt(f"the test compares an object of the program's class {stub._info.name}")
    data = stub._data
    if data is None:
        data = stub._remote.ask("data", stub._number)
        if not isinstance(data, MUTABLE):  # an immutable value is fetched only once
            object.__setattr__(stub, "_data", data)
    known = _DICTS.get(stub._info.name) if stub._info.flags & IS_LIBRARY and isinstance(data, dict) else None
    return known(data) if known else data


def _require_unmixed(stub: Stub) -> None:
    if stub._mixed:
        raise stub._remote.doubt(f"the test computes with its own value and the program's class {stub._info.name}")


def _special(stub: Stub, name: str, *arguments: Any) -> Any:
    return stub._remote.ask("special", stub._number, *arguments, name=name)


def _forwarded(name: str) -> Callable[..., Any]:
    def method(self: Stub, *arguments: Any) -> Any:
        return _special(self, name, *arguments)

    return method


def _binary(name: str) -> Callable[..., Any]:
    def method(self: Stub, other: Any, *more: Any) -> Any:
        """Combine with a value of the test: through the builtin value, or only if the result is an object. Otherwise
        the class would learn the expected value, as in `abs(f(2) - 0.5) < 1e-6`, and answer accordingly."""
        if issubclass(type(other), Stub):
            return _special(self, name, other, *more)
        if self._info.holds_data:
            operation = getattr(data_of(self), name, None)
            return NotImplemented if operation is None else operation(other, *more)
        value = _special(self, name, other, *more)
        if not issubclass(type(value), Stub):
            if value is NotImplemented:
                return value
            raise self._remote.doubt(f"the test computes with its own value and the program's {self._info.name}")
        object.__setattr__(value, "_mixed", True)
        return value

    return method


def _unary(name: str) -> Callable[..., Any]:
    def method(self: Stub, *arguments: Any) -> Any:
        if self._info.holds_data and hasattr(data := data_of(self), name):
            return getattr(data, name)(*arguments)
        _require_unmixed(self)
        return _special(self, name, *arguments)

    return method


def _call(self: Stub, *arguments: Any, **keywords: Any) -> Any:
    return self._remote.ask("call", self._number, *arguments, *keywords.values(), names=list(keywords))


def _iterate(self: Stub) -> Any:
    return self if "__next__" in self._info.special else _special(self, "__iter__")


def _advance(self: Stub) -> Any:
    # Items are fetched in growing chunks; loops and next() share this buffer.
    if not self._waiting:
        if self._taken > MAX_ITEMS:
            raise self._remote.doubt(f"an iterator gave more than {MAX_ITEMS} items")
        items = self._remote.items(self._number, min(_CHUNK, self._taken + 1))
        object.__setattr__(self, "_taken", self._taken + len(items))
        self._waiting.extend(reversed(items))
    if not self._waiting:
        raise StopIteration
    return self._waiting.pop()


def _contains(self: Stub, item: Any) -> bool:
    if self._info.holds_data:
        return item in data_of(self)
    raise self._remote.doubt(f"the test asks an object of the program's class {self._info.name} what it contains")


def _leave(
    self: Stub, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
) -> bool:
    described = (None, None, None) if kind is None else (_known(kind), str(error), None)
    swallowed = _special(self, "__exit__", *described) is True
    # A context manager of the program may swallow what the test raises on purpose. By swallowing an assertion, or an
    # error that the program itself caused, it would decide its own verdict.
    return swallowed and kind is not None and not issubclass(kind, AssertionError) and _raised_by_test(error)


def _known(kind: type[BaseException]) -> type[BaseException]:
    return next(base for base in kind.__mro__ if base.__module__ == "builtins")


def _raised_by_test(error: BaseException | None) -> bool:
    if error is None or hasattr(error, "program_error"):
        return False
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or trace.tb_frame.f_code.co_filename not in TEST_FILES:
        return False
    return trace.tb_frame.f_code.co_code[trace.tb_lasti] == _RAISE


_METHODS: dict[str, Callable[..., Any]] = {
    **{name: _forwarded(name) for name in SPECIAL if name not in _GENERAL},
    **{name: _binary(name) for name in (*OPERATORS, "__divmod__")},
    **{name: _unary(name) for name in _CONVERSIONS},
    "__call__": _call,
    "__iter__": _iterate,
    "__next__": _advance,
    "__contains__": _contains,
    "__exit__": _leave,
    "__format__": lambda self, spec: _special(self, "__format__", spec) if spec else str(self),
}  # fmt: skip
_classes: dict[tuple[str, frozenset[str], int], type[Stub]] = {}


def stub_class(info: ClassInfo) -> type[Stub]:
    """A class of stand-ins with the name and exactly the special methods of a class of the program."""
    key = (info.name, info.special, info.flags)
    if key not in _classes:
        members: dict[str, Any] = {name: _METHODS[name] for name in info.special & _METHODS.keys()}
        if "__hash__" not in info.special:
            members["__hash__"] = None
        if info.name == "coroutine" and info.flags & IS_LIBRARY:
            members |= {"send": _complete, "close": lambda self: None, "__await__": lambda self: _Awaited(self)}
        members["__doc__"] = property(lambda self: self._remote.ask("attribute", self._number, name="__doc__"))
        _classes[key] = type(info.name, (Stub,), {"__slots__": (), **members})
    return _classes[key]


def _complete(self: Stub, _: Any) -> Any:
    # The coroutine needs the program's event loop: it runs to its end there, at the first step here.
    raise StopIteration(self._remote.ask("complete", self._number))


class _Awaited:
    """The iterator that `await` steps through for a coroutine of the program: one step."""

    def __init__(self, stub: Stub) -> None:
        self.stub = stub

    def __iter__(self) -> _Awaited:
        return self

    def __next__(self) -> Any:
        return _complete(self.stub, None)


def mirrored_exception(info: ClassInfo, base_of: Callable[[Any], type[BaseException] | None]) -> type[BaseException]:
    """A mirror of an exception class of the program, so that a test can catch and raise it.

    `base_of`: the mirror of an entry of `info.bases`, None if that is not an exception class.
    """
    bases = tuple(base for entry in info.bases if (base := base_of(entry)) is not None)
    return type(info.name, bases or (Exception,), {"_remote_class": info.number})
