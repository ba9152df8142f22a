"""Requests beyond the server's bounds: refused with their status, and without harm to any worker."""

# Either branch of a try is an outcome; tables are as wide as their listener.
# ruff: noqa: E501, PT017

from __future__ import annotations

import base64
import json
import re
import socket
import sys
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from rewards.sandbox import Program, Sandbox, StdioCase
from rewards.sandbox.client import transport
from rewards.sandbox.server import listener, wire
from rewards.sandbox.server.listener import BadRequest, parse
from rewards.sandbox.worker import zygote
from tests.rewards.sandbox.conftest import HTTP, ServerProcess, start_server

pytestmark = pytest.mark.slow

GOOD = {"code": "print(1)", "language": "python"}
MIB = 1 << 20


@pytest.fixture(scope="module")
def bounded() -> Iterator[ServerProcess]:
    """A fresh server: its counters and workers are in their initial state."""
    server = start_server()
    yield server
    server.stop()


def with_text(text: str) -> bytes:
    """The valid request with extra JSON that json.dumps would not write."""
    return (json.dumps(GOOD)[:-1] + text + "}").encode()


def endless() -> Iterator[bytes]:
    while True:
        yield b" " * 65536


CALL = {"entry_point": "f", "args": [], "kwargs": {"d": []}, "expected": 1}
BIG_FILES = "import os\nfor n in range(32): os.truncate(os.open(f'f{n}', os.O_CREAT | os.O_RDWR), 16 << 20)"
FETCHED = [f"f{number}" for number in range(32)]
REQUESTS: dict[str, tuple[int, Any]] = {
    "no number as a time": (422, with_text(', "run_timeout": NaN')),
    "no end of time": (422, with_text(', "run_timeout": Infinity')),
    "a time too large for a float": (422, with_text(', "run_timeout": 1e999')),
    "a compile time before all times": (422, with_text(', "compile_timeout": -Infinity')),
    "more memory than there is": (422, {**GOOD, "memory_limit_MB": 1 << 40}),
    "a memory limit of 400 digits": (422, {**GOOD, "memory_limit_MB": 10**400}),
    "as much memory as may be asked for": (200, {**GOOD, "memory_limit_MB": wire.MAX_MEMORY_MB}),
    "memory below zero": (200, {**GOOD, "memory_limit_MB": -(1 << 40)}),
    "too many files to fetch": (422, {**GOOD, "fetch_files": ["a"] * (wire.MAX_FILES + 1)}),
    "too long a path to fetch": (422, {**GOOD, "fetch_files": ["a" * (wire.MAX_PATH + 1)]}),
    "paths that are long together": (422, {**GOOD, "fetch_files": ["\U0001f600" * 1000] * 32}),
    "paths that just fit": (200, {**GOOD, "fetch_files": ["a/" * 500] * 32}),
    "larger files than an answer takes": (200, {**GOOD, "code": BIG_FILES, "fetch_files": FETCHED}),
    "too many files": (422, {**GOOD, "files": {f"f{n}": "" for n in range(33)}}),
    "too long a path": (422, {**GOOD, "files": {"a" * 1025: ""}}),
    "too long a name": (200, {**GOOD, "files": {"a" * 1000: ""}}),
    "files that are no base64": (200, {**GOOD, "files": {"a": "abc"}}),
    "files that are not ASCII": (200, {**GOOD, "files": {"a": "\u00e9"}}),
    "a file that is a folder as well": (200, {**GOOD, "files": {"a": "", "a/b": ""}}),
    "the folder itself as a file": (200, {**GOOD, "files": {".": ""}}),
    "code that no worker takes": (413, {**GOOD, "code": "#" * (33 * MIB)}),
    "code that grows as JSON": (413, with_text(', "stdin": "' + "\u00e9" * (6 * MIB) + '"')),
    "input that no worker takes": (413, {**GOOD, "stdin": "1" * (33 * MIB)}),
    "files that no worker takes": (413, {**GOOD, "files": {f"f{n}": "A" * (3 * MIB) for n in range(11)}}),
    "a body that the head says is too large": (413, {**GOOD, "code": "#" * (65 * MIB)}),
    "a body in chunks without end": (413, endless),
    "a lone surrogate": (422, b'{"code": "print(1)\\ud800", "language": "python"}'),
    "bytes that are no UTF-8": (422, b'{"code": "print(1)\xff", "language": "python"}'),
    "bytes that are no UTF-8 in a name": (422, b'{"\xff": 1, "language": "python"}'),
    "the same key twice, of which the last counts": (200, b'{"code": "1/0", "code": "print(1)", "language": "python"}'),
    "nesting without end": (422, with_text(', "x": ' + "[" * 100_000)),
    "deep nesting in an unknown field": (422, with_text(', "x": ' + "[" * 5000 + "]" * 5000)),
    "an empty body": (422, b""),
    "no object": (422, b"null"),
    "a list": (422, [GOOD]),
    "a null byte in the code": (200, {**GOOD, "code": "a\0b"}),
}  # fmt: skip
BATCHES: dict[str, tuple[int, Any]] = {
    "more cases than one request may have": (
        422, {"programs": [{"code": "x"}] * 4096, "cases": [{"source": "assert f()"}] * 1000},
    ),
    "too many programs": (422, {"programs": [{"code": "x"}] * 4097}),
    "time-outs without end": (200, {"programs": [{"code": "x = 1"}], "max_timeouts": 10**30}),
    "a null byte in the setup": (200, {"programs": [{"code": "x = 1"}], "setup": "a\0b", "cases": [CALL]}),
    "a test that is nested too deeply": (
        422, {"programs": [{"code": "x = 1"}], "cases": [{"source": "-" * 200_000 + "1"}]},
    ),
    "a test of null bytes": (422, {"programs": [{"code": "x = 1"}], "cases": [{"source": "a\0"}]}),
    "a set of lists": (422, {"programs": [{"code": "x"}], "cases": [{**CALL, "args": {"s": [[1]]}}]}),
    "an encoded handle": (422, {"programs": [{"code": "x"}], "cases": [{**CALL, "args": [{"o": [1]}]}]}),
    "an entry point that is no name": (200, {"programs": [{"code": "x = 1"}], "cases": [{**CALL, "entry_point": "f(\0"}]}),
    "an expected value that is no number": (
        200, b'{"programs": [{"code": "def f(): return 1"}], "cases": [{"entry_point": "f", "args": [], '
        b'"kwargs": {"d": []}, "expected": NaN}]}',
    ),
}  # fmt: skip


