"""What a program does to its process, its channels and its children is its own failure, and none of the next."""

# Programs stand here as they are sent, in one piece.
# ruff: noqa: E501

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from rewards.sandbox import AssertCase, CallCase, Program, Sandbox, StdioCase
from rewards.sandbox.cases import Case
from tests.rewards.sandbox.conftest import HTTP, ServerProcess, assert_nothing_left

pytestmark = pytest.mark.slow  # with a server


def replaced(server: ServerProcess) -> int:
    """How many workers the server has replaced so far."""
    text = HTTP.get(server.url + "/metrics").text
    return int(re.search(r"^sandbox_workers_replaced_total (\d+)", text, re.MULTILINE).group(1))  # type: ignore[union-attr]


@pytest_asyncio.fixture(autouse=True)
async def no_worker_is_lost(server: ServerProcess, sandbox: Sandbox) -> AsyncIterator[None]:
    """After every program of this file: the same workers, with nothing left in them."""
    before = replaced(server), set(server.descendants())
    yield
    assert (replaced(server), set(server.descendants())) == before
    await assert_nothing_left(server, sandbox)


def writes(body: str, times: int = 1) -> str:
    """A program that writes bytes to every descriptor above its own."""
    return (
        f"import os\nbody = {body}\nfor d in range(3, 250):\n    for _ in range({times}):\n"
        "        try: os.write(d, body)\n        except OSError: break\n"
    )


FRAME = "(lambda b: len(b).to_bytes(4, 'big') + b)"
MISUSES = {
    "nesting": writes("(60000).to_bytes(4, 'big') + b'[' * 60000"),
    "no frame at all": writes("b'garbage' * 100"),
    "one byte": writes("b'x'"),
    "a huge length": writes("b'\\xff\\xff\\xff\\xff' + b'x' * 100"),
    "an exception that is a number": writes(FRAME + "(b'{\"x\":5}')", 40),
    "a value that is nothing": writes(FRAME + "(b'{}')"),
    "answers to nothing": writes(FRAME + "(b'{\"v\":true}')", 3000),
    "empty lists": writes(FRAME + "(b'{\"v\":[' + b'[],' * 20000 + b'[]]}')", 300),
    "a fraction of twenty million digits": writes(FRAME + '(b\'{"v":{"F":["1e20000000",1]}}\')'),
    "ends of runs": writes("b'd' * 5000"),
    "descriptors closed": "import os\nos.closerange(3, 250)\n",
    "standard descriptors closed": "import os\nos.closerange(0, 250)\n",
    "descriptors exchanged": "import os\nfor d in range(3, 250):\n    try: os.dup2(1, d)\n    except OSError: pass\n",
    "killed by itself": "import os\nos.kill(os.getpid(), 9)\n",
    "its whole group killed": "import os\nos.killpg(0, 9)\n",
    "everybody killed": "import os\nos.kill(-1, 9)\n",
    "its parent killed": "import os\nfor s in (9, 19, 15, 11): \n    try: os.kill(os.getppid(), s)\n    except OSError: pass\n",
    "an exception called as a signal": "class SIGKILL(Exception): pass\nraise SIGKILL\n",
    "an exception with a name of 7 MB": "raise type('A' * 7_000_000, (Exception,), {})('b' * 7_000_000)\n",
    "children that answer": "import os\nfor _ in range(5): os.fork()\n",
    "stopped": "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\n",
    "a session of its own": "import os\nif os.fork(): os._exit(0)\nos.setsid()\n",
}
CASES: dict[str, list[Case]] = {
    "worker": [CallCase("f", [1], expected=2), AssertCase("assert f(2) == 3")],
    "judge": [AssertCase("x = f(1)\nassert x == 2"), AssertCase("assert f(2) == f(1) + 1 == 3")],
    "printed": [StdioCase("1\n", "2\n"), StdioCase("2\n", "3\n")],
}


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("name", MISUSES)
async def test_misuse_is_the_programs_failure(sandbox: Sandbox, name: str, kind: str) -> None:
    code = MISUSES[name] + "def f(x): return 0\n"
    result = await sandbox.check(Program(code), CASES[kind], timeout=1.0, memory_mb=256, max_timeouts=1)
    assert result.passed == 0
    assert len(str(result)) < 20_000


