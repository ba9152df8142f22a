"""Several runs of pytest side by side: ``python -m scripts.side_by_side ARGUMENTS -- ARGUMENTS ...``.

The last one prints as it goes, the others when they have ended. Exit status: 0, or that of a run that failed.
"""

import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import groupby
from typing import Any


def runs_of(words: Sequence[str]) -> list[list[str]]:
    """The arguments of each run, which `--` separates."""
    return [list(run) for separates, run in groupby(words, lambda word: word == "--") if not separates]


def main(words: Sequence[str]) -> int:
    """Run them; returns the exit status."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    *others, last = ([sys.executable, "-m", "pytest", *run] for run in runs_of(words))
    with ExitStack() as stack:
        started = []
        for command in others:
            log = stack.enter_context(tempfile.TemporaryFile())
            started.append((_started(stack, command, stdout=log, stderr=subprocess.STDOUT), log))
        status = _started(stack, last).wait()
        for process, log in started:
            status = process.wait() or status
            log.seek(0)
            sys.stdout.buffer.write(log.read())
            sys.stdout.flush()
        return status


def _started(stack: ExitStack, command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """A run in its own process group, so that Ctrl-C reaches it once: from here."""
    process = subprocess.Popen(command, process_group=0, **options)
    stack.callback(_interrupt, process)
    return process


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    """End a run that is left over when this process ends early as Ctrl-C does, with its fixtures."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