def post(server: ServerProcess, route: str, body: Any, **headers: str) -> httpx.Response:
    content = body() if callable(body) else body if isinstance(body, bytes) else json.dumps(body).encode()
    given = {"content-type": "application/json", **headers}
    return HTTP.post(server.url + route, content=content, headers=given, timeout=60)


def replaced_workers(server: ServerProcess) -> int:
    text = HTTP.get(server.url + "/metrics").text
    found = re.search(r"^sandbox_workers_replaced_total (\d+)", text, re.MULTILINE)
    assert found is not None
    return int(found[1])


@pytest.mark.parametrize(
    ("route", "name"), [("/run_code", name) for name in REQUESTS] + [("/run_batch", name) for name in BATCHES]
)
def test_every_request_has_its_status_and_no_worker_is_lost(bounded: ServerProcess, route: str, name: str) -> None:
    status, body = (REQUESTS if route == "/run_code" else BATCHES)[name]
    before = bounded.descendants()
    response = post(bounded, route, body)
    assert response.status_code == status
    if status == 422:
        assert all(
            set(item) == {"type", "loc", "msg"} and item["loc"][0] == "body" for item in response.json()["detail"]
        )
    elif status == 413:
        assert "larger than" in response.json()["detail"]
    elif route == "/run_code":
        assert response.json()["status"] in ("Success", "Failed")
    assert post(bounded, "/run_code", GOOD).json()["run_result"]["stdout"] == "1\n"
    assert bounded.descendants() == before
    assert replaced_workers(bounded) == 0


@pytest.mark.parametrize("route", ["/run_code", "/run_batch"])
@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_other_content_types_are_422(bounded: ServerProcess, route: str, kind: str) -> None:
    response = post(bounded, route, GOOD, **{"content-type": kind})
    assert (response.status_code, response.json()["detail"][0]["loc"]) == (422, ["body"])


