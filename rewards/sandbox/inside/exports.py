"""Handlers in the program's process for the requests of a test: look up, call, read, set, iterate.

This code shares its process with the program, so nothing that it reports decides a verdict: it sends values, which the
judge (judge.py) or the worker (direct_calls.py) compares.
"""

from __future__ import annotations

import collections
import copy
import operator
import socket
from collections.abc import Callable
from typing import Any

from rewards.sandbox.inside.codec import BUILTIN, decode, encode, is_flat
from rewards.sandbox.inside.frames import receive_frame, send_frame
from rewards.sandbox.inside.shared import Shared

# The special methods that a test may use on an object of the program; one bit each marks those its class has.
_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift")
OPERATORS = tuple(f"__{kind}{name}__" for kind in ("", "r", "i") for name in _BINARY)
SPECIAL = (
    "__call__", "__iter__", "__next__", "__len__", "__getitem__", "__setitem__", "__delitem__", "__contains__",
    "__enter__", "__exit__", "__reversed__", "__index__", "__int__", "__float__", "__complex__", "__round__", "__abs__",
    "__neg__", "__pos__", "__invert__", "__bool__", "__hash__", "__format__", "__await__", "__divmod__",
    *OPERATORS,
)  # fmt: skip
HAS_EQUALITY, IS_EXCEPTION, IS_DATA, IS_LIBRARY = 1, 2, 4, 8
"""Flags of a class: it defines `__eq__`; its instances are exceptions; they hold a builtin value (for example a
subclass of list); it belongs to the interpreter or the standard library, not to the program."""
_HEAP_TYPE = 1 << 9  # set for classes that Python code creates
_MAX_TEXT = 2000


