"""Sandbox server in a separate process, for benchmarks, with measures of its time and memory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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


def processor_seconds(pid: int) -> float:
    """Processor time of a server, all its processes and programs, and of this load generator."""
    ticks = 0
    for process in tree(pid):
        try:
            ticks += sum(map(int, Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:15]))
        except (OSError, ValueError):
            continue
    return ticks / os.sysconf("SC_CLK_TCK") + time.process_time()


def tree(pid: int) -> list[int]:
    """A process and all its descendants."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError):
                continue
    found, layer = {pid}, {pid}
    while layer:
        layer = {child for child, parent in parents.items() if parent in layer} - found
        found |= layer
    return sorted(found)


def memory_mib(pid: int) -> float:
    """Proportional memory (PSS) of a server and its processes, in MiB."""
    total = 0
    for process in tree(pid):
        try:
            text = Path(f"/proc/{process}/smaps_rollup").read_text()
            total += int(re.search(r"^Pss:\s+(\d+)", text, re.MULTILINE).group(1))  # type: ignore[union-attr]
        except OSError:
            continue
    return total / 1024
