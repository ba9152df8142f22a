"""Which rank keeps the others waiting: the ranks of a process group call the roll through its store.

A rank that hangs leaves the others in a collective operation until the group's time limit, and then neither gloo nor
NCCL says which one it was. Here a thread of each process records in the store that the process runs, how many passes
and micro-batches it has begun, and where it is. A process that waits too long, or fails in an operation of a group,
reads the records of all ranks. Covered: updates, log-probabilities, values and checkpoints, not transfers of weights to
engines.
"""

import contextlib
import functools
import json
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from types import FrameType, TracebackType
from typing import Any

import torch.distributed
from torch.distributed import Store
from torch.distributed.distributed_c10d import _get_default_store

from workers.ranks import WORDS, reports_file

PATIENCE = 0.8
"""Share of the time limit after which a pass that has not moved calls the roll: at the limit NCCL ends its process."""
RECORDS = 40
"""Records that a process writes within the time limit."""
LOOK_SECONDS, LOOKS = 10.0, 3
"""Least time in which a process that runs writes a record, and how often it may fail to on a busy machine."""
LONGEST_SECONDS = 10.0
"""Between two records."""
STORE_SECONDS = 20.0
"""How long the store, a thread of its process, may take for an answer."""
_STILL = "it hangs or has exited"
_OF_A_GROUP = re.compile(r"gloo|nccl", re.IGNORECASE)


class RankHangsError(RuntimeError):
    """An operation of a process group failed because a rank did not take part; the message names the rank."""


@dataclass(frozen=True)
class RankRecord:
    """Where a rank is.

    beat: grows while its process runs. begun: passes and micro-batches so far, in lockstep over the ranks. doing: the
    pass; empty between passes. waits: whether it is in, or failed in, an operation of a group. place: function, file
    and line. process: number and host.
    """

    beat: int
    begun: int
    doing: str
    waits: bool
    place: str
    process: str


def missing_ranks(before: Sequence[RankRecord | None], now: Sequence[RankRecord | None]) -> dict[int, str]:
    """The ranks for which the others wait, each with what it does; empty if none differs from the others.

    before, now: records of all ranks at two times; None where a rank has written none.
    """
    silent = silent_ranks(before, now)
    if silent:
        return {rank: f"{_STILL}, and was last {_at(now[rank])}" for rank in silent}
    records = [record for record in now if record is not None]
    least = min(record.begun for record in records)
    if least < max(record.begun for record in records):
        return {rank: "it is behind, " + _at(record) for rank, record in enumerate(records) if record.begun == least}
    absent = {rank: "it is " + _at(record) for rank, record in enumerate(records) if not record.waits}
    return absent if len(absent) < len(records) else {}


def silent_ranks(before: Sequence[RankRecord | None], now: Sequence[RankRecord | None]) -> list[int]:
    """The ranks that have written no record between these two times, or none at all."""
    return [rank for rank, (old, new) in enumerate(zip(before, now, strict=True)) if new is None or old == new]


def _at(record: RankRecord | None) -> str:
    if record is None:
        return "not heard of"
    return f"{'in ' + record.doing if record.doing else 'between passes'} at {record.place} ({record.process})"


def place_of(frame: FrameType | None) -> tuple[str, bool]:
    """The innermost place of a stack outside torch, and whether the stack ends in torch.distributed."""
    frames = []
    while frame is not None:
        frames.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname))
        frame = frame.f_back
    waits = any("/torch/distributed/" in file for file, *_ in frames[:3])
    outside = [each for each in frames if "/torch/" not in each[0]] or frames
    if not outside:
        return "no place", waits
    file, line, function = outside[0]
    return f"{function}, {'/'.join(file.split('/')[-2:])}:{line}", waits


