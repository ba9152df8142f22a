"""Workers, fork servers and the server are killed during 500 requests: every caller gets a right answer or an error."""

# Tests poll /proc and a counter.
# ruff: noqa: ASYNC110, ASYNC240

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from rewards.sandbox import CallCase, CheckResult, InfrastructureError, Program, RunResult, Sandbox
from tests.processes import living_descendants

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.e2e, pytest.mark.slow]


class Server:
    """A server on a separate port that can be killed and restarted there."""

    def __init__(self) -> None:
        self.port = 0
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> str:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "rewards.sandbox", "serve", "--port", str(self.port), "--workers", "3"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        assert self.process.stderr is not None
        for line in self.process.stderr:
            found = re.search(r"serving on (http://127.0.0.1:(\d+))", line)
            if found:
                self.port = int(found.group(2))
                return found.group(1)
        raise AssertionError("the server did not start")

    def descendants(self) -> list[int]:
        assert self.process is not None
        return sorted(child.pid for child in living_descendants(self.process.pid))

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        if self.process.stderr is not None:
            self.process.stderr.close()


# Errors of a program that was killed twice: the second kill counts as its own failure (docs/reference/sandbox.md).
HIT_TWICE = {"SandboxMisuse", "SIGKILL"}


async def ask(sandbox: Sandbox, number: int) -> str:
    """Result of one request, in one of three ways."""
    kinds: set[str | None]
    try:
        if number % 3 == 0:
            run = await sandbox.run(f"import time; time.sleep(0.02)\nprint({number})", timeout=20.0)
            right, kinds = (run.outcome, run.stdout) == ("passed", f"{number}\n"), {run.error_type}
        elif number % 3 == 1:
            checked = await sandbox.check(
                Program(f"def f(x): return x + {number}"),
                [CallCase("f", [n], expected=n + number) for n in range(5)],
                timeout=20.0,
            )
            right, kinds = checked.all_passed, {case.error_type for case in checked.cases}
        else:
            failed = await sandbox.run(f"raise ValueError({number})", timeout=20.0)
            right = (failed.outcome, failed.error_line) == ("runtime_error", f"ValueError: {number}")
            kinds = {failed.error_type}
    except InfrastructureError:
        return "infrastructure"
    return "right" if right else "hit twice" if kinds & HIT_TWICE else "WRONG"


async def test_every_caller_gets_a_right_answer_or_infrastructure_error() -> None:
    chance = random.Random(7)
    first, second = Server(), Server()
    urls = [first.start(), second.start()]
    finished = 0

    async def counted(number: int) -> str:
        nonlocal finished
        result = await ask(sandbox, number)
        finished += 1
        return result

    async def chaos() -> None:
        for step in range(8):
            while finished < min(480, (step + 1) * 50):
                await asyncio.sleep(0.02)
            victims = first.descendants() + second.descendants()
            for victim in chance.sample(victims, min(3, len(victims))):
                try:
                    os.kill(victim, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            if step == 3:
                first.kill()
            if step == 5:
                await asyncio.to_thread(first.start)

    try:
        async with Sandbox(urls, concurrency=32, attempts=8) as sandbox:
            results, _ = await asyncio.gather(asyncio.gather(*(counted(n) for n in range(500))), chaos())
            assert "WRONG" not in results
            assert len(results) == 500
            assert results.count("hit twice") <= 4
            assert results.count("right") >= 475
            # Both servers work: they have replaced the killed processes.
            assert [await ask(sandbox, n) for n in range(30)] == ["right"] * 30
    finally:
        first.kill()
        second.kill()


@pytest.mark.parametrize("cases", [None, 3])
async def test_a_program_killed_from_outside_is_run_again(cases: int | None) -> None:
    server = Server()
    url = server.start()
    slow = "import time\ndef f(x):\n    time.sleep(0.4)\n    return x\nprint(f(7))"
    try:
        async with Sandbox(url) as sandbox:
            await sandbox.run("print(1)")
            resting = set(server.descendants())
            asked: asyncio.Task[RunResult] | asyncio.Task[CheckResult]
            if cases is None:
                asked = asyncio.create_task(sandbox.run(slow, timeout=20.0))
            else:
                asked = asyncio.create_task(
                    sandbox.check(Program(slow), [CallCase("f", [n], expected=n) for n in range(cases)], timeout=20.0)
                )
            while not (programs := set(server.descendants()) - resting):
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            for pid in programs:
                os.kill(pid, signal.SIGKILL)
            answer = await asked
            if cases is None:
                assert isinstance(answer, RunResult)
                assert answer.stdout == "7\n", answer
            else:
                assert isinstance(answer, CheckResult)
                assert answer.all_passed, answer
    finally:
        server.kill()


async def test_processes_of_a_killed_server_end() -> None:
    server = Server()
    url = server.start()
    async with Sandbox(url, attempts=1) as sandbox:
        endless = [asyncio.create_task(ask_endless(sandbox)) for _ in range(3)]
        await asyncio.sleep(0.5)
        orphans = server.descendants()
        assert len(orphans) >= 9
        server.kill()
        assert await asyncio.gather(*endless) == ["infrastructure"] * 3
    for _ in range(100):
        if not any(Path(f"/proc/{pid}").exists() for pid in orphans):
            break
        await asyncio.sleep(0.1)
    assert [pid for pid in orphans if Path(f"/proc/{pid}").exists()] == []


async def ask_endless(sandbox: Sandbox) -> str:
    try:
        await sandbox.run("while True: pass", timeout=30.0)
    except InfrastructureError:
        return "infrastructure"
    return "WRONG"


async def test_fork_servers_that_ended_before_a_program_came_are_not_its_failure() -> None:
    server = Server()
    url = server.start()
    try:
        async with Sandbox(url) as sandbox:
            await sandbox.run("print(1)")
            assert server.process is not None
            workers = psutil.Process(server.process.pid).children()
            fork_servers = [child for worker in workers for child in worker.children()]
            assert len(fork_servers) == 2 * len(workers) > 2
            for process in fork_servers:
                process.kill()
            answers = await asyncio.gather(*(sandbox.run(f"print({n})", timeout=20.0) for n in range(3)))
            assert [answer.stdout for answer in answers] == ["0\n", "1\n", "2\n"]
    finally:
        server.kill()
