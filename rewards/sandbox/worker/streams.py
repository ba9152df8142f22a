"""The worker's streams to and from a child: an in-memory input, a capped output stream and a message channel."""

from __future__ import annotations

import os
import socket
from collections import deque

from rewards.sandbox.inside.frames import FrameBuffer, FrameTooLarge

READ_SIZE = 1 << 16
MAX_ANSWER = 1 << 16
"""Maximum bytes of an answer that the worker reads itself: small, so that no values make reading slow."""
TAIL = 4096


def memory_file(text: str) -> int:
    """A descriptor of an in-memory file that holds the text, positioned at its start."""
    descriptor = os.memfd_create("input")
    rewrite(descriptor, text)
    return descriptor


def rewrite(descriptor: int, text: str) -> None:
    """Replace the content of an in-memory file and rewind it, for every process that has it open."""
    os.ftruncate(descriptor, 0)
    data = memoryview(text.encode("utf-8", "surrogatepass"))
    os.lseek(descriptor, 0, os.SEEK_SET)
    while data:
        data = data[os.write(descriptor, data) :]
    os.lseek(descriptor, 0, os.SEEK_SET)


class Drain:
    """Reads one stream to its end; keeps the first `limit` bytes and the last `TAIL`."""

    def __init__(self, limit: int) -> None:
        self.descriptor, self.writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.descriptor, False)
        # A program may open /dev/stdout by name; to the kernel the pipe belongs to another user.
        os.fchmod(self.writer, 0o666)
        self.limit = limit
        self.kept = bytearray()
        self.tail = b""
        self.truncated = False
        self.open = True

    def read(self) -> None:
        """Read the available data."""
        while self.open:
            try:
                data = os.read(self.descriptor, READ_SIZE)
            except BlockingIOError:
                return
            if not data:
                self.close()
                return
            room = self.limit - len(self.kept)
            self.kept += data[:room]
            if len(data) > room:
                self.truncated = True
                self.tail = (self.tail + data)[-TAIL:]
                return

    def close(self) -> None:
        """Stop reading."""
        if self.open:
            os.close(self.descriptor)
            self.open = False

    def text(self) -> str:
        """The kept bytes as text; bytes that are not UTF-8 become the replacement character."""
        return self.kept.decode("utf-8", "replace")

    def ending(self) -> str:
        """The last `TAIL` bytes written, including those beyond the limit."""
        return (self.tail if self.truncated else bytes(self.kept[-TAIL:])).decode("utf-8", "replace")

    def restart(self) -> None:
        """Clear the kept bytes for the next run of the same process."""
        self.kept, self.tail, self.truncated = bytearray(), b"", False


class Channel:
    """The worker's end of a call channel to a program: frame bodies, unparsed until requested.

    `expected`: how many answers may arrive; a program that sends more is cut off.
    """

    def __init__(self, end: socket.socket) -> None:
        self.socket = end
        self.open = True
        self.oversized = False
        self.misused = False
        self.expected = 0
        self.pending: deque[bytes] = deque()
        self.unsent = b""
        self._frames = FrameBuffer(MAX_ANSWER)
        end.setblocking(False)

    def read(self) -> None:
        """Read the available data; anything but a valid frame closes the channel."""
        try:
            data = self.socket.recv(READ_SIZE)
            self.pending.extend(self._frames.feed(data))
            self.misused = len(self.pending) > self.expected
            self.open = bool(data) and not self.misused
        except BlockingIOError:
            pass
        except FrameTooLarge:
            self.oversized, self.open = True, False
        except OSError:
            self.open = False

    def send(self, data: bytes) -> None:
        """Write as much as the channel accepts; `write` sends the rest."""
        self.unsent += data
        self.write()

    def serve(self) -> None:
        """Read the available data and write what is unsent."""
        self.read()
        self.write()

    def write(self) -> None:
        """Continue writing unsent data."""
        try:
            while self.unsent:
                self.unsent = self.unsent[self.socket.send(self.unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            self.open, self.unsent = False, b""

    def take(self) -> bytes | None:
        """The next answer, or None."""
        if not self.pending:
            return None
        self.expected -= 1
        return self.pending.popleft()
