"""A rank that hangs is named by those that wait for it: by its record, and in three gloo ranks that really wait."""

import json
import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch import distributed

from workers.ranks import WORDS
from workers.ranks.roll_call import RankHangsError, RankRecord, RollCall, as_pass, missing_ranks

RANKS, HUNG = 3, 1


def _record(beat: int = 1, begun: int = 4, waits: bool = True, doing: str = "train_mini_batch") -> RankRecord:
    return RankRecord(beat, begun, doing, waits, "forward, models/layer.py:7", "process 12 on node-3")


WAITING = [_record(beat=8)] * RANKS


@pytest.mark.parametrize(
    ("second", "why"),
    [
        (_record(beat=1), "it hangs or has exited, and was last in train_mini_batch at forward, models/layer.py:7"),
        (None, "it hangs or has exited, and was last not heard of"),
        (_record(beat=2, begun=3), "it is behind, in train_mini_batch at forward, models/layer.py:7"),
        (_record(beat=2, begun=3, doing=""), "it is behind, between passes at forward"),
        (
            _record(beat=2, waits=False),
            "it is in train_mini_batch at forward, models/layer.py:7 (process 12 on node-3)",
        ),
    ],
    ids=["stopped", "never came", "behind", "behind, idle", "elsewhere"],
)
def test_the_rank_that_differs_is_the_missing_one(second: RankRecord | None, why: str) -> None:
    found = missing_ranks([_record()] * RANKS, [WAITING[0], second, WAITING[2]])
    assert list(found) == [HUNG]
    assert found[HUNG].startswith(why)


def test_where_all_wait_no_rank_is_blamed() -> None:
    assert missing_ranks([_record()] * RANKS, WAITING) == {}
    nobody_waits = [_record(beat=8, waits=False)] * RANKS
    assert missing_ranks([_record()] * RANKS, nobody_waits) == {}


def test_verls_marks_on_a_method_stay_and_without_a_group_nothing_is_counted() -> None:
    from verl.single_controller.base.decorator import MAGIC_ATTR
    from verl.workers.engine_workers import TrainingWorker

    from workers.actor import CpuReadyTrainingWorker

    for name in ("train_mini_batch", "infer_batch", "save_checkpoint", "load_checkpoint"):
        own, verls = getattr(CpuReadyTrainingWorker, name), getattr(TrainingWorker, name)
        assert own is not verls
        assert vars(own)[MAGIC_ATTR] == vars(verls)[MAGIC_ATTR]
    assert as_pass(lambda self, number: number + 1)(None, 2) == 3


