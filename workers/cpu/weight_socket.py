"""verl's checkpoint engine for engines apart from the trainer, on a machine without an accelerator: a local socket.

verl's own engines need NCCL, or other hardware. Here rank 0 of the trainer sends each weight to all engines, one after
the other, as the bytes it has. The socket has no file: nothing is left behind, however the run ends.
"""

import asyncio
import json
import os
import socket
import struct
from collections.abc import AsyncGenerator, Iterable
from contextlib import suppress
from typing import Any
from uuid import uuid4

import torch
from torch import Tensor
from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry
from verl.workers.rollout.utils import ensure_async_iterator

from workers.digests.weights import SentWeights

BACKEND = "local_socket"
"""What ``checkpoint_engine.backend`` calls it."""
CONNECTION_SECONDS = 600.0
_CREDENTIALS = struct.Struct("3i")  # process, user, group


class WeightTransferError(RuntimeError):
    """Weights did not arrive, or not all."""


@CheckpointEngineRegistry.register(BACKEND)
class SocketCheckpointEngine(CheckpointEngine):
    """Sends each weight as it is to every engine of this machine; an error on one side ends the transfer on both.

    bucket_size: of verl's other engines; here a weight is sent by itself, whatever its size. dtype: in which the
    engines keep weights, for the digests of what was sent. is_master: whether this is rank 0 of the trainer.
    """

    def __init__(self, bucket_size: int, dtype: str = "float32", is_master: bool = False):
        self.is_master = is_master
        self.dtype: torch.dtype = getattr(torch, dtype)
        self.address, self.receivers = "", 0
        self._listening: socket.socket | None = None
        self._sent: SentWeights | None = None

    # verl's table of names and verl's base class declare other types than they are used with.
    def prepare(self) -> str | None:  # type: ignore[override]
        """Listen on rank 0; the address of its socket, or None."""
        if not self.is_master:
            return None
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.setblocking(False)
        address = f"skillcredit-weights-{uuid4()}"
        self._listening.bind("\0" + address)  # Linux's abstract names: no file
        self._listening.listen()
        return address

    @classmethod
    def build_topology(  # type: ignore[override]
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[str | None]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """The arguments of `init_process_group` on each rank: the same on all."""

        def of(ranks: int) -> dict[str, list[Any]]:
            return {"address": [metadata[0]] * ranks, "receivers": [rollout_world_size] * ranks}

        return of(actor_wg_world_size), of(rollout_world_size)

    def init_process_group(self, address: str = "", receivers: int = 0) -> None:  # type: ignore[override]
        """Note where rank 0 listens, and for how many."""
        self.address, self.receivers = address, receivers

    def finalize(self) -> None:
        """Close the socket."""
        if self._listening is not None:
            self._listening.close()
            self._listening = None

    def sent(self) -> SentWeights | None:
        """What rank 0 sent last; None on other ranks."""
        return self._sent

    async def send_weights(self, weights: Iterable[tuple[str, Tensor]], global_steps: int | None = None) -> None:
        """Send these weights to all receivers.

        Raises:
            WeightTransferError: a receiver did not come, or went.
        """
        if not self.is_master:
            for _ in weights:  # making a weight whole needs all ranks
                pass
            return
        self._sent = sent = SentWeights(global_steps or 0, self.dtype)
        connections = await self._connections()
        try:
            await _send_all(weights, connections, sent)
        except OSError as error:
            raise WeightTransferError(
                f"an engine left while it was sent the weights of step {sent.step}, after {len(sent.digests)} of "
                f"them: {error}; its output says why"
            ) from error
        finally:
            for one in connections:
                one.close()

    async def _connections(self) -> list[socket.socket]:
        assert self._listening is not None
        accepting = asyncio.get_running_loop().sock_accept
        connections: list[socket.socket] = []
        try:
            while len(connections) < self.receivers:
                one, _ = await asyncio.wait_for(accepting(self._listening), CONNECTION_SECONDS)
                if _is_ours(one):
                    connections.append(one)
                else:
                    one.close()
        except TimeoutError as error:
            raise WeightTransferError(
                f"{len(connections)} of {self.receivers} engines asked for weights within {CONNECTION_SECONDS:g} s"
            ) from error
        return connections

    async def receive_weights(self, global_steps: int | None = None) -> AsyncGenerator[tuple[str, Tensor], None]:  # type: ignore[override]
        """Each weight with its name, as it was sent.

        Raises:
            WeightTransferError: the trainer is on another machine, or stopped before it had sent all.
        """
        with socket.socket(socket.AF_UNIX) as connection:
            connection.setblocking(False)
            try:
                await asyncio.get_running_loop().sock_connect(connection, "\0" + self.address)
            except OSError as error:
                raise WeightTransferError(
                    f"no trainer sends weights on this machine ({error}): backend={BACKEND} needs engines and trainer "
                    "on one machine"
                ) from error
            while (header := await _header(connection)) is not None:
                values = torch.empty(header["bytes"], dtype=torch.uint8)
                await _receive_into(connection, values)
                yield header["name"], values.view(getattr(torch, header["dtype"])).view(header["shape"])


def _is_ours(connection: socket.socket) -> bool:
    """Whether this user's process is at the other end: any user can see abstract names, and connect to them."""
    peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(peer)
    return bool(user == os.getuid())


async def _send_all(weights: Any, connections: list[socket.socket], sent: SentWeights) -> None:
    try:
        async for name, weight in ensure_async_iterator(weights):
            values = weight.detach().cpu().contiguous()
            sent.add(name, values)
            dtype = str(values.dtype).removeprefix("torch.")
            header = {"name": name, "dtype": dtype, "shape": list(values.shape), "bytes": values.nbytes}
            await _send_to(connections, _framed(header), _bytes(values.view(-1).view(torch.uint8)))
    except OSError:
        raise
    except Exception as error:
        with suppress(OSError):
            await _send_to(connections, _framed({"error": f"{type(error).__name__}: {error}"}))
        raise
    await _send_to(connections, _framed({"end": True}))


async def _send_to(connections: list[socket.socket], *parts: bytes | memoryview) -> None:
    sending = asyncio.get_running_loop().sock_sendall
    for part in parts:
        await asyncio.gather(*(sending(one, part) for one in connections))


def _framed(header: dict[str, Any]) -> bytes:
    """A header after its length in eight bytes."""
    encoded = json.dumps(header).encode()
    return len(encoded).to_bytes(8, "big") + encoded


def _bytes(values: Tensor) -> memoryview:
    """The memory of a tensor (N) of bytes."""
    memory: memoryview = values.numpy().data
    return memory


async def _header(connection: socket.socket) -> dict[str, Any] | None:
    """What the next weight is; None after the last."""
    length, encoded = torch.empty(8, dtype=torch.uint8), torch.empty(0, dtype=torch.uint8)
    await _receive_into(connection, length)
    encoded = torch.empty(int.from_bytes(_bytes(length), "big"), dtype=torch.uint8)
    await _receive_into(connection, encoded)
    header: dict[str, Any] = json.loads(bytes(_bytes(encoded)))
    if "error" in header:
        raise WeightTransferError(f"the trainer could not send its weights: {header['error']}")
    return None if "end" in header else header


async def _receive_into(connection: socket.socket, values: Tensor) -> None:
    rest = _bytes(values)
    while len(rest):
        count = await asyncio.get_running_loop().sock_recv_into(connection, rest)
        if not count:
            raise WeightTransferError("the trainer's process ended before it had sent all weights")
        rest = rest[count:]