class Exports:
    """Objects of the program that the judge holds by number, and functions of the judge that the program holds."""

    def __init__(self, namespace: dict[str, Any], calls: socket.socket) -> None:
        self.namespace = namespace
        self.calls = calls
        self.objects: list[Any] = []
        self.shared = Shared(1)
        self._numbers: dict[int, int] = {}
        self._late: dict[int, BaseException] = {}

    def number(self, value: Any) -> int:
        """The number of an object, always the same: a test may check the identity of two objects."""
        known = self._numbers.get(id(value))
        if known is None:
            # The list keeps the object alive, so that its id is not reused.
            known = self._numbers[id(value)] = len(self.objects)
            self.objects.append(value)
        return known

    def remember(self, value: Any) -> Any:
        """The JSON of a handle: the object's number, the number and name of its class, whether it is itself a class."""
        kind = type(value)
        return {"o": [self.number(value), self.number(kind), kind.__name__[:200], int(isinstance(value, type))]}

    def recall(self, body: Any) -> Any:
        """Return the object of a handle, or a stand-in for a function of the test."""
        if body[0] == "k":
            return lambda *arguments, **keywords: self._call_back(body[1], arguments, keywords)
        return self.objects[body[0]]

    def _call_back(self, function: int, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        forms = [self.form(argument) for argument in arguments]
        self._send({"k": function, "args": forms, "kwargs": encode(keywords, self.remember)})
        # The test's function may itself call the program before it returns.
        while "op" in (message := receive_frame(self.calls)):
            self.serve(message)
        if "x" in message:
            self._received(message)
            raise decode({"y": message["x"]["type"]})(message["x"]["text"])
        return self._received(message, "v")

    def form(self, value: Any) -> Any:
        """The form of a value that keeps objects as handles and containers shared."""
        return encode(value, self.remember, by_value=False, shared=self.shared)

    def _send(self, message: dict[str, Any]) -> None:
        updates = self.shared.updates(
            lambda value: encode(value, self.remember, by_value=False, shared=self.shared, contents=True)
        )
        send_frame(self.calls, {**message, "sync": updates} if updates else message)

    def _received(self, message: dict[str, Any], key: str = "args") -> Any:
        """Decode the values of a message, then apply its updates of shared containers."""
        values = decode(message.get(key, []), self.recall, shared=self.shared)
        self.shared.apply(message.get("sync", []), lambda form: decode(form, self.recall, shared=self.shared))
        return values

    def serve(self, request: dict[str, Any]) -> None:
        """Answer a request; any failure becomes an error reply."""
        try:
            reply = self.shared.attempt(lambda: self.answer(request))
        except BaseException as error:
            reply = {"x": self.describe(error)}
        self._send(reply)

    def describe(self, error: BaseException) -> dict[str, Any]:
        """The plain-data form of an exception, with object and class numbers if its class is not a builtin."""
        form = describe(error)
        try:
            form["args"] = [encode(argument, self.remember) for argument in error.args[:64]]
            if type(error).__module__ != "builtins":
                form |= {"on": self.number(error), "kind": self.number(type(error))}
        except BaseException:
            form.pop("args", None)
        return form

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Execute one request; raises what the program raises."""
        if request["op"] == "run":
            value = self._run(request)
            # A part of any other value may be what its class says it is: a judge asks for it.
            by_value = not request.get("part") or is_flat(value)
            return {"v": encode(value, self.remember) if by_value else self.remember(value)}
        if request["op"] == "run_all":
            # A loop, since a comprehension would take a frame more from a program's recursion.
            values = []
            for call in request["calls"]:
                values.append(self._run(call))
            return {"v": encode(values, self.remember)}
        arguments = self._received(request)
        if request["op"] == "name":
            return self._value(self.namespace[request["name"]])
        handler: Callable[..., dict[str, Any]] = getattr(self, "_" + request["op"])
        return handler(self.objects[request["on"]], request, *arguments)

    def _value(self, value: Any) -> dict[str, Any]:
        return {"v": self.form(value)}

    def _run(self, request: dict[str, Any]) -> Any:
        """Call a function of the program with plain data: all that a simple test needs.

        Without such a function, and if the request allows it, a method of a new object of class Solution is called.
        """
        name = request["name"]
        if name in self.namespace:
            target = self.namespace[name]
        elif request.get("method") and hasattr(self.namespace.get("Solution"), name):
            target = getattr(self.namespace["Solution"](), name)
        else:
            raise NameError(f"name {name!r} is not defined")
        return target(*decode(request["args"]), **decode(request["kwargs"]))

    def _call(self, target: Any, request: dict[str, Any], *arguments: Any) -> dict[str, Any]:
        names = request["names"]
        first = len(arguments) - len(names)
        return self._value(target(*arguments[:first], **dict(zip(names, arguments[first:], strict=True))))

    def _special(self, target: Any, request: dict[str, Any], *arguments: Any) -> dict[str, Any]:
        value = getattr(type(target), request["name"])(target, *arguments)
        return {"v": {"n": 0}} if value is NotImplemented else self._value(value)

    def _attribute(self, target: Any, request: dict[str, Any]) -> dict[str, Any]:
        return self._value(getattr(target, request["name"]))

    def _set(self, target: Any, request: dict[str, Any], value: Any) -> dict[str, Any]:
        setattr(target, request["name"], value)
        return {"v": None}

    def _delete(self, target: Any, request: dict[str, Any]) -> dict[str, Any]:
        delattr(target, request["name"])
        return {"v": None}

    def _text(self, target: Any, request: dict[str, Any]) -> dict[str, Any]:
        text: str = repr(target) if request["how"] == "repr" else str(target)
        return {"v": str.__str__(text)}

    def _data(self, target: Any, request: dict[str, Any]) -> dict[str, Any]:
        """The builtin value of an object whose class derives from a builtin type."""
        return {"v": encode(target, self.remember)}

    def _copy(self, target: Any, request: dict[str, Any]) -> dict[str, Any]:
        return self._value(copy.deepcopy(target) if request["deep"] else copy.copy(target))

    def _complete(self, target: Any, request: dict[str, Any]) -> dict[str, Any]:
        """Run a coroutine to its end here, where its event loop is."""
        import asyncio  # hundreds of modules, for the few programs that need them

        return self._value(asyncio.run(target))

    def _class(self, target: Any, request: dict[str, Any]) -> dict[str, Any]:
        """Describe a class for the judge: name, flags, special methods as bits, bases as numbers or builtin names."""
        bits = sum(1 << bit for bit, name in enumerate(SPECIAL) if _has(target, name))
        compares = target.__eq__ is not object.__eq__
        flags = HAS_EQUALITY * compares + IS_EXCEPTION * issubclass(target, BaseException)
        # A builtin class is listed as the base of its own mirror.
        above = (target,) if target.__module__ == "builtins" else target.__bases__
        bases = [base.__name__ if base.__module__ == "builtins" else self.number(base) for base in above]
        flags += IS_DATA * issubclass(target, BUILTIN) + IS_LIBRARY * _is_library(target)
        return {"v": [target.__name__, flags, hex(bits), bases]}

    def _instance(self, target: Any, request: dict[str, Any], value: Any) -> dict[str, Any]:
        return {"v": isinstance(value, target) is True}

    def _subclass(self, target: Any, request: dict[str, Any], kind: Any) -> dict[str, Any]:
        return {"v": issubclass(kind, target) is True}

    def _next(self, target: Any, request: dict[str, Any]) -> dict[str, Any]:
        """Up to `count` items of an iterator; an exception after the first item is raised by the next request."""
        if error := self._late.pop(request["on"], None):
            raise error
        items: list[Any] = []
        for _ in range(operator.index(request["count"])):
            try:
                items.append(self.form(next(target)))
            except StopIteration:
                return {"v": items, "end": True}
            except BaseException as error:
                self._late[request["on"]] = error
                break
        return {"v": items} if items or not self._late.get(request["on"]) else self._next(target, request)


def _is_library(kind: type) -> bool:
    return not kind.__flags__ & _HEAP_TYPE or getattr(collections, kind.__name__, None) is kind


def _has(kind: type, name: str) -> bool:
    """Whether instances of a class have a special method; methods of its metaclass do not count."""
    return next((vars(base)[name] is not None for base in kind.__mro__ if name in vars(base)), False)


def describe(error: BaseException) -> dict[str, Any]:
    """The plain-data form of an exception: type name, message, last traceback line, each bounded in length."""
    name = str(type(error).__name__)[:200]
    try:
        text = str(error)[:_MAX_TEXT]
    except BaseException:
        text = ""
    return {"type": name, "text": text, "line": f"{name}: {text}"[:_MAX_TEXT] if text else name}