def test_a_program_that_is_too_large_is_refused_alone(bounded: ServerProcess) -> None:
    programs = [{"code": "print(1)"}, {"code": "print(2)", "stdin": "1" * (33 * MIB)}, {"code": "print(3)"}]
    lines = [json.loads(line) for line in post(bounded, "/run_batch", {"programs": programs}).text.split("\n") if line]
    assert [result["stdout"] for line in lines for result in line.get("results", [])] == ["1\n", "3\n"]
    assert [(line["index"], "larger than" in line["refused"]) for line in lines if "refused" in line] == [(1, True)]
    shared = {"programs": programs[:1] * 2, "cases": [{"stdin": "1" * (33 * MIB), "expected": ""}]}
    lines = [json.loads(line) for line in post(bounded, "/run_batch", shared).text.split("\n") if line]
    assert ["refused" in line for line in lines] == [True, True]
    assert replaced_workers(bounded) == 0


@pytest.mark.parametrize(
    ("size", "refused"), [(12, False), (17, True)], ids=["fits between program and judge", "does not fit"]
)
def test_tests_whose_values_do_not_fit_are_refused_not_failed(bounded: ServerProcess, size: int, refused: bool) -> None:
    text = "a" * (size * MIB)
    call = {"entry_point": "f", "args": [text], "kwargs": {"d": []}, "expected": len(text)}
    source = {"source": f"x = {text!r}\nassert f(x) == {len(text)}"}
    own = [{"code": "def f(x): return len(x)", "cases": [case]} for case in (call, source)]
    for body in (
        {"programs": own},
        *({"programs": [{"code": own[0]["code"]}], "cases": [case]} for case in (call, source)),
    ):
        lines = [json.loads(line) for line in post(bounded, "/run_batch", body).text.split("\n") if line]
        outcomes = {result["outcome"] for line in lines for result in line.get("results", [])}
        assert outcomes == (set() if refused else {"passed"})
        assert any("refused" in line for line in lines) is refused
    assert replaced_workers(bounded) == 0


def test_files_come_back_until_they_are_too_large_together(bounded: ServerProcess) -> None:
    answer = post(bounded, "/run_code", {**GOOD, "code": BIG_FILES, "fetch_files": FETCHED}).json()
    assert {name: len(base64.b64decode(text)) for name, text in answer["files"].items()} == {
        "f0": 16 * MIB,
        "f1": 16 * MIB,
    }


def test_callers_that_disconnect_free_their_places(bounded: ServerProcess) -> None:
    body = json.dumps({"programs": [{"code": "import time; time.sleep(0.05)"}] * 50}).encode()
    head = f"POST /run_batch HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    for _ in range(20):
        with connect(bounded) as caller:
            caller.sendall(head + body)
    deadline = time.monotonic() + 30
    while "sandbox_pending_programs 0" not in (text := HTTP.get(bounded.url + "/metrics").text):
        assert time.monotonic() < deadline, text
        time.sleep(0.1)


def connect(server: ServerProcess) -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    caller = socket.create_connection((host, int(port)))
    caller.settimeout(60)
    return caller


HEAD = b"POST /run_code HTTP/1.1\r\nhost: localhost\r\n"
SLOW = {
    "nothing": (b"", b"", b"408"),
    "half a head": (HEAD, b"", b"408"),
    "a head that grows by a byte at a time": (HEAD + b"x-long: ", b"a", b"408"),
    "a second head that does not end": (
        b"GET /v1/ping HTTP/1.1\r\nhost: localhost\r\n\r\n" + HEAD + b"x-long: ", b"a", b"200",
    ),
    "a body that grows by a byte at a time": (HEAD + b"content-length: 1000\r\n\r\n", b" ", b"408"),
    "a body in chunks of a byte": (HEAD + b"transfer-encoding: chunked\r\n\r\n", b"1\r\n \r\n", b"408"),
    "a body that nobody asked for": (
        b"POST /nowhere HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100000\r\n\r\n", b" ", b"404",
    ),
}  # fmt: skip


IMPATIENT = """
import sys
from rewards.sandbox.__main__ import main
from rewards.sandbox.server import listener
listener.HEAD_SECONDS, listener.BODY_SECONDS = 2.0, 3.0
sys.argv[1:] = sys.argv[sys.argv.index("serve") :]
main()
"""


@pytest.fixture
def impatient() -> Iterator[ServerProcess]:
    """A server that waits for requests for a few seconds only."""
    server = start_server(workers=1, prefix=[sys.executable, "-c", IMPATIENT])
    yield server
    server.stop()


