"""Every answer belongs to its request: whatever a worker or a fork server sends, no job gets another one's result."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
import pytest_asyncio

from rewards.sandbox.inside.frames import frame
from rewards.sandbox.inside.outcomes import KNOWN_GOOD
from rewards.sandbox.server import metrics, wire
from rewards.sandbox.server.pool import Pool
from rewards.sandbox.server.server import run_job
from rewards.sandbox.server.slot import ForeignAnswer, Preempted, Slot, SlotSettings, WorkerFailed
from rewards.sandbox.worker import zygote
from rewards.sandbox.worker.execution import Child, End, Limits, ServerHandle, WorkerUnusable
from tests.rewards.sandbox.conftest import HTTP, ServerProcess

Script = Callable[["Worker"], Awaitable[None]]


def job(number: int = 1, sleep: float = 0.0) -> dict[str, Any]:
    """A program that prints its number."""
    code = f"import time\ntime.sleep({sleep})\nprint({number})"
    return run_job(wire.RunCodeRequest.model_validate({"code": code, "language": "python"}), 256)


def answer(number: int) -> list[dict[str, Any]]:
    """What a worker says of `job(number)`."""
    return [{"outcome": "passed", "stdout": f"{number}\n", "time": 0.0, "busy": 0.0}]


class Worker:
    """The worker's end of a slot's socket; a script in this process plays the worker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def hear(self) -> dict[str, Any]:
        """The server's next message."""
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        message: dict[str, Any] = json.loads(await self.reader.readexactly(size))
        return message

    def say(self, **message: Any) -> None:
        """Send a message to the server."""
        self.writer.write(frame(message))

    def finish(self, message: dict[str, Any], number: int) -> None:
        """Answer a job, with its token."""
        self.say(token=message.get("token"), results=answer(number), done=True)


@pytest_asyncio.fixture
async def played(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[Script]]:
    """The scripts of the workers that slots start, in this order; the last one plays all further workers."""
    scripts: list[Script] = []
    tasks: list[asyncio.Task[None]] = []
    started = 0

    async def play(theirs: socket.socket, script: Script) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=theirs)
        worker = Worker(reader, writer)
        await worker.hear()
        worker.say(ready=True, active=[], missing={})
        try:
            await script(worker)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def spawn(_: Slot) -> socket.socket:
        nonlocal started
        ours, theirs = socket.socketpair()
        script = scripts[min(started, len(scripts) - 1)]
        started += 1
        tasks.append(asyncio.create_task(play(theirs, script)))
        return ours

    monkeypatch.setattr(Slot, "_spawn", spawn)
    yield scripts
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def printed(slot: Slot, asked: dict[str, Any]) -> list[str]:
    return [result["stdout"] async for results, _ in slot.run(asked) for result in results]


def number_of(message: dict[str, Any]) -> int:
    return int(message["code"].rpartition("(")[2][:-1])


async def honest(worker: Worker) -> None:
    while True:
        message = await worker.hear()
        if "cancel" in message:
            worker.say(token=message["cancel"], cancelled=True)
        else:
            worker.finish(message, number_of(message))


async def one_behind(worker: Worker) -> None:
    """Answers each job with the answer to the one before."""
    before = await worker.hear()
    worker.finish(before, number_of(before))
    while True:
        message = await worker.hear()
        worker.finish(before, number_of(before))
        before = message


async def twice(worker: Worker) -> None:
    """Sends the first answer a second time, as a worker would whose job was thought to have ended."""
    message = await worker.hear()
    worker.finish(message, number_of(message))
    worker.finish(message, number_of(message))
    await worker.hear()


async def nameless(worker: Worker) -> None:
    message = await worker.hear()
    worker.finish(message, number_of(message))
    await worker.hear()
    worker.say(results=answer(1), done=True)


async def cancelled_late(worker: Worker) -> None:
    """Repeats the answer to a cancellation of the job before."""
    message = await worker.hear()
    worker.finish(message, number_of(message))
    await worker.hear()
    worker.say(token=message.get("token"), cancelled=True)


@pytest.mark.parametrize("script", [one_behind, twice, nameless, cancelled_late])
async def test_an_answer_to_another_job_is_a_failure_and_never_a_result(played: list[Script], script: Script) -> None:
    played.append(script)
    slot = Slot(0, SlotSettings())
    await slot.start()
    assert await printed(slot, job(1)) == ["1\n"]
    with pytest.raises(ForeignAnswer):
        await printed(slot, job(2))
    slot.kill()


