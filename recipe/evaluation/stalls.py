"""What an evaluation waits for when nothing comes any more: written down while it waits, since nothing else tells."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from recipe.records.run_directory import write_atomically

SECONDS = 180.0
"""Without a new sample, after which the waiting is written down."""


async def note_stalls(path: Path, count: Callable[[], int], seconds: float = SECONDS) -> None:
    """Watches until it is cancelled. count: of what has come so far; path: gets the stacks of all tasks."""
    while True:
        before = count()
        await asyncio.sleep(seconds)
        if count() == before:
            stacks = sorted(stack_of(task) for task in asyncio.all_tasks())
            await asyncio.to_thread(write_atomically, path, "\n\n".join(stacks) + "\n")


def stack_of(task: asyncio.Task[Any]) -> str:
    """The lines in which a task waits, the innermost last."""
    lines = [task.get_name()]
    inner: Any = task.get_coro()
    while inner is not None:
        frames = (getattr(inner, name, None) for name in ("cr_frame", "ag_frame", "gi_frame"))
        frame = next((found for found in frames if found is not None), None)
        if frame is not None:
            lines.append(f"  {frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}")
        inner = next(
            (found for name in ("cr_await", "ag_await", "gi_yieldfrom") if (found := getattr(inner, name, None))), None
        )
    return "\n".join(lines)
