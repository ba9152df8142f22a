"""The client against servers that misbehave as SandboxFusion does: what is retried, what is a result."""

# ruff: noqa: E501

from __future__ import annotations

import asyncio
import json
import math
import random
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from typing import Any, TypeVar

import httpx
import pytest

from rewards.sandbox import AssertCase, CallCase, InfrastructureError, Program, Sandbox, StdioCase
from rewards.sandbox.cases import Case
from rewards.sandbox.client import transport
from rewards.sandbox.client.accounting import at_most
from rewards.sandbox.client.servers import Connections, ProcessLimit, Servers
from rewards.sandbox.client.transport import BatchOptions, Endpoint, ProgramRun, Transient

# A server of its own for each module, and time limits: these run one after another.
pytestmark = pytest.mark.slow

Answer = tuple[int, dict[str, str], bytes] | None
AnyStub = TypeVar("AnyStub", bound="Stub")


class Stub:
    """An HTTP server that answers `/run_code` from a list (its last entry again and again) and counts what it is
    asked."""

    def __init__(self, answers: list[Answer | Callable[[dict[str, Any]], Answer]]) -> None:
        self.answers = answers
        self.requests: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.connections = 0
        self.url = ""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while line := await reader.readline():
                path = line.split()[1].decode()
                headers = {}
                while (header := await reader.readline()).strip():
                    name, _, value = header.decode().partition(":")
                    headers[name.lower()] = value.strip()
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                answer = self._answer(path, body)
                if answer is None:
                    break
                status, extra, content = answer
                length = int(extra.pop("length", len(content)))
                lines = [f"HTTP/1.1 {status} X", f"content-length: {length}"]
                lines += [f"{name}: {value}" for name, value in extra.items()]
                writer.write("\r\n".join([*lines, "", ""]).encode() + content)
                await writer.drain()
                if length != len(content):
                    break
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    def _answer(self, path: str, body: bytes) -> Answer:
        self.paths.append(path)
        if path != "/run_code":
            return 404, {}, b'{"detail":"Not Found"}'
        self.requests.append(json.loads(body))
        answer = self.answers[min(len(self.requests), len(self.answers)) - 1]
        return answer(self.requests[-1]) if callable(answer) else (answer and (answer[0], dict(answer[1]), answer[2]))


class BatchStub(Stub):
    """A server with our batch route: every case of a batch passes, unless `drops` holds for its number and the
    connection ends instead."""

    def __init__(self, drops: Callable[[int], bool]) -> None:
        super().__init__([])
        self.drops = drops
        self.batches = self.programs = self.dropped = 0

    def _answer(self, path: str, body: bytes) -> Answer:
        if path == "/capabilities":
            return 200, {}, b'{"workers": 2, "run_batch": true, "checks": true}'
        asked = json.loads(body)
        self.batches += 1
        self.programs += len(asked["programs"])
        if self.drops(self.batches):
            self.dropped += len(asked["programs"])
            return None
        counts = [len(asked.get("cases") or program["cases"]) for program in asked["programs"]]
        done = [{"index": i, "done": True, "results": [{"outcome": "passed"}] * n} for i, n in enumerate(counts)]
        return 200, {}, b"".join(json.dumps(line).encode() + b"\n" for line in done)


class TokenStub(BatchStub):
    """A server with tokens that answers `print(number)` with the number. `edit`: turns its lines (one per program)
    into others, given those of the request before."""

    def __init__(self, edit: Callable[[list[Any], list[Any]], list[Any]]) -> None:
        super().__init__(lambda number: False)
        self.edit = edit
        self.before: list[Any] = []

    def _answer(self, path: str, body: bytes) -> Answer:
        if path == "/capabilities":
            return 200, {}, b'{"workers": 2, "run_batch": true, "checks": true, "tokens": true}'
        self.batches += 1
        lines = []
        for index, program in enumerate(json.loads(body)["programs"]):
            number = program["code"][6:-1]
            streams = {"stdout": f"{number}\n", "stderr": "", "stdout_truncated": False, "stderr_truncated": False}
            ended = {"outcome": "passed", "return_code": 0, "error_type": None, "error_line": None, "time": 0.0}
            result = {**streams, **ended}
            lines.append({"index": index, "token": program["token"], "first": 0, "results": [result], "done": True})
        edited = self.edit(lines, self.before)
        self.before = lines
        return 200, {}, b"".join(json.dumps(line).encode() + b"\n" for line in edited)


