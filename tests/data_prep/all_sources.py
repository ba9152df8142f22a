"""Every source as a command on small made-up input, for the tests of all sources."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from unittest.mock import patch

import data_prep.sources
from data_prep.graphs import suite
from data_prep.public import maths
from data_prep.sources import bugs, codecontests, countdown_tasks, gsm8k, humaneval, mbpp
from tests.data_prep.task_examples import write_lines
from tests.data_prep.test_public_sets import codecontests_record, humaneval_record, mbpp_record


@dataclass(frozen=True)
class Source:
    """The command of a source, and its arguments but `--out`, `--seed` and `--limit`; files go to the folder given."""

    main: Callable[[list[str]], int]
    arguments: Callable[[Path], list[str]]


def _mbpp(folder: Path) -> list[str]:
    records = (mbpp_record(number, text=f"Larger {number}.") for number in (611, 612, 613))
    return ["--from-file", f"train={write_lines(folder / 'mbpp.jsonl', *records)}"]


def _humaneval(folder: Path) -> list[str]:
    return ["--from-file", f"test={write_lines(folder / 'humaneval.jsonl', humaneval_record(0), humaneval_record(1))}"]


def _bugs(folder: Path) -> list[str]:
    assert mbpp.main(["--out", str(folder / "programs"), *_mbpp(folder)]) == 0
    return ["--tasks", str(folder / "programs/train.jsonl")]


def _gsm8k(folder: Path) -> list[str]:
    records = ({"question": f"6 x {n}?", "answer": f"6*{n}=<<6*{n}={6 * n}>>{6 * n}\n#### {6 * n}"} for n in (7, 8))
    return ["--from-file", f"train={write_lines(folder / 'gsm8k.jsonl', *records)}"]


def _codecontests(folder: Path) -> list[str]:
    return ["--from-file", f"valid={write_lines(folder / 'contests.jsonl', codecontests_record())}"]


def _countdown_tasks(folder: Path) -> list[str]:
    records = ({"target": 98, "nums": [44, 19, 35]}, {"target": 7, "nums": [1, 2, 4]})
    return ["--from-file", f"train={write_lines(folder / 'countdown.jsonl', *records)}"]


def _maths(folder: Path) -> list[str]:
    records = ({"problem": f"1 + {n}?", "answer": f"\\dfrac{{{n + 1}}}{{1}}"} for n in (1, 2))
    return ["--set", "math500", "--from-file", f"test={write_lines(folder / 'maths.jsonl', *records)}"]


@contextmanager
def two_threads() -> Iterator[suite.Cores]:
    """Stand in for processes, each of which imports for seconds; tests/data_prep/graphs/test_graphs.py starts those."""
    with ThreadPoolExecutor(2) as executor:
        yield suite.Cores(executor, 2)


def graphs(arguments: list[str]) -> int:
    """The command of the graph tasks in this process."""
    with patch.object(suite, "all_cores", two_threads):
        return suite.main(arguments)


def _procedural() -> dict[str, Source]:
    """Every source by its module's name, as if it needed no input."""
    files = Path(data_prep.sources.__file__).parent.glob("*.py")
    names = [path.stem for path in files if "= source_parser(" in path.read_text()]
    return {name: Source(import_module(f"data_prep.sources.{name}").main, lambda folder: []) for name in names}


SOURCES = _procedural() | {
    "mbpp": Source(mbpp.main, _mbpp),
    "humaneval": Source(humaneval.main, _humaneval),
    "bugs": Source(bugs.main, _bugs),
    "gsm8k": Source(gsm8k.main, _gsm8k),
    "codecontests": Source(codecontests.main, _codecontests),
    "maths": Source(maths.main, _maths),
    "graphs": Source(graphs, lambda folder: ["--levels", "1", "2"]),
    "countdown_tasks": Source(countdown_tasks.main, _countdown_tasks),
}