def test_slow_and_half_open_requests_are_closed(impatient: ServerProcess) -> None:
    callers = {name: connect(impatient) for name in SLOW}
    answers = dict.fromkeys(SLOW, b"")
    for name, caller in callers.items():
        caller.sendall(SLOW[name][0])
        caller.setblocking(False)
    deadline = time.monotonic() + 30
    while callers and time.monotonic() < deadline:
        time.sleep(0.5)
        # Other callers do not notice.
        assert post(impatient, "/run_code", GOOD).status_code == 200
        for name, caller in list(callers.items()):
            if _drip(caller, SLOW[name][1], answers, name):
                callers.pop(name).close()
    assert list(callers) == []
    assert {name: answer.split(b" ")[1] if answer else b"" for name, answer in answers.items()} == {
        name: status for name, (_, _, status) in SLOW.items()
    }


def _drip(caller: socket.socket, piece: bytes, answers: dict[str, bytes], name: str) -> bool:
    """Send a little more and read what has arrived; returns whether the server has closed the connection."""
    try:
        data = caller.recv(65536)
        answers[name] += data
        if not data:
            return True
    except BlockingIOError:
        pass
    except ConnectionError:
        return True
    try:
        caller.send(piece)
    except ConnectionError:
        return True
    return False


def test_an_endless_head_is_cut_off(bounded: ServerProcess) -> None:
    with connect(bounded) as caller:
        caller.sendall(HEAD + b"x-long: " + b"a" * (4 * listener.MAX_HEAD))
        assert caller.recv(65536).split(b" ")[1] == b"431"


def test_connections_are_bounded_and_open_ones_continue() -> None:
    # Half of the descriptors that the process may have.
    server = start_server(workers=1, prefix=["prlimit", "--nofile=400:400"])
    try:
        with httpx.Client(trust_env=False, timeout=30) as http:
            assert http.get(server.url + "/v1/ping").json() == "pong"
            callers = [connect(server) for _ in range(300)]
            assert [caller.recv(12) for caller in callers[200:]] == [b"HTTP/1.1 503"] * 100
            assert http.post(server.url + "/run_code", json=GOOD).json()["run_result"]["stdout"] == "1\n"
            for caller in callers:
                caller.close()
            assert post(server, "/run_code", GOOD).status_code == 200
    finally:
        server.stop()


async def test_the_client_sends_a_large_batch_in_parts(bounded: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "LARGEST_BODY", 10_000)
    async with Sandbox(bounded.url) as sandbox:
        programs = [Program(f"print(len(input()) + {number})") for number in range(30)]
        results = await sandbox.check_many(programs, [StdioCase("1" * 3000, "3007")])
        assert [getattr(result, "passed", result) for result in results] == [int(n == 7) for n in range(30)]


def test_a_valid_request_to_fetch_fits_one_message() -> None:
    assert wire.MAX_FETCH + zygote.LAUNCH.size <= zygote.MESSAGE_LIMIT


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def parsed_or_refused(model: type[BaseModel], body: bytes) -> None:
    try:
        parse(model, body)
    except BadRequest as bad:
        assert bad.response.status_code == 422
        assert len(bad.response.body) < 20_000
        for item in json.loads(bytes(bad.response.body))["detail"]:
            assert set(item) == {"type", "loc", "msg"}


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([wire.RunCodeRequest, wire.BatchRequest]), st.binary(max_size=200))
def test_any_bytes_are_a_request_or_a_list_of_errors(model: type[BaseModel], body: bytes) -> None:
    parsed_or_refused(model, body)


@settings(max_examples=300, deadline=None)
@given(st.data(), JSON)
def test_any_changed_bytes_are_a_request_or_a_list_of_errors(data: st.DataObject, value: Any) -> None:
    case = {"entry_point": "f", "args": value, "kwargs": {"d": []}, "expected": value}
    body = bytearray(json.dumps({"programs": [{"code": "x", "cases": [case]}], "setup": str(value)}).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    parsed_or_refused(wire.BatchRequest, bytes(body))


def test_the_list_of_many_large_errors_is_short() -> None:
    cases = [{"entry_point": "f", "args": "x" * 1000, "kwargs": {}}] * 5000
    body = json.dumps({"programs": [{"code": "x", "cases": cases}], "y" * 100_000: 1}).encode()
    parsed_or_refused(wire.BatchRequest, body)


@settings(max_examples=200, deadline=None)
@given(JSON)
def test_a_job_is_at_most_four_times_its_body(value: Any) -> None:
    # Only then a small body need not be measured again.
    body = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
    assert listener.frame_size(value) <= 4 * len(body)
    assert listener.frame_size(json.loads("[1e15,1e15,1e15]")) <= 4 * len("[1e15,1e15,1e15]")
