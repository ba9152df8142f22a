"""Any bytes that a program sends on any channel give a value, a verdict or the schema's own refusal."""

from __future__ import annotations

import itertools
import random
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewards.sandbox.client import fusion
from rewards.sandbox.inside import judge, program
from rewards.sandbox.inside.codec import QUICK, UNREADABLE, decode, shown
from rewards.sandbox.inside.frames import BadFrame, FrameBuffer, FrameTooLarge, frame, parse
from rewards.sandbox.inside.outcomes import OUTCOMES, classify_end
from rewards.sandbox.inside.proxies import Unverifiable
from rewards.sandbox.inside.remote import ProgramGone, RemoteProgram
from rewards.sandbox.inside.replies import CalledBack, read_loaded, read_reply, read_verdict
from rewards.sandbox.worker import direct_calls
from rewards.sandbox.worker.direct_calls import Call, CalledTest
from rewards.sandbox.worker.execution import Child
from rewards.sandbox.worker.streams import MAX_ANSWER
from tests.rewards.sandbox.hostile_frames import FIXED, mutated

pytestmark = pytest.mark.slow

FRAMES = 20_000
SHORT = [bytes(body) for length in range(3) for body in itertools.product(range(256), repeat=length)]
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("vxkontdsfcbarDFTLqiy"), inner),
    max_leaves=6,
)


