"""Sandbox server in a separate process, for benchmarks, with measures of its time and memory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]


@contextmanager
def running_server(workers: int, root: Path = ROOT) -> Iterator[tuple[str, int]]:
    """Run a checkout's server in a separate process; yields its url and process id."""
    command = [sys.executable, "-m", "rewards.sandbox", "serve", "--port", "0", "--workers", str(workers)]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, cwd=root)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            print("   ", line.split(" INFO ")[-1].strip())
            found = re.search(r"serving on (\S+)", line)
            if found:
                yield found.group(1), process.pid
                return
        raise RuntimeError("the server did not start")
    finally:
        process.terminate()
        process.wait()


def tree(pid: int) -> list[psutil.Process]:
    """A process and all its descendants."""
    return [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]


def processor_seconds(pid: int) -> float:
    """Processor seconds used so far by a process and its descendants, including terminated children."""
    total = 0.0
    for process in tree(pid):
        with suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])  # user, system, and both of children
    return total


def memory_mib(pid: int) -> float:
    """Proportional memory (PSS) of a server and its processes, in MiB."""
    total = 0
    for process in tree(pid):
        try:
            text = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
            total += int(re.search(r"^Pss:\s+(\d+)", text, re.MULTILINE).group(1))  # type: ignore[union-attr]
        except OSError:
            continue
    return total / 1024
