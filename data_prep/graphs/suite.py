"""Graph tasks with exact optima: `python -m data_prep.graphs --out DIR [--tasks mcp tsp ...] [--levels 1 2 ...]`.

Every task and level gets the same number of problems. With the same seed a smaller --limit makes a subset of a larger
one, and `--volumes 45000 60000 90000` writes such subsets of the training problems to the same folder, as
train_45000.jsonl and .parquet and so on. Uses all cores; an interrupted run resumes.
"""

import os
import random
import sys
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import count, islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

from data_prep.graphs.molecules import origin_here
from data_prep.graphs.problems import NETWORK_SIZES, TASKS
from data_prep.json_lines import Journal
from data_prep.schema import DataFileError
from data_prep.sources import procedural
from data_prep.sources.source import Draft, positive, run, source_parser
from data_prep.tasks import Task, read_tasks, write_task_rows, write_tasks
from rewards import extraction

LEVELS = tuple(NETWORK_SIZES)
_MOLECULE_TASKS = ("mcs", "ged")
REQUESTS = {"response": extraction.REQUEST, "template": extraction.REQUEST_OPENED}
# Number of problems that one process makes at a time.
_CHUNK = 4


Item = TypeVar("Item")
Result = TypeVar("Result")


class Cores:
    """A pool of worker processes."""

    def __init__(self, executor: Executor, count: int) -> None:
        self._executor, self._count = executor, count

    def ordered_map(self, work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """`work` of every item, in order. Runs only a few items ahead, so the items may be endless."""
        rest = iter(items)
        waiting: deque[Future[Result]] = deque()
        try:
            while True:
                ahead = islice(rest, self._count + 1 - len(waiting))
                waiting.extend(self._executor.submit(work, item) for item in ahead)
                if not waiting:
                    return
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


@contextmanager
def all_cores() -> Iterator[Cores]:
    """One process per processor available to this one; they stop at the end of the block."""
    count = len(os.sched_getaffinity(0))
    executor = ProcessPoolExecutor(count, mp_context=get_context("spawn"))
    try:
        yield Cores(executor, count)
    finally:
        executor.shutdown(cancel_futures=True)


def draw(name: str, level: int, rng: random.Random) -> dict[str, Any]:
    """The fields of a random problem of a task and level."""
    problem = TASKS[name](rng, level)
    origin = {"molecules": origin_here()} if name in _MOLECULE_TASKS else {}
    return {
        "skill": name,
        "verifier": name,
        "prompt": problem.prompt,
        "ground_truth": problem.truth,
        "solution": problem.solution,
        "licence": "apache-2.0",
        "notes": {"level": level} | origin,
    }


def drawn(name: str, level: int, seed: int, chunk: int) -> list[dict[str, Any]]:
    """The problems of one chunk of the endless sequence of a cell (a task and a level); each has its own generator."""
    numbers = range(chunk * _CHUNK, (chunk + 1) * _CHUNK)
    return [draw(name, level, random.Random(f"{name}/{level}/{seed}/{number}")) for number in numbers]


def drafts(
    tasks: Sequence[str],
    levels: Sequence[int],
    *,
    limit: int,
    seed: int,
    request: str,
    cores: Cores,
    journal: Journal,
) -> Iterator[Draft]:
    """About `limit` training problems, equally many per task and level, and a tenth of that for dev and test each.

    request: the sentence of a prompt that asks for the thinking part.
    """
    for name in tasks:
        for level in levels:
            problems = _sequence(name, level, seed, cores, journal)
            for draft in procedural.deal(f"graphs/{name}/{level}", problems, limit=_each(limit, tasks, levels)):
                yield draft | {"source": "graphs", "prompt": draft["prompt"].replace(extraction.REQUEST, request)}


def _each(limit: int, tasks: Sequence[str], levels: Sequence[int]) -> int:
    return max(1, limit // (len(tasks) * len(levels)))


def _sequence(name: str, level: int, seed: int, cores: Cores, journal: Journal) -> Iterator[dict[str, Any]]:
    """The endless sequence of a cell's problems: those in the journal, then new ones."""
    key = f"{name}/{level}/{seed}/{origin_here()}/{{}}".format
    known = 0
    while key(known) in journal:
        yield from journal[key(known)]
        known += 1
    for chunk, problems in enumerate(cores.ordered_map(partial(drawn, name, level, seed), count(known)), known):
        journal.add(key(chunk), problems)
        yield from problems


def write_volumes(out: Path, volumes: Sequence[int]) -> None:
    """Write the first training problems of every cell as train_VOLUME; DataFileError if there are too few."""
    cells: dict[tuple[str, Any], list[Task]] = defaultdict(list)
    for task in read_tasks(out / "train.jsonl"):
        cells[task.skill, task.notes["level"]].append(task)
    for volume in volumes:
        each = volume // len(cells)
        if each > (fewest := min(map(len, cells.values()))):
            raise DataFileError(
                f"--volumes {volume}: every task and level needs {each} problems, one has {fewest}; raise --limit"
            )
        tasks = [task for cell in cells.values() for task in cell[:each]]
        write_tasks(out / f"train_{volume}.jsonl", tasks)
        rows = out / f"train_{volume}.parquet"
        print(f"{rows}: {write_task_rows(rows, tasks):,} rows")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = source_parser("graphs", __doc__)
    procedural.add_limit(parser)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), metavar="TASK", help=", ".join(TASKS))
    parser.add_argument("--levels", type=int, nargs="+", choices=LEVELS, default=LEVELS)
    parser.add_argument("--volumes", type=positive, nargs="+", default=[], help="subsets of train; none above --limit")
    parser.add_argument(
        "--think-opener", choices=REQUESTS, default="response",
        help="who writes <think>: template for a model whose chat template does",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    if options.volumes and max(options.volumes) > options.limit:
        parser.error(f"--volumes {max(options.volumes)} is more than --limit {options.limit}")
    tasks, levels = tuple(options.tasks), tuple(options.levels)
    if origin_here() == "built" and set(_MOLECULE_TASKS) & set(tasks):
        print("rdkit is not installed: molecules are built; with rdkit the data differ", file=sys.stderr)
    path = options.out / ".drawn.jsonl"
    with all_cores() as cores:
        how = {"limit": options.limit, "seed": options.seed, "request": REQUESTS[options.think_opener]}
        made = partial(drafts, tasks, levels, **how, cores=cores)
        total = len(tasks) * len(levels) * procedural.size(_each(options.limit, tasks, levels))
        status = run("graphs", options, tasks, lambda: made(journal=Journal(path)), total=total)
    if status == 0:
        path.unlink(missing_ok=True)
        try:
            write_volumes(options.out, options.volumes)
        except (DataFileError, OSError) as error:
            print(f"data_prep.graphs.suite: {error}", file=sys.stderr)
            return 1
    return status


if __name__ == "__main__":
    sys.exit(main())