def _in_ranks(target: Callable[..., None], folder: Path) -> list[str]:
    """What the ranks wrote, each in its own file; all processes have ended."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{reserved.getsockname()[1]}"
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=target, args=(rank, address, str(folder))) for rank in range(RANKS)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(400)
        process.kill()
    return [file.read_text() if (file := folder / str(rank)).exists() else "" for rank in range(RANKS)]


def _joined(rank: int, address: str, folder: str) -> Callable[[str, float], RollCall]:
    """Joins a group of all ranks, and returns what makes a roll call with this name and time limit."""
    long = timedelta(seconds=300)
    distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=RANKS, timeout=long)
    Path(folder, f"{rank}.pid").write_text(str(os.getpid()))
    store: Any = distributed.distributed_c10d._get_default_store()
    return lambda name, limit: RollCall(distributed.PrefixStore(name, store.clone()), rank, RANKS, limit)


def _sum(group: Any) -> None:
    distributed.all_reduce(torch.ones(1), group=group)


def hang_until_others_wrote() -> None:
    """Ends when `_wrote` was called on them."""
    others = [f"wrote {rank}" for rank in range(RANKS) if rank != HUNG]
    distributed.distributed_c10d._get_default_store().wait(others, timedelta(seconds=400))


def _wrote(rank: int) -> None:
    distributed.distributed_c10d._get_default_store().set(f"wrote {rank}", "")


LIMIT = 20.0


def _waits_for_one_that(hangs: Callable[[], None], name: str, rank: int, called: RollCall) -> str:
    """The error of a rank that waits for one that hangs; empty for the latter."""
    group = distributed.new_group(backend="gloo", timeout=timedelta(seconds=LIMIT))
    try:
        with called.during(name):
            _sum(group)
            called.move()
            if rank == HUNG:
                hangs()
            else:
                _sum(group)
    except RankHangsError as error:
        return str(error)
    return ""


def _hangs_and_falls_behind(rank: int, address: str, folder: str) -> None:
    roll_call_of = _joined(rank, address, folder)
    store = distributed.distributed_c10d._get_default_store()
    hung = _waits_for_one_that(hang_until_others_wrote, "update", rank, roll_call_of("slow", LIMIT))
    _wrote(rank)
    distributed.barrier()
    store.delete_key(f"wrote {rank}")
    called, group = roll_call_of("late", LIMIT), distributed.new_group(timeout=timedelta(seconds=LIMIT))
    distributed.barrier()
    late = ""
    try:
        if rank == HUNG:
            hang_until_others_wrote()
        else:
            with called.during("log-probabilities"):
                _sum(group)
    except RankHangsError as error:
        late = str(error)
    _wrote(rank)
    own = ""
    try:
        with called.during("save"):
            raise RuntimeError("the disk is full")
    except RuntimeError as error:
        own = f"{type(error).__name__}: {error}"
    Path(folder, str(rank)).write_text(json.dumps([hung, late, own]))
    distributed.barrier()


@pytest.mark.slow
def test_a_rank_that_hangs_in_a_pass_or_does_not_come_to_it_is_named(tmp_path: Path) -> None:
    found = [json.loads(text) for text in _in_ranks(_hangs_and_falls_behind, tmp_path)]
    assert [own for *_, own in found] == ["RuntimeError: the disk is full"] * RANKS
    assert found[HUNG][:2] == ["", ""]
    process = (tmp_path / f"{HUNG}.pid").read_text()
    for rank in {*range(RANKS)} - {HUNG}:
        hung, late, _ = found[rank]
        assert hung.startswith(f"rank {HUNG} of {RANKS} {WORDS}: it is in update at hang_until_others_wrote, ")
        assert f"(process {process} on " in hung
        assert "They wait 20 s at most (actor_rollout_ref.nccl_timeout). " in hung
        assert late.startswith(f"rank {HUNG} of {RANKS} {WORDS}: it is behind, between passes at ")
        assert hung.count(WORDS) == late.count(WORDS) == 1


def _is_stopped(rank: int, address: str, folder: str) -> None:
    """Rank HUNG is stopped by a signal, then rank 0, whose process has the store."""
    roll_call_of = _joined(rank, address, folder)

    def stop() -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    called = roll_call_of("stopped", LIMIT)
    first = _waits_for_one_that(stop, "update", rank, called)
    _wrote(rank)
    if rank == RANKS - 1:
        hang_until_others_wrote()  # once it runs again, rank 0 would find that all wait
        psutil.Process(int(Path(folder, f"{HUNG}.pid").read_text())).resume()
    distributed.barrier()
    group = distributed.new_group(timeout=timedelta(seconds=LIMIT))
    second = ""
    try:
        with called.during("update"):
            _sum(group)
            if rank == 0:
                stop()
            else:
                _sum(group)
    except RankHangsError as error:
        second = str(error)
    Path(folder, str(rank)).write_text(json.dumps([first, second]))
    if rank == RANKS - 1:
        while not Path(folder, "1").exists():
            time.sleep(0.1)
        psutil.Process(int(Path(folder, "0.pid").read_text())).resume()


@pytest.mark.slow
def test_a_process_that_stands_still_is_named_even_that_of_rank_0(tmp_path: Path) -> None:
    found = [json.loads(text) for text in _in_ranks(_is_stopped, tmp_path)]
    for rank in {*range(RANKS)} - {HUNG}:
        assert found[rank][0].startswith(f"rank {HUNG} of {RANKS} {WORDS}: it hangs or has exited, and was")
    for rank in (1, 2):
        assert found[rank][1].startswith(f"rank 0 of {RANKS}, whose process has the records of all, {WORDS}")