@pytest.mark.parametrize("script", [one_behind, twice, nameless, cancelled_late])
async def test_the_pool_runs_the_program_again_counts_it_and_replaces_the_worker(
    played: list[Script], script: Script
) -> None:
    played += [honest, script, honest]  # the last slot is used first
    pool = Pool(1, SlotSettings())
    await pool.start()
    try:
        for number in range(1, 6):
            found = [results async for results, _ in pool.results(job(number))]
            assert found == [answer(number)]
        counters = pool.counters
        assert (counters.foreign, counters.replaced, counters.blamed, counters.failed) == (1, 1, 0, 0)
        assert "sandbox_foreign_answers_total 1\n" in metrics.render(pool)
    finally:
        pool.close()


def dying(deaths: list[int | None]) -> Script:
    """Workers that die on a job: each of `deaths` is the number of results one sends before (None: all). Workers that
    come after answer honestly, and all of them answer the known good program."""
    left = list(deaths)

    async def script(worker: Worker) -> None:
        while True:
            message = await worker.hear()
            count = len(message.get("cases", [0]))
            if message["code"] == KNOWN_GOOD["code"] or not left:
                worker.say(token=message["token"], results=answer(1) * count, done=True)
                continue
            sent = left.pop(0)
            worker.say(
                token=message["token"], results=answer(1) * (count if sent is None else min(sent, count)), done=False
            )
            return

    return script


@pytest.mark.parametrize("cases", [None, 0, 1, 3])
@pytest.mark.parametrize("deaths", [[None], [0, None], [1], [0, 1], [1, 1]])
async def test_a_job_gets_no_more_results_than_it_has_when_workers_die(
    played: list[Script], deaths: list[int | None], cases: int | None
) -> None:
    asked = job(1) if cases is None else {**job(1), "cases": [{"stdin": ""}] * cases, "total_timeout": None}
    played.append(dying(deaths))
    pool = Pool(1, SlotSettings())
    await pool.start()
    try:
        found = [(results, last) async for results, last in pool.results(asked)]
    finally:
        pool.close()
    assert sum(len(results) for results, _ in found) == (1 if cases is None else cases)
    assert [last for _, last in found] == [False] * (len(found) - 1) + [True]


@pytest.mark.parametrize("cases", [0, 3])
async def test_a_job_whose_workers_always_die_is_blamed_after_two(played: list[Script], cases: int) -> None:
    played.append(dying([0] * 9))
    pool = Pool(1, SlotSettings())
    await pool.start()
    try:
        asked = {**job(1), "cases": [{"stdin": ""}] * cases, "total_timeout": None}
        assert [len(results) async for results, _ in pool.results(asked)][-1] == cases
        assert (pool.counters.retried, pool.counters.blamed) == (1, 1)
    finally:
        pool.close()


