"""What a process has started, for tests that end it or look at what it leaves behind."""

import contextlib

import psutil


def living_descendants(pid: int) -> list[psutil.Process]:
    """Everything that a process has started and that still lives, none if the process itself is gone.

    A process that has ended and waits for its parent does not count.
    """
    living: list[psutil.Process] = []
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if child.status() != psutil.STATUS_ZOMBIE:
                    living.append(child)
    return living


def command_line(process: psutil.Process) -> str:
    """The words of a process's command, separated by NUL as in /proc; empty when it is gone."""
    try:
        return "\0".join(process.cmdline())
    except psutil.Error:
        return ""
