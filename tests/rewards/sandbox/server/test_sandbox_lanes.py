"""Scheduling laws of the lanes, on slots without processes and with a clock that the test controls."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from rewards.sandbox.server import lanes
from rewards.sandbox.server.lanes import Lanes, Turn, spare_slots


class Bench:
    """Lanes over fake slots; a preempted program ends its turn at once, as in the pool."""

    def __init__(self, short: int) -> None:
        self.preempted: list[Any] = []
        self.lanes = Lanes(short, self.preempted.append)
        for number in range(short + spare_slots(short)):
            self.lanes.add(f"slot {number}")  # type: ignore[arg-type]

    def running(self, *, long: bool) -> int:
        return len(self.lanes._running[long])


@pytest.fixture(autouse=True)
def short_quantum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "QUANTUM", 0.01)


@pytest.fixture
def no_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """No program reaches `MOMENT`, however slowly this machine runs the test."""
    monkeypatch.setattr(lanes, "time", SimpleNamespace(monotonic=lambda: 1000.0))


async def overdue(bench: Bench) -> None:
    """Wait until every running program has run for a quantum."""
    await asyncio.sleep(0.05)
    assert all(turn.overdue(lanes.QUANTUM) for turn in bench.lanes._running[False])


async def taken(bench: Bench, *, long: bool = False) -> Turn:
    return await asyncio.wait_for(bench.lanes.acquire(long=long), 5)


async def waits(bench: Bench, *, long: bool = False) -> asyncio.Task[Turn]:
    task = asyncio.create_task(bench.lanes.acquire(long=long))
    await asyncio.sleep(0)
    return task


@pytest.mark.usefixtures("no_time_passes")
@pytest.mark.parametrize("short", [1, 2, 4, 7])
async def test_no_more_short_programs_run_than_there_are_workers(short: int) -> None:
    bench = Bench(short)
    for _ in range(short):
        await taken(bench)
    assert not (await waits(bench)).done()


async def test_a_long_program_makes_room_without_moving() -> None:
    bench = Bench(1)
    first = await taken(bench)
    second = await waits(bench)
    await overdue(bench)
    await asyncio.sleep(0)
    assert first.long
    assert second.done()
    assert bench.preempted == []


async def test_it_makes_room_after_a_moment_and_is_preempted_only_after_a_quantum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lanes, "QUANTUM", 60.0)
    bench = Bench(1)
    first = await taken(bench)
    second = await asyncio.wait_for(bench.lanes.acquire(long=False), 5)
    assert (first.long, second.long) == (True, False)
    third = await waits(bench)
    await asyncio.sleep(4 * lanes.MOMENT)
    assert not third.done()
    assert bench.preempted == []


async def test_the_next_long_program_is_preempted_and_restarts_in_its_turn() -> None:
    bench = Bench(1)
    first, second = await taken(bench), None
    await overdue(bench)
    second = await taken(bench)
    await overdue(bench)
    assert bench.preempted == []  # nobody waits: it may go on
    third = await waits(bench)
    assert bench.preempted == [second.slot]
    bench.lanes.finish(second)
    assert (await third).slot == second.slot
    again = await waits(bench, long=True)
    bench.lanes.finish(third.result())
    await asyncio.sleep(0)
    assert not again.done()  # one slot is kept for the next short one
    bench.lanes.finish(first)
    assert (await again).long
    assert bench.lanes._idle


@pytest.mark.usefixtures("no_time_passes")
@pytest.mark.parametrize("short", [1, 2, 4])
async def test_a_slot_is_always_free_for_a_short_program_within_a_quantum(short: int) -> None:
    bench = Bench(short)
    for _ in range(short + spare_slots(short) - 1):
        await taken(bench, long=True)
    assert not (await waits(bench, long=True)).done()
    await taken(bench)


@pytest.mark.usefixtures("no_time_passes")
async def test_long_programs_are_not_starved_by_short_ones() -> None:
    bench = Bench(2)
    held = [await taken(bench), await taken(bench)]
    long, short = await waits(bench, long=True), await waits(bench)
    await asyncio.sleep(0)
    assert long.done()
    assert not short.done()
    bench.lanes.finish(held[0])
    assert (await short).slot == held[0].slot


@pytest.mark.usefixtures("no_time_passes")
async def test_a_caller_that_disconnects_frees_its_slot() -> None:
    bench = Bench(1)
    held = await taken(bench)
    gone = await waits(bench)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    bench.lanes.finish(held)
    await taken(bench)
    assert bench.running(long=False) == 1


async def test_a_program_is_not_preempted_before_its_caller_can_send_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(lanes, "time", SimpleNamespace(monotonic=lambda: now))
    bench = Bench(1)
    held = [await taken(bench), await taken(bench, long=True)]
    first, second = await waits(bench), await waits(bench)
    bench.lanes.finish(held[0])
    assert bench.running(long=False) == 1
    assert not first.done()
    now += 10 * lanes.QUANTUM  # the server is suspended before the caller of `first` runs
    bench.lanes._dispatch()
    assert bench.preempted == []
    turn = await first
    assert turn.began == now
    now += lanes.QUANTUM
    bench.lanes._dispatch()
    assert bench.preempted == [turn.slot]
    second.cancel()


@pytest.mark.usefixtures("no_time_passes")
async def test_a_slot_that_is_replaced_comes_back() -> None:
    bench = Bench(1)
    turns = [await taken(bench), await taken(bench, long=True)]
    for turn in turns:
        bench.lanes.forget(turn)
    waiting = await waits(bench)
    assert not waiting.done()
    fresh: Any = "fresh"
    bench.lanes.add(fresh)
    assert (await waiting).slot == fresh