@pytest.mark.parametrize("name", MISUSES)
async def test_misuse_in_a_call_is_the_programs_failure(sandbox: Sandbox, name: str) -> None:
    body = "".join(f"    {line}\n" for line in MISUSES[name].splitlines())
    code = f"def f(x):\n{body}    return 0\n"
    for kind in ("worker", "judge"):
        result = await sandbox.check(Program(code), CASES[kind], timeout=1.0, memory_mb=256, max_timeouts=1)
        assert result.passed == 0


@pytest.mark.parametrize("name", MISUSES)
async def test_misuse_is_the_programs_failure_in_a_plain_run_too(sandbox: Sandbox, name: str) -> None:
    result = await sandbox.run(MISUSES[name], timeout=1.0, memory_mb=256)
    assert result.outcome in ("passed", "runtime_error", "timeout", "memory")


@pytest.mark.parametrize(
    "value",
    [
        "{n * (2**61 - 1) for n in range(3000)}",
        "__import__('fractions').Fraction(3, 7) ** 40000",
        "__import__('decimal').Decimal('1e999999')",
        "10 ** 200000",
        "[[]] * 200000",
        "'x' * 15_000_000",
        "['x' * 1000] * 200_000",
        "eval('[' * 90 + ']' * 90)",
        "float('nan')",
        "'\\ud800'",
        "type('A' * 100_000, (), {})()",
        "{i: [i] for i in range(100_000)}",
    ],
)
@pytest.mark.parametrize("kind", ["worker", "judge"])
async def test_values_of_any_size_are_judged(sandbox: Sandbox, value: str, kind: str) -> None:
    result = await sandbox.check(Program(f"def f(x): return {value}"), CASES[kind], timeout=3.0, memory_mb=512)
    assert result.passed == 0
    assert len(str(result)) < 20_000


SHARED = """
import mmap, os, time
for _ in range(6):
    if os.fork() == 0:
        block = mmap.mmap(-1, 60 << 20)
        for place in range(0, len(block), 4096): block[place] = 1
        time.sleep(30)
        os._exit(0)
time.sleep(30)
"""
SHARED_BY_ALL = """
import mmap, os, time
block = mmap.mmap(-1, 50 << 20)
for place in range(0, len(block), 4096): block[place] = 1
for _ in range(4):
    if os.fork() == 0:
        other = mmap.mmap(-1, 50 << 20)
        for place in range(0, len(other), 4096): other[place] = block[place]
        time.sleep(30)
time.sleep(30)
"""


TOUCHED_BY_THE_DEAD = """
import mmap, os, time
for _ in range(6):
    if os.fork() == 0:
        block = mmap.mmap(-1, 60 << 20)
        if os.fork() == 0:
            for place in range(0, len(block), 4096): block[place] = 1
            os._exit(0)
        os.wait()
        time.sleep(30)
        os._exit(0)
time.sleep(30)
"""
SOCKETS = """
import os, socket, time
for _ in range(8):
    if os.fork() == 0:
        pairs = []
        try:
            while True:
                a, b = socket.socketpair()
                pairs.append((a, b))
                a.setblocking(False)
                while True: a.send(bytes(1 << 16))
        except BlockingIOError: pass
        except OSError: pass
        try:
            while True: pairs.append(socket.socketpair())
        except OSError: time.sleep(30)
time.sleep(30)
"""


@pytest.mark.parametrize("code", [SHARED, SHARED_BY_ALL, TOUCHED_BY_THE_DEAD, SOCKETS])
async def test_memory_that_processes_share_or_the_kernel_holds_for_them_counts(sandbox: Sandbox, code: str) -> None:
    result = await sandbox.run(code, memory_mb=128, timeout=20.0)
    assert result.outcome == "memory"