@asynccontextmanager
async def stub(*answers: Any) -> AsyncIterator[Stub]:
    async with listening(Stub(list(answers))) as made:
        yield made


@asynccontextmanager
async def listening(made: AnyStub) -> AsyncIterator[AnyStub]:
    server = await asyncio.start_server(made._serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield made
    server.close()


def fusion(status: str = "Success", message: str = "", **run: Any) -> Answer:
    ran = {"status": "Finished", "execution_time": 0.1, "return_code": 0, "stdout": "1\n", "stderr": "", **run}
    body = {
        "status": status,
        "message": message,
        "compile_result": None,
        "run_result": ran,
        "executor_pod_name": None,
        "files": {},
    }
    return 200, {"content-type": "application/json"}, json.dumps(body).encode()


OK = fusion()
TIMED_OUT: Answer = (
    200,
    {},
    (OK or (0, {}, b""))[2].replace(b"Finished", b"TimeLimitExceeded").replace(b": 0,", b": null,"),
)
SANDBOX_ERROR = fusion("SandboxError", "exception on running code")
TRACEBACK: Answer = (500, {}, b"Internal Server Error\nTraceback ...")
BUSY = (429, {"retry-after": "0.05"}, b"busy")
CUT = (200, {"length": "9999"}, b'{"status": "Succ')
NO_JSON: Answer = (200, {}, b"<html>gateway</html>")


@pytest.mark.parametrize(
    "trouble", [SANDBOX_ERROR, TRACEBACK, BUSY, CUT, NO_JSON, None, (504, {}, b"timeout"), (503, {}, b"-")]
)
async def test_transient_failures_are_retried(trouble: Answer) -> None:
    async with stub(trouble, OK) as server, Sandbox(server.url) as sandbox:
        result = await sandbox.run("print(1)")
        assert (result.outcome, result.stdout, len(server.requests)) == ("passed", "1\n", 2)


@pytest.mark.parametrize("trouble", [SANDBOX_ERROR, TRACEBACK, CUT, NO_JSON, None])
async def test_persistent_failures_are_an_infrastructure_error(trouble: Answer) -> None:
    async with stub(trouble) as server, Sandbox(server.url, attempts=2) as sandbox:
        with pytest.raises(InfrastructureError):
            await sandbox.run("print(1)")
        assert len(server.requests) == 2


async def test_a_busy_server_costs_no_attempt_until_the_wait_is_too_long() -> None:
    async with stub(BUSY, BUSY, BUSY, BUSY, OK) as server, Sandbox(server.url, attempts=1) as sandbox:
        started = time.monotonic()
        assert (await sandbox.run("print(1)")).outcome == "passed"
        assert len(server.requests) == 5
        # As long as Retry-After says, each time.
        assert time.monotonic() - started >= 4 * 0.05
    async with stub(BUSY) as server, Sandbox(server.url, attempts=1, queue_timeout=0.2) as sandbox:
        with pytest.raises(InfrastructureError, match="429"):
            await sandbox.run("print(1)")


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (fusion("Failed", return_code=1, stderr="Traceback (most recent call last):\nValueError: x"), "runtime_error"),
        (fusion("Failed", return_code=1, stderr="  x (\nSyntaxError: bad"), "syntax_error"),
        (fusion("Failed", return_code=1, stderr="Traceback (most recent call last):\nMemoryError"), "memory"),
        (TIMED_OUT, "timeout"),
        (fusion("Failed", return_code=-9), "runtime_error"),
        (fusion("Failed", return_code=-11), "runtime_error"),
    ],
)
async def test_a_programs_own_failure_is_a_result_at_once(answer: Answer, outcome: str) -> None:
    async with stub(answer) as server, Sandbox(server.url) as sandbox:
        assert (await sandbox.run("x")).outcome == outcome
        assert len(server.requests) == 1


