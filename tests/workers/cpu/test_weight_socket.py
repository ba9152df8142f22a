"""Weights over a local socket: the same bytes at every receiver, and an end with a message when one side fails."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from verl.checkpoint_engine.base import CheckpointEngineRegistry

from workers.cpu import weight_socket
from workers.cpu.weight_socket import BACKEND, SocketCheckpointEngine, WeightTransferError

BUCKET = 1 << 10
pytestmark = pytest.mark.asyncio


def weights() -> dict[str, Tensor]:
    """Of all kinds; the first is larger than a bucket of verl's and than what a socket holds, the last two tiny."""
    drawn = torch.Generator().manual_seed(0)
    large = torch.randn(513, 1025, generator=drawn)
    return {
        "float32": large,
        "bfloat16": large[:7].bfloat16(),
        "float16": large[:3].half(),
        "transposed": large[:4].T,
        "int64": torch.arange(5),
        "bool": torch.tensor([True, False]),
        "nan": torch.tensor([float("nan"), -0.0, float("inf")]),
        "none": torch.empty(0, 3),
        "scalar": torch.tensor(3.0),
    }


def engines(receivers: int, ranks: int = 1) -> tuple[list[SocketCheckpointEngine], list[SocketCheckpointEngine]]:
    """The trainer's ranks and the receivers, connected as verl's manager does it."""
    made: Any = CheckpointEngineRegistry.get(BACKEND)
    senders = [made(bucket_size=BUCKET, dtype="bfloat16", is_master=rank == 0) for rank in range(ranks)]
    others = [made(bucket_size=BUCKET) for _ in range(receivers)]
    metadata = [one.prepare() for one in (*senders, *others)]
    for group, options in zip((senders, others), made.build_topology(ranks, receivers, metadata), strict=True):
        for place, one in enumerate(group):
            one.init_process_group(**{key: values[place] for key, values in options.items()})
    return senders, others


async def received(engine: SocketCheckpointEngine) -> dict[str, Tensor]:
    return {name: values async for name, values in engine.receive_weights(global_steps=1)}


async def transfer(
    senders: list[SocketCheckpointEngine], receivers: list[SocketCheckpointEngine], given: Any = None
) -> list[Any]:
    """The results of all, or their errors; fails if one waits for ever."""
    sending = [one.send_weights(iter(weights().items()) if given is None else given, 1) for one in senders]
    done = asyncio.gather(*sending, *map(received, receivers), return_exceptions=True)
    try:
        return await asyncio.wait_for(done, 20)
    finally:
        for one in (*senders, *receivers):
            one.finalize()


@pytest.mark.parametrize("receivers", [1, 3])
async def test_every_receiver_gets_the_same_bytes(receivers: int):
    _, *results = await transfer(*engines(receivers))
    assert len(results) == receivers
    for result in results:
        assert list(result) == list(weights())
        for name, values in weights().items():
            assert (result[name].dtype, result[name].shape) == (values.dtype, values.shape)
            ours, theirs = (one.contiguous().view(-1).view(torch.uint8) for one in (result[name], values))
            assert torch.equal(ours, theirs)


async def test_a_second_transfer_follows_the_first():
    senders, receivers = engines(1)
    for step in (1, 2):
        for group, options in zip(
            (senders, receivers),
            SocketCheckpointEngine.build_topology(1, 1, [senders[0].prepare(), receivers[0].prepare()]),
            strict=True,
        ):
            group[0].init_process_group(**{key: values[0] for key, values in options.items()})
        _, result = await transfer(senders, receivers, iter([("w", torch.tensor([step]))]))
        assert result["w"].item() == step


async def test_other_ranks_make_their_part_of_each_weight():
    senders, receivers = engines(1, ranks=2)
    made: list[str] = []

    def weight(rank: int) -> Iterator[tuple[str, Tensor]]:
        for name in "ab":
            made.append(f"{rank}{name}")
            yield name, torch.ones(2)

    sending = [one.send_weights(weight(rank), 1) for rank, one in enumerate(senders)]
    *_, result = await asyncio.gather(*sending, received(receivers[0]))
    assert sorted(made) == ["0a", "0b", "1a", "1b"]
    assert result is not None
    assert list(result) == ["a", "b"]
    assert senders[1].sent() is None


async def test_what_was_sent_is_noted_with_its_step():
    senders, receivers = engines(1)
    await transfer(senders, receivers, iter([("a", torch.ones(2))]))
    sent = senders[0].sent()
    assert sent is not None
    assert (sent.step, sent.dtype, list(sent.digests)) == (1, torch.bfloat16, ["a"])


async def test_a_sender_that_fails_ends_the_receivers_with_its_message():
    def failing() -> Iterator[tuple[str, Tensor]]:
        yield "a", torch.ones(2)
        raise ValueError("no such layer")

    sender, *others = await transfer(*engines(2), failing())
    assert isinstance(sender, ValueError)
    for other in others:
        assert isinstance(other, WeightTransferError)
        assert str(other) == "the trainer could not send its weights: ValueError: no such layer"


async def test_a_sender_that_dies_ends_the_receivers():
    senders, (receiver,) = engines(1)
    waiting = asyncio.create_task(received(receiver))
    (connection,) = await senders[0]._connections()
    await asyncio.get_running_loop().sock_sendall(connection, b"\0\0")
    connection.close()
    with pytest.raises(WeightTransferError, match="process ended before it had sent all"):
        await asyncio.wait_for(waiting, 20)


async def test_a_receiver_that_leaves_ends_the_sender():
    senders, receivers = engines(2)

    async def leaves() -> None:
        stream = receivers[1].receive_weights()
        await anext(stream)
        await stream.aclose()

    sending = senders[0].send_weights(((f"w{each}", torch.ones(1 << 20)) for each in range(4)), 1)
    results = await asyncio.wait_for(
        asyncio.gather(sending, received(receivers[0]), leaves(), return_exceptions=True), 20
    )
    assert isinstance(results[0], WeightTransferError)
    assert "an engine left while it was sent the weights of step 1" in str(results[0])
    assert isinstance(results[1], WeightTransferError)


async def test_a_receiver_that_never_comes_is_reported(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("workers.cpu.weight_socket.CONNECTION_SECONDS", 0.1)
    senders, _ = engines(2)
    with pytest.raises(WeightTransferError, match="0 of 2 engines asked for weights within"):
        await senders[0].send_weights(iter(weights().items()), 1)


async def test_a_receiver_without_a_sender_on_its_machine_is_reported():
    senders, (receiver,) = engines(1)
    senders[0].finalize()
    with pytest.raises(WeightTransferError, match="needs engines and trainer on one machine"):
        await received(receiver)


async def test_nothing_is_left_behind():
    senders, receivers = engines(2)
    address = senders[0].address
    assert _is_open(address)
    await transfer(senders, receivers)
    assert not _is_open(address)


def _is_open(address: str) -> bool:
    """Whether a process has this socket; Linux marks a name without a file by @."""
    return f"@{address}" in Path("/proc/net/unix").read_text()


@pytest.mark.slow
async def test_another_users_process_gets_nothing(monkeypatch: pytest.MonkeyPatch):
    senders, receivers = engines(1)
    monkeypatch.setattr(weight_socket, "CONNECTION_SECONDS", 0.5)
    monkeypatch.setattr(os, "getuid", lambda: 1 + os.geteuid())
    sending, other = await transfer(senders, receivers)
    assert isinstance(sending, WeightTransferError)
    assert "0 of 1 engines asked for weights" in str(sending)
    assert isinstance(other, WeightTransferError)
