"""Messages on a socket: length-prefixed JSON.

Sizes are checked before anything is stored and content before it is used: received data stays bytes until `parse`
accepts it.
"""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

MAX_FRAME = 16 * 1024 * 1024
HEADER = struct.Struct("!I")


class BadFrame(ValueError):
    """Bytes that are not a message: not UTF-8, not JSON, nested too deeply, a number with too many digits."""


class FrameTooLarge(BadFrame):
    """A frame above the reader's limit."""


def parse(body: bytes) -> Any:
    """Parse the JSON body of a frame; raises only `BadFrame`, for any invalid body."""
    try:
        return json.loads(body.decode())
    except (ValueError, RecursionError) as error:
        raise BadFrame(f"the frame is not a message: {type(error).__name__}") from None


def frame(message: Any) -> bytes:
    """Serialize one message with its length prefix."""
    body = json.dumps(message, separators=(",", ":")).encode()
    return HEADER.pack(len(body)) + body


def send_frame(channel: socket.socket, message: Any) -> None:
    """Write one message; raises `OSError` when the other side is gone."""
    channel.sendall(frame(message))


def receive_frame(channel: socket.socket, limit: int = MAX_FRAME) -> Any:
    """Read one message; raises `EOFError` at the end, `BadFrame` for an invalid one."""
    (size,) = HEADER.unpack(_read_exactly(channel, HEADER.size))
    if size > limit:
        raise FrameTooLarge(f"a frame of {size} bytes is above {limit}")
    return parse(_read_exactly(channel, size))


def _read_exactly(channel: socket.socket, size: int) -> bytes:
    data = channel.recv(size, socket.MSG_WAITALL)
    while len(data) < size:
        more = channel.recv(size - len(data), socket.MSG_WAITALL)
        if not more:
            raise EOFError("the other side closed the channel")
        data += more
    return data


class FrameBuffer:
    """Reassembles frame bodies of at most `limit` bytes from partial reads, for the side that polls."""

    def __init__(self, limit: int = MAX_FRAME) -> None:
        self._data = bytearray()
        self._limit = limit

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes and return the bodies that they complete; raises `FrameTooLarge`."""
        self._data += data
        bodies: list[bytes] = []
        start = 0
        while len(self._data) - start >= HEADER.size:
            (size,) = HEADER.unpack_from(self._data, start)
            if size > self._limit:
                raise FrameTooLarge(f"a frame of {size} bytes is above {self._limit}")
            end = start + HEADER.size + size
            if len(self._data) < end:
                break
            bodies.append(bytes(self._data[start + HEADER.size : end]))
            start = end
        del self._data[:start]
        return bodies
