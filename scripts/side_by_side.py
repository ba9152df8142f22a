"""Several runs of pytest, two at a time: ``python -m scripts.side_by_side ARGUMENTS -- ARGUMENTS ...``.

They start in order, each when one before it has ended, so that the longest belong first. The first one prints as it
goes, the others when all have started and those before them have ended. What failed is printed again at the end, where
whoever reads the last lines of a long log finds it. Exit status: 0, or that of a run that failed.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import IO
from xml.etree import ElementTree

AT_ONCE = 2
SHOWN = 3000
"""Characters of a failure that are printed again: its last ones, which name the assertion."""


def runs_of(words: Sequence[str]) -> list[list[str]]:
    """The arguments of each run, which `--` separates."""
    return [list(run) for separates, run in groupby(words, lambda word: word == "--") if not separates]


def main(words: Sequence[str]) -> int:
    """Run them; returns the exit status."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    first, *others = runs_of(words)
    with ExitStack() as stack:
        reports = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        started: list[tuple[subprocess.Popen[bytes], IO[bytes] | None]] = [
            (_started(stack, first, reports / "0"), None)
        ]
        logs = [stack.enter_context(tempfile.TemporaryFile()) for _ in others]
        for number, (run, log) in enumerate(zip(others, logs, strict=True), start=1):
            _wait_for_room([process for process, _ in started])
            started.append((_started(stack, run, reports / str(number), log), log))
        status = 0
        for process, printed in started:
            status = process.wait() or status
            if printed:
                printed.seek(0)
                sys.stdout.buffer.write(printed.read())
                sys.stdout.flush()
        for number, (process, _) in enumerate(started):
            for failure in failures(reports / str(number)) if process.returncode else ():
                print(failure, flush=True)
        return status


def failures(report: Path) -> Iterator[str]:
    """Each test that failed in a run, with the end of its traceback; from pytest's report in the format of JUnit."""
    if not report.exists():
        yield "FAILED a whole run: it ended without a report"
        return
    for case in ElementTree.parse(report).iter("testcase"):
        for found in (*case.iter("failure"), *case.iter("error")):
            text = (found.text or found.get("message") or "").strip()
            yield f"FAILED {case.get('classname')}::{case.get('name')}\n{text[-SHOWN:]}"


def _wait_for_room(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Return as soon as fewer than `AT_ONCE` of these run."""
    while sum(process.poll() is None for process in processes) >= AT_ONCE:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)  # `poll` reads the status


def _started(
    stack: ExitStack, words: Sequence[str], report: Path, log: IO[bytes] | None = None
) -> subprocess.Popen[bytes]:
    """A run in its own process group, so that Ctrl-C reaches it once: from here."""
    command = [sys.executable, "-m", "pytest", f"--junit-xml={report}", *words]
    process = subprocess.Popen(command, process_group=0, stdout=log, stderr=log and subprocess.STDOUT)
    stack.callback(_interrupt, process)
    return process


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    """End a run that is left over when this process ends early as Ctrl-C does, with its fixtures."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
