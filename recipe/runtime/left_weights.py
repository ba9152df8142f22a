"""Shared memory and sockets for the policy's weights, which verl leaves on a machine when a process is killed.

A transfer that was under way keeps a segment of the size of verl's bucket (`update_weights_bucket_megabytes`).
"""

import contextlib
import glob
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

PATTERNS = ("/dev/shm/verl_weights_*", "/tmp/rl-colocate-zmq-*")
SECONDS = 5.0
"""How long the processes of a Ray that was shut down may take to end."""


def unused(paths: Iterable[str]) -> list[str]:
    """Those of the paths that no living process maps or listens at, of the processes that this user may look at."""
    wanted = sorted(paths)
    used = [*_maps(), Path("/proc/net/unix").read_text()] if wanted else []
    return [path for path in wanted if not any(path in one for one in used)]


def remove_left_weights(patterns: Iterable[str] = PATTERNS, seconds: float = SECONDS) -> None:
    """Remove what is unused, now or within so many seconds. For a run with its own Ray: a machine has one such."""
    patterns, until = tuple(patterns), time.monotonic() + seconds
    while found := [path for pattern in patterns for path in glob.glob(pattern)]:
        for path in unused(found):
            with contextlib.suppress(OSError):  # another user's, or gone
                Path(path).unlink()
        if time.monotonic() > until:
            break
        time.sleep(0.2)


def _maps() -> Iterator[str]:
    """The list of mapped files of each process."""
    for path in glob.glob("/proc/[0-9]*/maps"):
        with contextlib.suppress(OSError):
            yield Path(path).read_text(errors="replace")
