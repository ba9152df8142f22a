import asyncio
import time
from pathlib import Path

from recipe.evaluation.collecting import note_stalls


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.01)


async def never() -> None:
    await asyncio.get_running_loop().create_future()


async def outer() -> None:
    await never()


async def test_what_is_waited_for_is_written_down_when_nothing_comes_any_more(tmp_path: Path):
    waiting = asyncio.create_task(outer(), name="a sample")
    watch = asyncio.create_task(note_stalls(tmp_path / "stalled.txt", lambda: 3, seconds=0.01))
    async with asyncio.timeout(30):
        await asyncio.to_thread(wait_for, tmp_path / "stalled.txt")
    watch.cancel()
    waiting.cancel()
    text = (tmp_path / "stalled.txt").read_text()
    (sample,) = [part for part in text.split("\n\n") if part.startswith("a sample")]
    assert [line.rpartition(" in ")[2] for line in sample.splitlines()[1:3]] == ["outer", "never"]


async def test_nothing_is_written_while_samples_come(tmp_path: Path):
    counts = iter(range(1000))
    watch = asyncio.create_task(note_stalls(tmp_path / "stalled.txt", lambda: next(counts), seconds=0.001))
    await asyncio.sleep(0.05)
    watch.cancel()
    assert not (tmp_path / "stalled.txt").exists()