async def test_compile_failure_has_no_run_result() -> None:
    body = {
        "status": "Failed",
        "message": "",
        "compile_result": {
            "status": "Finished",
            "execution_time": 1.0,
            "return_code": 1,
            "stdout": "",
            "stderr": "error: x",
        },
        "run_result": None,
        "executor_pod_name": None,
        "files": {},
    }
    async with stub((200, {}, json.dumps(body).encode())) as server, Sandbox(server.url) as sandbox:
        result = await sandbox.run("int main( {", language="cpp")
        assert (result.outcome, result.stderr) == ("syntax_error", "error: x")


async def test_finished_without_a_return_code_is_no_result() -> None:
    async with stub(fusion(return_code=None)) as server, Sandbox(server.url, attempts=2) as sandbox:
        with pytest.raises(InfrastructureError, match="return code"):
            await sandbox.run("x")


async def test_bad_request_is_not_retried() -> None:
    async with stub((422, {}, b'{"detail":[]}')) as server, Sandbox(server.url) as sandbox:
        with pytest.raises(InfrastructureError, match="422"):
            await sandbox.run("x")
        assert len(server.requests) == 1


@pytest.mark.parametrize("suffix", ["", "/", "/run_code", "/run_code/"])
async def test_limits_are_forwarded_and_both_url_forms_accepted(suffix: str) -> None:
    async with stub(OK) as server, Sandbox(server.url + suffix) as sandbox:
        await sandbox.run("x", stdin="in", timeout=3.5, memory_mb=77, language="bash", files={"a": "Yg=="})
        assert server.requests == [
            {
                "code": "x",
                "language": "bash",
                "stdin": "in",
                "files": {"a": "Yg=="},
                "run_timeout": 3.5,
                "compile_timeout": 10.0,
                "memory_limit_MB": 77,
            }
        ]


async def test_a_server_without_our_routes_gets_only_run_code_requests() -> None:
    async with stub(OK) as server, Sandbox(server.url) as sandbox:
        await asyncio.gather(sandbox.run("x"), sandbox.run("y"))
        await sandbox.run("z")
        assert server.paths == ["/capabilities", "/run_code", "/run_code", "/run_code"]


def test_url_without_a_scheme_is_refused() -> None:
    with pytest.raises(ValueError, match="http"):
        Sandbox("localhost:8080")


async def test_an_address_without_a_server_is_an_infrastructure_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    async with Sandbox(f"http://127.0.0.1:{port}", attempts=2) as sandbox:
        with pytest.raises(InfrastructureError):
            await sandbox.run("x")
        with pytest.raises(InfrastructureError):
            await sandbox.check(Program("x"), [CallCase("f", expected=1)])


async def test_connections_are_kept_and_shared() -> None:
    async with stub(OK) as server, Sandbox(server.url) as one, Sandbox(server.url) as other:
        for sandbox in (one, other, one, other):
            await sandbox.run("x")
        assert server.connections == 1


async def test_a_dead_server_is_skipped_and_retried() -> None:
    async with stub(None) as dead, stub(OK) as alive, Sandbox([dead.url, alive.url]) as sandbox:
        results = await asyncio.gather(*(sandbox.run("x") for _ in range(20)))
        assert {result.outcome for result in results} == {"passed"}
        asked = len(dead.paths)
        for _ in range(5):
            await sandbox.run("x")
        assert len(dead.requests) <= 20
        dead.answers = [OK]
        before = len(alive.requests)
        await asyncio.sleep(1.2)
        await asyncio.gather(*(sandbox.run("x") for _ in range(10)))
        assert len(dead.paths) > asked
        assert len(alive.requests) < before + 10


