"""When a connection is closed: decided on a fake clock, without a socket."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from rewards.sandbox.server import listener
from rewards.sandbox.server.listener import BoundedConnection


@dataclass
class Transport:
    """Records what a connection does to its transport."""

    waiting: int = 0
    closing: bool = False
    aborted: bool = False
    written: list[bytes] = field(default_factory=list)

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.aborted = True

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def get_write_buffer_size(self) -> int:
        return self.waiting


@dataclass
class Cycle:
    """A request in progress or answered."""

    response_complete: bool


def connection(transport: Transport, *, since: float, cycle: Cycle | None = None) -> Any:
    made = BoundedConnection.__new__(BoundedConnection)
    made.transport, made.cycle = transport, cycle
    made._since, made._head_bytes, made._stalled, made._closing_since = since, 0, (0, 0.0), 0.0
    return made


@pytest.mark.parametrize(("passed", "ended"), [(listener.HEAD_SECONDS - 1, False), (listener.HEAD_SECONDS + 1, True)])
def test_a_head_that_does_not_end_is_408(passed: float, ended: bool) -> None:
    transport = Transport()
    connection(transport, since=100.0).look(100.0 + passed)
    assert (transport.closing, bool(transport.written)) == (ended, ended)
    assert all(data.startswith(b"HTTP/1.1 408 ") for data in transport.written)


def test_nothing_is_written_after_an_answer() -> None:
    transport = Transport()
    connection(transport, since=100.0, cycle=Cycle(True)).look(200.0)
    assert (transport.closing, transport.written) == (True, [])


def test_a_request_in_progress_is_not_closed() -> None:
    transport = Transport()
    connection(transport, since=0.0, cycle=Cycle(False)).look(1e9)
    assert (transport.closing, transport.aborted) == (False, False)


@pytest.mark.parametrize(
    ("waiting", "aborted"),
    [
        ([500] * 70, True),
        ([500] * 55, False),
        ([500] * 50 + [400] * 50, False),
        ([500] * 50 + [0] + [500] * 50, False),
        ([0] * 200, False),
    ],
)
def test_an_answer_that_is_never_read_is_aborted(waiting: list[int], aborted: bool) -> None:
    transport = Transport()
    made = connection(transport, since=0.0, cycle=Cycle(False))
    for second, size in enumerate(waiting):
        transport.waiting = size
        made.look(1000.0 + second)
    assert transport.aborted is aborted


def test_a_closed_connection_with_unread_data_is_aborted() -> None:
    transport = Transport(waiting=10, closing=True)
    made = connection(transport, since=0.0)
    made.look(1000.0)
    assert not transport.aborted
    made.look(1000.0 + listener.CLOSING_SECONDS + 1)
    assert transport.aborted