async def test_half_an_answer_is_a_failure_and_the_next_worker_starts_afresh(played: list[Script]) -> None:
    async def half(worker: Worker) -> None:
        message = await worker.hear()
        whole = frame({"token": message["token"], "results": answer(1), "done": True})
        worker.writer.write(whole[: len(whole) // 2])

    played += [half, honest]
    slot = Slot(0, SlotSettings())
    await slot.start()
    with pytest.raises(WorkerFailed):
        await printed(slot, job(1))
    slot.kill()
    await slot.start()
    assert await printed(slot, job(2)) == ["2\n"]
    slot.kill()


async def test_a_cancellation_that_crosses_the_end_of_its_job_leaves_nothing_behind(played: list[Script]) -> None:
    async def crossing(worker: Worker) -> None:
        message = await worker.hear()
        cancel = await worker.hear()
        worker.finish(message, number_of(message))
        worker.say(token=cancel["cancel"], cancelled=True)
        await honest(worker)

    played.append(crossing)
    slot = Slot(0, SlotSettings())
    await slot.start()
    first = asyncio.create_task(printed(slot, job(1)))
    await asyncio.sleep(0.01)
    slot.cancel()
    assert await first == ["1\n"]
    assert await printed(slot, job(2)) == ["2\n"]
    slot.kill()


async def test_a_slot_takes_no_second_job(played: list[Script]) -> None:
    async def silent(worker: Worker) -> None:
        while True:
            await worker.hear()

    played.append(silent)
    slot = Slot(0, SlotSettings())
    await slot.start()
    first = asyncio.create_task(printed(slot, job(1)))
    await asyncio.sleep(0.01)
    with pytest.raises(WorkerFailed, match="another job"):
        await printed(slot, job(2))
    first.cancel()
    slot.kill()


async def test_a_cancelled_check_of_the_server_itself_frees_its_slot(played: list[Script]) -> None:
    async def waits_for_cancel(worker: Worker) -> None:
        while True:
            message = await worker.hear()
            if "cancel" in message:
                worker.say(token=message["cancel"], cancelled=True)

    played.append(waits_for_cancel)
    pool = Pool(1, SlotSettings())
    await pool.start()
    try:
        for _ in range(2 * len(pool.slots)):
            task = asyncio.create_task(pool._works())
            await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await asyncio.sleep(0.01)
            assert len(pool._lanes._idle) == len(pool.slots)
    finally:
        pool.close()


@asynccontextmanager
async def real_slot() -> AsyncIterator[Slot]:
    slot = Slot(0, SlotSettings())
    await slot.start()
    try:
        yield slot
    finally:
        slot.kill()


@pytest.mark.slow
async def test_cancelling_a_free_slot_does_not_reach_the_next_job() -> None:
    async with real_slot() as slot:
        slot.cancel()
        assert await printed(slot, job(1, sleep=0.05)) == ["1\n"]
        slot.cancel()
        assert await printed(slot, job(2, sleep=0.05)) == ["2\n"]


@pytest.mark.slow
async def test_a_worker_stops_at_a_message_that_its_job_does_not_expect() -> None:
    for message in ({**job(2), "token": "other"}, {"cancel": "other"}):
        async with real_slot() as slot:
            running = asyncio.create_task(printed(slot, job(1, sleep=5.0)))
            await asyncio.sleep(0.3)
            slot._link.transport.write(frame(message))
            with pytest.raises(WorkerFailed, match="another message"):
                await asyncio.wait_for(running, 4)


@pytest.mark.slow
async def test_preempted_and_finished_jobs_in_turn_get_their_own_answers() -> None:
    async with real_slot() as slot:
        for number in range(30):
            running = asyncio.create_task(printed(slot, job(number, sleep=0.005)))
            await asyncio.sleep(0.0006 * number)
            slot.cancel()
            found = (await asyncio.gather(running, return_exceptions=True))[0]
            assert found == [f"{number}\n"] or isinstance(found, Preempted)
            assert await printed(slot, job(100 + number)) == [f"{100 + number}\n"]


@contextmanager
def launched() -> Iterator[tuple[Child, socket.socket, bytes]]:
    """A child, the fork server's end of its link and the token of its launch."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        child = Child(ServerHandle(ours), {"mode": "script"}, Limits(256, 2), 1 << 10)
        message, descriptors, _, _ = socket.recv_fds(theirs, zygote.MESSAGE_LIMIT, 8)
        for descriptor in descriptors:
            os.close(descriptor)
        try:
            yield child, theirs, zygote.LAUNCH.unpack_from(message)[0]
        finally:
            child.close()


def test_a_childs_end_is_reported_with_the_token_of_its_launch() -> None:
    with launched() as (child, link, token):
        link.send(zygote.REPORT.pack(token, zygote.ENDED, 0, zygote.NOT_KILLED, 0.5))
        child._ended()
        assert child.report == End(0, zygote.NOT_KILLED, 0.5)


@pytest.mark.parametrize("ask", [Child._ended, Child.time_waited])
@pytest.mark.parametrize("kind", [zygote.ENDED, zygote.WAITING])
def test_another_childs_report_breaks_the_slot(ask: Callable[[Child], object], kind: bytes) -> None:
    with launched() as (_, _, before), launched() as (child, link, token):
        assert token != before
        link.send(zygote.REPORT.pack(before, kind, 0, zygote.NOT_KILLED, 0.5))
        with pytest.raises(WorkerUnusable):
            ask(child)
        assert child.report is None


@pytest.mark.slow
def test_the_lines_of_a_batch_repeat_the_tokens_of_its_programs(server: ServerProcess) -> None:
    programs = [
        {"code": "print(1)", "token": "one"},
        {"code": "print(2)"},
        {"code": "print(3)", "language": "ruby", "token": "three"},
    ]
    text = HTTP.post(server.url + "/run_batch", json={"programs": programs}).text
    lines = [json.loads(line) for line in text.split("\n") if line]
    # A slow program has two lines: its result, then that it is done.
    assert {(line["index"], line.get("token")) for line in lines} == {(0, "one"), (1, None), (2, "three")}
    assert [line["index"] for line in lines] == sorted(line["index"] for line in lines)


@pytest.mark.slow
def test_a_program_can_not_see_the_token_of_its_job(server: ServerProcess) -> None:
    # The mark is in the program's memory as well, but there no "b" follows.
    code = (
        "import os\nfound = []\nfor line in open('/proc/self/maps'):\n"
        "    start, end = (int(part, 16) for part in line.split()[0].split('-'))\n"
        "    if 'r' in line.split()[1] and '[v' not in line:\n"
        "        memory = os.open('/proc/self/mem', os.O_RDONLY)\n"
        "        parts = os.pread(memory, end - start, start).split(b'token-of-the-')\n"
        "        found += [part[:1] for part in parts[1:]]\n"
        "        os.close(memory)\nprint(len(found) > 0, b'b' in found)"
    )
    body = {"programs": [{"code": code, "token": "token-of-the-batch"}]}
    text = HTTP.post(server.url + "/run_batch", json=body).text
    assert '"stdout":"True False\\n"' in text, text