def test_certificates_are_read_once_for_all_event_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[None] = []
    read = ssl.SSLContext.load_verify_locations
    monkeypatch.setattr(
        ssl.SSLContext, "load_verify_locations", lambda *given, **more: reads.append(read(*given, **more))
    )

    async def connect() -> None:
        await Connections.join(("http://127.0.0.1:1",), None).leave()

    asyncio.run(connect())
    asyncio.run(connect())
    assert len(reads) <= 1  # 0: an earlier test has connected


def test_a_server_that_stays_down_is_tried_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("rewards.sandbox.client.transport.time.monotonic", lambda: now)
    endpoint = Endpoint("http://127.0.0.1:1", httpx.AsyncClient())
    pauses = []
    for _ in range(8):
        endpoint.note_unreachable()
        endpoint.note_unreachable()  # one outage, however many requests it hits
        pauses.append(endpoint.down_for)
        now += endpoint.down_for
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    endpoint.note_alive()
    endpoint.note_unreachable()
    assert endpoint.down_for == 0.5


async def test_a_batch_cancelled_before_it_is_sent_fails_and_leaves_no_caller_waiting() -> None:
    """Otherwise a caller that submits just as connections close would wait forever."""
    async with httpx.AsyncClient() as client:
        endpoint = Endpoint("http://127.0.0.1:1", client)
        work = ProgramRun({"code": "x"}, BatchOptions())
        waiting = endpoint.submit(work)
        endpoint._flush(work.options)
        await endpoint.aclose()
        with pytest.raises(Transient):
            await asyncio.wait_for(waiting, 5)


async def test_a_program_submitted_again_is_not_failed_by_its_first_submission(monkeypatch: pytest.MonkeyPatch) -> None:
    async with httpx.AsyncClient() as client:
        endpoint = Endpoint("http://127.0.0.1:1", client)
        work = ProgramRun({"code": "x"}, BatchOptions())
        monkeypatch.setattr(endpoint, "_flush", lambda _: None)  # the second submission stays in its queue
        first = endpoint.submit(work)
        Endpoint._flush(endpoint, work.options)
        second = endpoint.submit(work)
        with pytest.raises(Transient):
            await asyncio.wait_for(first, 5)
        assert not second.done()


@pytest.mark.parametrize(("limit", "requests"), [(math.inf, 1), (None, 3)])
async def test_replays_that_come_one_after_another_share_a_request(
    monkeypatch: pytest.MonkeyPatch, limit: float | None, requests: int
) -> None:
    monkeypatch.setattr(transport, "GATHER_SECONDS", 0.5)
    sent: list[list[Any]] = []
    async with httpx.AsyncClient() as client:
        endpoint = Endpoint("http://127.0.0.1:1", client)
        monkeypatch.setattr(endpoint, "_flush", lambda options: sent.append(endpoint._queues.pop(options)))
        for _ in range(3):
            with nullcontext() if limit is None else at_most(limit):
                endpoint.submit(ProgramRun({"code": "x"}, BatchOptions()))
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.6)
        assert list(map(len, sent)) == [3 // requests] * requests


def _moved(lines: list[Any]) -> list[Any]:
    """Every result under the next program's index."""
    indices = [line["index"] for line in lines]
    return [{**line, "index": index} for line, index in zip(lines, indices[1:] + indices[:1], strict=True)]


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param(lambda lines, before: before[: len(lines)] or lines, id="the answer to the request before"),
        pytest.param(lambda lines, _: _moved(lines) if len(lines) > 1 else lines, id="indices moved by one"),
        pytest.param(lambda lines, _: [*lines[1:], {**lines[0], "index": -1}], id="index counted from the end"),
        pytest.param(lambda lines, _: [{**line, "token": None} for line in lines], id="without token"),
        pytest.param(lambda lines, _: [{**line, "first": 1} for line in lines], id="a result is missing"),
    ],
)
async def test_an_answer_to_another_program_is_never_a_result(
    edit: Callable[[list[Any], list[Any]], list[Any]],
) -> None:
    async def asked(sandbox: Sandbox, number: int) -> str:
        try:
            result = await sandbox.run(f"print({number})")
        except InfrastructureError:
            return "infrastructure"
        return "right" if result.stdout == f"{number}\n" else "WRONG"

    async with listening(TokenStub(edit)) as server, Sandbox(server.url, attempts=2) as sandbox:
        results = [
            result
            for start in range(0, 12, 4)
            for result in await asyncio.gather(*(asked(sandbox, start + number) for number in range(4)))
        ]
        assert "WRONG" not in results
        assert "infrastructure" in results
        assert (await sandbox._servers.connect()).endpoints[0].foreign > 0