def some_bytes() -> Iterator[bytes]:
    """Bytes that are no frame's in particular."""
    rng = random.Random(0)
    return (rng.randbytes(rng.randint(3, 200)) for _ in range(FRAMES // 4))


ONE = CalledTest((Call("f", [], {"d": []}),), "==", 3)
TWO = CalledTest(ONE.calls * 2, "==", (3, 3), tuple)
PART = CalledTest(ONE.calls, "==", 3, subscripts=(0, "v"))


def read_by_worker(body: bytes) -> None:
    for test in (ONE, TWO, PART):
        try:
            reply = read_reply(parse(body))
            if not isinstance(reply, CalledBack):
                verdict = direct_calls._verdict(test, reply)
                assert verdict["outcome"] in OUTCOMES
                assert len(str(verdict)) < 6000
        except (BadFrame, direct_calls.NeedsJudge):
            pass


def read_by_judge(body: bytes) -> None:
    """Everything that a judge does with an answer, up to the end of a case."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for _ in range(3):  # to what the answer makes the judge ask, it is the answer as well
            theirs.sendall(len(body).to_bytes(4, "big") + body)
        theirs.shutdown(socket.SHUT_WR)
        remote = RemoteProgram(ours)
        try:
            shown(remote.ask("name", name="f"))
        except (ProgramGone, Unverifiable):
            pass
        except BaseException as error:
            if getattr(error, "program_error", None) is None:
                raise


def read_of_judge(body: bytes) -> None:
    for read in (read_loaded, read_verdict):
        try:
            assert len(str(read(parse(body)))) < 8000
        except BadFrame:
            continue


def read_by_fallback(body: bytes) -> None:
    text = body.decode("utf-8", "replace").replace("\n", " ")
    try:
        loaded, verdicts = fusion._messages(f"verdict n {text}\nverdict n {text}\n", "n")
    except BadFrame:
        return
    for verdict in verdicts:
        assert fusion._case_result(verdict).outcome in OUTCOMES
    if loaded is not None:
        assert fusion._load_failure(loaded).outcome in OUTCOMES


READERS = [read_by_worker, read_by_judge, read_of_judge, read_by_fallback]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("body", FIXED)
def test_valid_and_odd_frames_raise_nothing_but_the_schemas_own(read: Any, body: bytes) -> None:
    read(body[:MAX_ANSWER])


@pytest.mark.parametrize("read", READERS)
def test_random_and_mutated_frames_raise_nothing_but_the_schemas_own(read: Any) -> None:
    for body in itertools.chain(SHORT, map(mutated, range(FRAMES)), some_bytes()):
        try:
            read(body)
        except BaseException as error:
            error.add_note(f"body: {body!r}")
            raise


@pytest.mark.parametrize("read", READERS)
@given(anything)
@settings(max_examples=100, deadline=None)
def test_any_json_raises_nothing_but_the_schemas_own(read: Any, message: object) -> None:
    read(frame(message)[4:])


@pytest.mark.parametrize("read", READERS)
@given(st.binary(max_size=400))
@settings(max_examples=500, deadline=None)
def test_any_bytes_raise_nothing_but_the_schemas_own(read: Any, body: bytes) -> None:
    read(body)


@pytest.mark.parametrize("limit", range(1, 10))
def test_any_stream_is_frames_or_too_large(limit: int) -> None:
    rng = random.Random(limit)
    for _ in range(FRAMES // 9):
        bodies = [rng.randbytes(rng.randint(0, limit)) for _ in range(rng.randint(0, 4))]
        too_long = struct.pack("!I", rng.choice((limit + 1, rng.randint(limit + 1, 2**32 - 1))))
        odd = rng.choice((b"", too_long, rng.randbytes(rng.randint(0, 12))))
        stream = b"".join(struct.pack("!I", len(body)) + body for body in bodies) + odd
        expected, too_large = whole(stream, limit)
        received, refused = fed(stream, limit, rng)
        assert refused is too_large, stream
        # What is complete in the chunk that brings the refusal goes with it.
        assert received == (expected[: len(received)] if refused else expected), stream


def whole(stream: bytes, limit: int) -> tuple[list[bytes], bool]:
    """The bodies of a stream up to its end or to one above the limit, and whether there is such a one."""
    bodies: list[bytes] = []
    while len(stream) >= 4:
        size = int.from_bytes(stream[:4], "big")
        if size > limit:
            return bodies, True
        if len(stream) < 4 + size:
            break
        bodies, stream = [*bodies, stream[4 : 4 + size]], stream[4 + size :]
    return bodies, False


def fed(stream: bytes, limit: int, rng: random.Random) -> tuple[list[bytes], bool]:
    """The bodies that a buffer gives for a stream that comes in pieces, and whether it refuses the stream."""
    buffer, received = FrameBuffer(limit), list[bytes]()
    while stream:
        size = rng.randint(0, len(stream))
        try:
            received += buffer.feed(stream[:size])
        except FrameTooLarge:
            return received, True
        stream = stream[size:]
    return received, False


def test_a_control_channel_accepts_one_byte_per_run() -> None:
    for data in itertools.chain(SHORT, some_bytes(), (program.DONE * runs for runs in range(200))):
        child = object.__new__(Child)
        child.runs_done, child._frames = 0, None
        assert child._heard(data) is (bool(data) and set(data) == set(program.DONE)), data
        assert child.runs_done == len(data)


LINES = [
    "Traceback (most recent call last):", '  File "main.py", line 1, in <module>', "\tat Main.main", "", " ", "\r",
    "MemoryError", "SyntaxError: no", "a.b.IndentationError", "TabError:", "ValueError: \ud800", "_Error", "E" * 3000,
    "terminate called after throwing an instance of 'std::bad_alloc'", "x: Cannot allocate memory", "low: x", ":", "\0",
]  # fmt: skip


def test_any_standard_error_is_classified() -> None:
    rng = random.Random(0)
    for _ in range(FRAMES):
        lines = [rng.choice((*LINES, some_text(rng))) for _ in range(rng.randint(0, 8))]
        stderr, code = rng.choice("\n\n\n\r").join(lines), rng.randint(-64, 255)
        outcome, error_type, line = classify_end(code, stderr[-4096:])
        assert outcome in OUTCOMES, stderr
        assert len(error_type or "") <= 4096
        assert len(line or "") <= 2000, stderr


def some_text(rng: random.Random) -> str:
    """Characters from anywhere, surrogates as well."""
    return "".join(chr(rng.randrange(rng.choice((128, 0x3000, 0x110000)))) for _ in range(rng.randint(0, 40)))


@pytest.mark.parametrize("body", [body for body in FIXED if b'"v"' in body])
def test_what_the_worker_reads_has_bounds(body: bytes) -> None:
    # The judge, which is ended with the program, reads more; what it refuses is a refusal, too.
    try:
        reply = read_reply(parse(body))
        decode(getattr(reply, "form", None), lambda handle: handle, QUICK)
    except (*UNREADABLE, BadFrame):
        pass


def test_a_verdict_is_bounded_for_any_program_name() -> None:
    remote = RemoteProgram(socket.socket())
    reply = read_reply({"x": {"type": "A" * 7_000_000, "text": "b" * 7_000_000, "line": "c" * 7_000_000}})
    error = remote._exception(reply)  # type: ignore[arg-type]
    made = judge.CaseJudge.__new__(judge.CaseJudge)._failure(error)
    assert len(str(made)) < 3000