def innermost(trace: TracebackType | None) -> FrameType | None:
    """The frame in which an error was raised."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame if trace is not None else None


class RollCall:
    """A rank's part in the roll call of its process group.

    store: this object's alone, through which the ranks find each other. limit_seconds: how long an operation of the
    group waits.
    """

    def __init__(self, store: Store, rank: int, ranks: int, limit_seconds: float):
        store.set_timeout(timedelta(seconds=STORE_SECONDS))
        self._store, self._rank, self._ranks, self._limit = store, rank, ranks, limit_seconds
        self._beat = self._begun = 0
        self._doing, self._failed_at, self._thread = "", "", threading.get_ident()
        self._moved_at = time.monotonic()
        self._asked, self._answered = threading.Event(), threading.Event()
        self._report = ""
        self._write()
        threading.Thread(target=self._run, daemon=True).start()

    def move(self) -> None:
        """Count a micro-batch, or a pass."""
        self._begun += 1
        self._moved_at, self._report = time.monotonic(), ""

    @contextlib.contextmanager
    def during(self, doing: str) -> Iterator[None]:
        """Count the block as a pass, unless it is part of one.

        Raises:
            RankHangsError: in place of the error of a process group.
        """
        if self._doing:
            yield
            return
        self._doing, self._thread = doing, threading.get_ident()
        self.move()
        try:
            yield
        except RuntimeError as error:
            if not (isinstance(error, torch.distributed.DistError) or _OF_A_GROUP.search(str(error))):
                raise
            self._failed_at, _ = place_of(innermost(error.__traceback__))
            raise RankHangsError(f"{self._called()}. {type(error).__name__}: {error}") from error
        finally:
            self._doing = self._failed_at = ""

    @property
    def _every(self) -> float:
        return min(self._limit / RECORDS, LONGEST_SECONDS)

    @property
    def _look(self) -> float:
        return max(3 * self._every, LOOK_SECONDS)

    def _called(self) -> str:
        """The report, made now unless there is one."""
        if not self._report:
            self._answered.clear()
            self._asked.set()
            self._answered.wait(self._every + (LOOKS + 1) * self._look + 2 * STORE_SECONDS)
        return self._report or self._lost

    @property
    def _lost(self) -> str:
        return f"rank 0 of {self._ranks}, whose process has the records of all, {WORDS}: {_STILL}"

    def _run(self) -> None:
        """Write this rank's records, and call the roll when it is asked for or overdue."""
        while True:
            asked = self._asked.wait(self._every)
            late = bool(self._doing) and time.monotonic() - self._moved_at > PATIENCE * self._limit
            try:
                self._write()
                found = self._call() if asked or (late and not self._report) else ""
            except RuntimeError:  # the store ends with its process, also when a run does
                found = self._lost if asked or late else ""
            if found:
                self._report = found
                _tell(found)
                self._asked.clear()
                self._answered.set()

    def _write(self) -> None:
        self._beat += 1
        place, waits = place_of(sys._current_frames().get(self._thread))
        process = f"process {os.getpid()} on {socket.gethostname()}"
        at = self._failed_at
        record = RankRecord(self._beat, self._begun, self._doing, waits or bool(at), at or place, process)
        self._store.set(str(self._rank), json.dumps(asdict(record)))

    def _read(self) -> list[RankRecord | None]:
        """The records of all ranks; None for one without. RuntimeError if the store does not answer."""
        self._store.get(str(self._rank))  # has a time limit, which `check` lacks
        keys = list(map(str, range(self._ranks)))
        return [RankRecord(**json.loads(self._store.get(key))) if self._store.check([key]) else None for key in keys]

    def _call(self) -> str:
        before = self._read()
        for _ in range(LOOKS):
            time.sleep(self._look)
            self._write()
            now = self._read()
            if not silent_ranks(before, now):
                break
        missing = missing_ranks(before, now)
        if not missing:
            places = "; ".join(f"rank {rank}: {_at(record)}" for rank, record in enumerate(now))
            return f"no rank {WORDS} more than another: all wait. {places}"
        named = "; ".join(f"rank {rank} of {self._ranks} {WORDS}: {why}" for rank, why in missing.items())
        return f"{named}. They wait {self._limit:g} s at most (actor_rollout_ref.nccl_timeout)"


def _tell(report: str) -> None:
    """Write a report to the log of this process and to the run's directory: NCCL ends the process soon after."""
    print(report, file=sys.stderr, flush=True)
    if (file := reports_file()) is not None:
        with contextlib.suppress(OSError), open(file, "a") as reports:
            reports.write(f"{report}\n")


_own: RollCall | None = None


def begin(limit_seconds: float) -> None:
    """Join the roll call of the default process group, once per process."""
    global _own
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    if _own is None and ranks > 1:
        groups: Any = _get_default_store()  # torch's type of it lacks `clone`
        store = torch.distributed.PrefixStore("skillcredit/roll_call", groups.clone())
        _own = RollCall(store, rank, ranks, limit_seconds)


def move() -> None:
    """Count a micro-batch of this process."""
    if _own is not None:
        _own.move()


def as_pass(method: Callable[..., Any]) -> Callable[..., Any]:
    """A worker's method, counted as a pass; verl's marks on it stay."""

    @functools.wraps(method)
    def counted(self: Any, *arguments: Any, **options: Any) -> Any:
        with _own.during(method.__name__) if _own is not None else contextlib.nullcontext():
            return method(self, *arguments, **options)

    return counted