async def test_an_answer_with_its_token_is_a_result() -> None:
    async with listening(TokenStub(lambda lines, _: lines)) as server, Sandbox(server.url, attempts=1) as sandbox:
        results = await asyncio.gather(*(sandbox.run(f"print({number})") for number in range(20)))
        assert [result.stdout for result in results] == [f"{number}\n" for number in range(20)]


async def test_a_dropped_connection_affects_only_its_own_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(0)

    async def caller(sandbox: Sandbox) -> None:
        for _ in range(10):
            await asyncio.sleep(chance.choice([0, 0.001, 0.002]))
            # Programs with different options travel in different batches.
            timeout = chance.choice([1.0, 2.0, 3.0])
            assert (await sandbox.check(Program("x"), [AssertCase("1")], timeout=timeout)).all_passed

    async with listening(BatchStub(lambda number: number % 4 == 3)) as server:
        # The embedded server: when it seems to be lost, this process asks for it anew.
        monkeypatch.setattr(Servers, "_start_embedded", lambda self: (server.url, None))
        async with Sandbox(attempts=20) as sandbox:
            await asyncio.wait_for(asyncio.gather(*(caller(sandbox) for _ in range(64))), 120)
        assert server.dropped > 0
        assert server.programs == 640 + server.dropped


async def test_load_is_balanced() -> None:
    async with stub(OK) as one, stub(OK) as other, Sandbox([one.url, other.url]) as sandbox:
        await asyncio.gather(*(sandbox.run("x") for _ in range(40)))
        assert len(one.requests) + len(other.requests) == 40
        assert 10 <= len(one.requests) <= 30


async def test_concurrency_is_bounded_for_the_whole_process() -> None:
    limit = ProcessLimit(3)
    running = peak = 0

    async def work() -> None:
        nonlocal running, peak
        async with limit.slot():
            running += 1
            peak = max(peak, running)
            await asyncio.sleep(0.005)
            running -= 1

    def other_loop() -> None:
        async def all_of_it() -> None:
            await asyncio.gather(*(work() for _ in range(10)))

        asyncio.run(all_of_it())

    await asyncio.gather(*(asyncio.to_thread(other_loop) for _ in range(2)), *(work() for _ in range(10)))
    assert (peak, limit.used) == (3, 0)


async def test_a_cancelled_caller_frees_its_place() -> None:
    limit = ProcessLimit(1)

    async def wait() -> None:
        async with limit.slot():
            await asyncio.sleep(10)

    tasks = [asyncio.create_task(wait()) for _ in range(3)]
    await asyncio.sleep(0.01)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert limit.used == 0
    async with asyncio.timeout(1), limit.slot():
        assert limit.used == 1


def run_for_real(request: dict[str, Any], kept: Callable[[str], str] = str) -> Answer:
    """Answer like SandboxFusion: run the code in a plain subprocess. `kept`: how its output is truncated."""
    import subprocess
    import sys
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", request["code"]],
            input=request["stdin"] or "",
            capture_output=True,
            text=True,
            timeout=60,
            cwd=folder,
        )
    status = "Success" if done.returncode == 0 else "Failed"
    return fusion(status, return_code=done.returncode, stdout=kept(done.stdout), stderr=done.stderr)