@pytest.mark.parametrize(
    "code",
    [
        "import os\nos.memfd_create('x')",
        "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nif libc.syscall(319, b'x', 0) < 0: raise PermissionError",
        "import socket\na, b = socket.socketpair()\na.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)",
        "import socket\na, b = socket.socketpair()\na.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)",
    ],
)
async def test_memory_that_cannot_be_counted_is_refused(sandbox: Sandbox, code: str) -> None:
    result = await sandbox.run(code)
    assert (result.outcome, result.error_type) == ("runtime_error", "PermissionError")


async def test_ordinary_use_of_sockets_and_mappings_is_not_charged(sandbox: Sandbox) -> None:
    code = "import asyncio, mmap, socket\nasyncio.run(asyncio.sleep(0.1))\nm = mmap.mmap(-1, 1 << 20)\nm[0] = 1\npairs = [socket.socketpair() for _ in range(20)]\nimport time; time.sleep(0.2)\nprint('ok')"
    assert (await sandbox.run(code, memory_mb=128)).stdout == "ok\n"


@pytest.mark.parametrize("kind", CASES)
async def test_a_whole_check_has_a_time_limit(sandbox: Sandbox, kind: str) -> None:
    code = "import time\ndef f(x):\n    time.sleep(0.4)\n    return x + 1\nif __name__ == '__main__': print(f(int(input())))"
    case = CASES[kind][0]
    # Four limits of a case, or half a limit for each case, unless the caller says otherwise.
    # Time spent waiting for a CPU is not charged: a busy machine lets more cases finish, never fewer.
    few = [case.outcome for case in (await sandbox.check(Program(code), [case] * 12, timeout=0.5)).cases]
    assert few[:3] == ["passed"] * 3
    assert few[-1] == "timeout"
    many = await sandbox.check(Program(code), [case] * 30, timeout=0.5)
    assert 9 <= many.passed < 30
    assert "used up" in str(many.cases[-1].detail)
    assert (await sandbox.check(Program(code), [case] * 6, timeout=1.0, total_timeout=10.0)).all_passed


PREEMPTED = {
    "python": "import time\nopen('left', 'w').close()\ntime.sleep(0.5)\nprint('done')",
    "bash": "touch left; sleep 0.5; echo done",
    "cpp": '#include <cstdio>\n#include <unistd.h>\nint main() { usleep(500000); puts("done"); }',
}


@pytest.mark.parametrize("language", PREEMPTED)
async def test_preempted_programs_end_as_if_they_had_not_been(sandbox: Sandbox, language: str) -> None:
    slow = [sandbox.run(PREEMPTED[language], language=language, timeout=3.0) for _ in range(6)]
    quick = [sandbox.run(f"print({n})") for n in range(200)]
    results = await asyncio.gather(*slow, *quick)
    assert [result.stdout for result in results] == ["done\n"] * 6 + [f"{n}\n" for n in range(200)]


@pytest.mark.parametrize("kind", CASES)
async def test_preempted_checks_end_as_if_they_had_not_been(sandbox: Sandbox, kind: str) -> None:
    code = "import time\ndef f(x):\n    time.sleep(0.15)\n    return x + 1\nif __name__ == '__main__': print(f(int(input())))"
    slow = [sandbox.check(Program(f"{code}  # {n}"), CASES[kind] * 2, timeout=2.0) for n in range(6)]
    quick = [sandbox.run(f"print({n})") for n in range(200)]
    results, _ = await asyncio.gather(asyncio.gather(*slow), asyncio.gather(*quick))
    assert all(result.all_passed for result in results), results


async def test_a_check_that_runs_again_has_only_its_remaining_time(sandbox: Sandbox) -> None:
    code = "import os, time\ndef f(x):\n    if x == 2: os.kill(os.getpid(), 9)\n    time.sleep(0.6)\n    return x + 1\n"
    cases = [CallCase("f", [n], expected=n + 1) for n in (1, 2, 3)]
    found = await sandbox.check(Program(code), cases, timeout=2.0, total_timeout=1.0)
    assert [case.outcome for case in found.cases] == ["passed", "runtime_error", "timeout"]
    found = await sandbox.check(Program(code), cases, timeout=2.0, total_timeout=2.0)
    assert [case.outcome for case in found.cases] == ["passed", "runtime_error", "passed"]
