"""Frames as a program could send them: made at random, and mutated from those that it may send."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

_REPLIES = [
    {"v": True},
    {"v": [1, 2.5, None, "text", {"t": [1, {"d": [["a", {"s": [1, 2]}]]}]}]},
    {"v": {"i": "0x1" + "f" * 40}, "args": [[1], {"d": []}]},
    {"v": [{"f": [1]}, {"c": [1.0, 2.0]}, {"b": "ab"}, {"a": "ab"}, {"r": [1, 9, 2]}, {"v": [2, [{"t": [1, 2]}]]}]},
    {
        "v": [
            {"D": "1.5"},
            {"F": [1, 3]},
            {"T": ["date", "2024-01-31"]},
            {"L": [1, 2, 3]},
            {"q": [None, [1]]},
            {"y": "int"},
        ]
    },
    {"v": {"o": [3, 1, "Box", 0]}},
    {"v": ["Box", 4, "0x1ff", ["object", 2]]},
    {"v": [1, 2, 3], "end": True},
    {"v": {"n": 0}},
    {"v": {"&": [1, [1, {"&": [3, {"d": [["a", {"=": 1}]]}]}]]}, "sync": [[1, [2, {"=": 3}]], [3, {"d": []}]]},
    {"v": [{"=": 1}, {"&": [5, {"s": [1]}]}, {"&": [7, {"a": "x"}]}], "sync": [[5, {"s": []}], [9, [1]]]},
    {"x": {"type": "KeyError", "text": "'k'", "line": "KeyError: 'k'", "args": ["k"]}},
    {"x": {"type": "Odd", "text": "", "line": "Odd", "args": [], "on": 3, "kind": 1}},
    {"x": {"type": "SyntaxError", "text": "", "line": "SyntaxError", "syntax": True}},
    {"k": 0, "args": [1, {"o": [3, 1, "Box", 0]}], "kwargs": {"d": []}},
]
_VERDICTS = [
    {"loaded": True, "error": None},
    {"loaded": False, "error": {"gone": True, "detail": "timeout"}},
    {"loaded": False, "error": {"type": "E", "line": "E: x", "syntax": True}},
    {"outcome": "passed"},
    {"outcome": "wrong_answer", "detail": "returned 3, expected 4"},
    {"outcome": "gone", "detail": "timeout", "error_type": "E"},
]
_ODD = [
    b"[" * 60000, b"{\"v\":" * 5000, b"9" * 60000, b"1e999999", b"-0", b"NaN", b"Infinity", b"null", b"5", b"[]",
    b'{"x":5}', b'{"v":{"F":["1e20000000",1]}}', b'{"v":{"D":"1e999999999"}}', b'{"v":{"i":"zz"}}', b"\xff\xfe", b"",
    b'{"v":{"s":[[]]}}', b'{"v":{"d":[[1]]}}', b'{"v":{"v":[7,[]]}}', b'{"v":{"r":[1,2,0]}}', b'"\\ud800"',
    b'{"v":{"o":[]}}', b'{"v":{"o":[1e9,{},[],"x"]}}', b'{"outcome":[]}', b'{"loaded":1}', b'{"v":{"y":"exec"}}',
    b'{"v":[' + b"[]," * 20000 + b"[]]}",
    b'{"v":{"s":[' + b",".join(b"%d" % (n * (2**61 - 1)) for n in range(2500)) + b"]}}",
    b'{"v":{"i":"0x' + b"f" * 60000 + b'"}}', b'{"v":{"D":"' + b"9" * 60000 + b'"}}',
    b'{"v":{"F":[{"i":"0x' + b"f" * 29000 + b'"},{"i":"0x' + b"e" * 29000 + b'"}]}}',
    b'{"x":{"type":"' + b"A" * 60000 + b'","text":"","line":""}}', b'{"k":99,"args":[]}',
    b'{"k":-1,"args":[],"kwargs":7}',
]  # fmt: skip
_VALID = [json.dumps(message).encode() for message in [*_REPLIES, *_VERDICTS]]
FIXED = [*_VALID, *_ODD]
_VALUES = ["", "x", 0, -1, 2**63, 1.5, None, True, [], {}, "0x1", {"o": [0, 0, "", 1]}, [[]], {"t": 5}, {"s": [{}]}]


def bodies(count: int, seed: int = 0) -> Iterator[bytes]:
    """The given number of frame bodies, reproducible by seed: odd ones first, then mutations of valid ones."""
    yield from FIXED
    for number in range(count - len(FIXED)):
        yield mutated(seed + number)


def mutated(seed: int) -> bytes:
    """One mutation of a valid body."""
    rng = random.Random(seed)
    return rng.choice((_bytes_changed, _fields_changed, _spliced))(rng, rng.choice(_VALID), rng.choice(_VALID))


def _bytes_changed(rng: random.Random, body: bytes, _other: bytes) -> bytes:
    changed = bytearray(body)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(changed))
        changed[place : place + rng.randint(0, 2)] = rng.randbytes(rng.randint(0, 3))
        if not changed:
            break
    return bytes(changed)


def _fields_changed(rng: random.Random, body: bytes, other: bytes) -> bytes:
    return json.dumps(_changed(rng, json.loads(body), 0.15)).encode()


def _changed(rng: random.Random, form: object, share: float) -> object:
    if rng.random() < share:
        return rng.choice(_VALUES)
    if isinstance(form, list):
        return [_changed(rng, item, share) for item in form] + ([rng.choice(_VALUES)] if rng.random() < share else [])
    if isinstance(form, dict):
        return {key: _changed(rng, item, share) for key, item in form.items() if rng.random() > share / 3}
    return form


def _spliced(rng: random.Random, body: bytes, other: bytes) -> bytes:
    return body[: rng.randrange(len(body))] + other[rng.randrange(len(other)) :]