async def test_check_on_a_server_with_only_run_code() -> None:
    cases: list[Case] = [
        AssertCase("assert add(1, 2) == 3"),
        CallCase("add", [1, 2], expected=3),
        CallCase("add", [1, 2], expected=4),
        AssertCase("values = [add(i, i) for i in range(3)]\nassert values == [0, 2, 4]"),
        StdioCase("5\n", "ready\n"),
    ]
    code = "def add(a, b): return a + b\nprint('ready')"
    async with stub(run_for_real) as server, Sandbox(server.url) as sandbox:
        result = await sandbox.check(Program(code), cases)
        assert [case.outcome for case in result.cases] == ["passed", "passed", "wrong_answer", "passed", "passed"]
        assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("code", "outcomes"),
    [
        ("import os\ndef add(a, b): os._exit(0)", ["runtime_error", "runtime_error"]),
        ("import os\nprint('verdict {}')\nos._exit(0)", ["runtime_error", "runtime_error"]),
        ("def add(a, b):\n    while b: pass\n    return 1", ["timeout", "passed"]),
        (
            "class Yes:\n    def __eq__(self, o): return True\ndef add(a, b): return Yes()",
            ["wrong_answer", "wrong_answer"],
        ),
        ("def add(:", ["syntax_error", "syntax_error"]),
        ("1/0", ["runtime_error", "runtime_error"]),
    ],
)
async def test_forgeries_on_a_server_with_only_run_code(code: str, outcomes: list[str]) -> None:
    cases = [CallCase("add", [1, 2], expected=3), CallCase("add", [1, 0], expected=1)]
    async with stub(run_for_real) as server, Sandbox(server.url) as sandbox:
        result = await sandbox.check(Program(code), cases, timeout=1.0)
        assert [case.outcome for case in result.cases] == outcomes


@pytest.mark.parametrize("kept", [0.95, 0.6, 0.4])
async def test_truncated_verdicts_are_requested_again(kept: float) -> None:
    # SandboxFusion reads pipes only at the end and loses what did not fit into them, as Success.
    def cutting(request: dict[str, Any]) -> Answer:
        return run_for_real(request, kept=lambda stdout: stdout[: int(kept * len(stdout))])

    cases = [CallCase("f", [n], expected=n if n != 2 else 0) for n in range(6)]
    async with stub(cutting, cutting, run_for_real) as server, Sandbox(server.url) as sandbox:
        result = await sandbox.check(Program("def f(x): return x"), cases)
        assert [case.outcome for case in result.cases] == ["passed", "passed", "wrong_answer", *["passed"] * 3]
        assert len(server.requests) == 3


async def test_verdicts_that_are_always_truncated_give_no_result() -> None:
    def cutting(request: dict[str, Any]) -> Answer:
        # The first line that is not blank says that the program was loaded.
        return run_for_real(request, kept=lambda stdout: "\n".join([*stdout.split("\n")[:2], ""]))

    async with stub(cutting) as server, Sandbox(server.url, attempts=2) as sandbox:
        with pytest.raises(InfrastructureError, match="truncated"):
            await sandbox.check(Program("def f(x): return x"), [CallCase("f", [1], expected=1)])
        # Twice for each attempt, and once beside a known good program: the fault is the server's.
        assert len(server.requests) == 2 * (2 + 1)


@pytest.mark.parametrize(
    "attack",
    [
        "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)",
        "import os, signal\ndef f(x): os.kill(os.getppid(), signal.SIGTERM)",
        "import os\nfor d in range(3, 64):\n    try: os.write(d, (5).to_bytes(4, 'big') + b'[[[[[')\n    except OSError: pass\ndef f(x): return x + 1",
        "import os\nfor d in range(3, 64):\n    try: os.write(d, (7).to_bytes(4, 'big') + b'{\"x\":5}')\n    except OSError: pass",
        "import os\nos._exit(0)",
    ],
)
async def test_a_program_that_silences_its_judge_fails_and_is_not_masked(attack: str) -> None:
    async with stub(run_for_real) as server, Sandbox(server.url, attempts=2) as sandbox:
        result = await sandbox.check(Program(attack), [CallCase("f", [1], expected=3)], timeout=3.0)
        assert [case.outcome for case in result.cases] == ["runtime_error"]
        # Twice, and once a known good program, at most: no attempt is spent on what is the program's own doing.
        assert len(server.requests) <= 3
