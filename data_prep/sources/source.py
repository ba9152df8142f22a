"""Shared parts of the sources' commands: options, tests that prompts show, and the steps from drafts to files.

A draft is a source's output for one problem: the fields of a `Task`, or the reason for refusing it. A draft becomes a
row only if it is valid and its solution, or else one of its `alternatives`, scores the maximum; the others are listed
in refused.jsonl. Solutions that were not tried are kept in more/solutions.jsonl, for `data_prep.audit_tests`.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError
from rich.console import Console
from rich.progress import track

from data_prep.json_lines import write_lines
from data_prep.proving import prove
from data_prep.schema import DataFileError, explain
from data_prep.tasks import Task, write_task_rows, write_tasks
from rewards import registry
from rewards.settings import JudgeSettings

ShowTests = Literal["none", "one", "all"]
_SHOWN_COUNTS: dict[ShowTests, int | None] = {"none": 0, "one": 1, "all": None}


@dataclass(frozen=True)
class Refusal:
    """A refused problem and the reason."""

    id: str
    reason: str


Draft = dict[str, Any] | Refusal
MORE_SOLUTIONS = Path("more") / "solutions.jsonl"  # beside the files of tasks


@dataclass
class Harvest:
    """Accepted tasks and refused problems. alternatives: other solutions to try, by task id, or other fields."""

    tasks: list[Task] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    alternatives: dict[str, list[str | dict[str, Any]]] = field(default_factory=dict)

    def add(self, draft: Draft, seen: set[str]) -> None:
        """Add a draft: as a task if it is valid and its id is new, else as a refusal."""
        if isinstance(draft, Refusal):
            self.refused.append(draft)
            return
        fields = {name: value for name, value in draft.items() if name != "alternatives"}
        try:
            task = Task.model_validate(fields)
        except ValidationError as error:
            self.refused.append(Refusal(str(draft.get("id")), explain(error)))
            return
        if task.id in seen:
            self.refused.append(Refusal(task.id, "the id is that of an earlier row"))
        else:
            seen.add(task.id)
            self.tasks.append(task)
            self.alternatives[task.id] = list(draft.get("alternatives", ()))

    def proved(self, journal: Path, judge: JudgeSettings) -> "Harvest":
        """The harvest with refusals for the tasks without a solution that scores the maximum; the first that does is
        kept.
        """
        tasks, errors = list(self.tasks), prove(self.tasks, journal, judge)
        while retried := [
            number for number, error in enumerate(errors) if error != "none" and self.alternatives[tasks[number].id]
        ]:
            for number in retried:
                other = self.alternatives[tasks[number].id].pop(0)
                fields = {"solution": other} if isinstance(other, str) else other
                tasks[number] = Task.model_validate(tasks[number].model_dump() | fields)
            again = prove([tasks[number] for number in retried], journal, judge)
            for number, error in zip(retried, again, strict=True):
                errors[number] = error
        pairs = list(zip(tasks, errors, strict=True))
        wrong = [Refusal(task.id, f"its solution fails: {error}") for task, error in pairs if error != "none"]
        return Harvest([task for task, error in pairs if error == "none"], self.refused + wrong, self.alternatives)

    def more_solutions(self) -> list[dict[str, Any]]:
        """By task, the other published solutions, none of them proved; no entry for a task without any."""
        found = []
        for task in self.tasks:
            others = [
                one if isinstance(one, str) else one.get("solution") for one in self.alternatives.get(task.id, ())
            ]
            others = [one for one in dict.fromkeys(others) if one not in (None, task.solution)]
            found += [{"id": task.id, "solutions": others}] if others else []
        return found


def collect(drafts: Iterable[Draft], total: int | None = None) -> Harvest:
    """Collect the drafts, with a progress bar. total: the number of drafts, if known."""
    harvest, seen = Harvest(), set[str]()
    for draft in track(drafts, "making tasks", total, console=Console(stderr=True)):
        harvest.add(draft, seen)
    return harvest


def write(harvest: Harvest, out: Path) -> dict[str, int]:
    """Write SPLIT.jsonl and SPLIT.parquet of every split, and refused.jsonl; returns the number of rows per split."""
    if not harvest.tasks:
        reasons = ", ".join(f"{item.id}: {item.reason}" for item in harvest.refused[:3]) or "there were none"
        raise DataFileError(f"no task is good enough to write ({reasons})")
    splits: dict[str, list[Task]] = {}
    for task in harvest.tasks:
        splits.setdefault(task.split, []).append(task)
    stale = sorted(path.stem for path in out.glob("*.jsonl") if path.with_suffix(".parquet").exists())
    if stale := [split for split in stale if split not in splits]:
        raise DataFileError(f"{out} has {', '.join(stale)} from another set: remove them, or choose another --out")
    for split, tasks in splits.items():
        write_tasks(out / f"{split}.jsonl", tasks)
        write_task_rows(out / f"{split}.parquet", tasks)
    (out / MORE_SOLUTIONS).unlink(missing_ok=True)
    if more := harvest.more_solutions():
        write_lines(out / MORE_SOLUTIONS, more)
    write_lines(out / "refused.jsonl", ({"id": item.id, "reason": item.reason} for item in harvest.refused))
    return {split: len(tasks) for split, tasks in splits.items()}


def command(module: str) -> str:
    """The module name of a source's command, for `python -m`."""
    return f"data_prep.{module}" if module == "graphs" or "." in module else f"data_prep.sources.{module}"


def source_parser(module: str, description: str | None) -> argparse.ArgumentParser:
    """A parser with the options common to all sources."""
    parser = argparse.ArgumentParser(prog=f"python -m {command(module)}", description=description)
    parser.add_argument("--out", type=Path, required=True, help="folder for the files")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--experiment", metavar="NAME", help="prove solutions as this file of configs/experiment does")
    return parser


def judge_of(options: argparse.Namespace) -> JudgeSettings:
    """The judge settings of the experiment given in the options; DataFileError for an unknown one."""
    try:
        return JudgeSettings.of_experiment(options.experiment)
    except ValueError as error:
        raise DataFileError(f"--experiment: {error}") from error


def positive(text: str) -> int:
    """Parse a positive count given as an option."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def share(text: str) -> float:
    """Parse a share between 0 and 1 given as an option."""
    value = float(text)
    if not 0.0 <= value <= 1.0:
        raise argparse.ArgumentTypeError(f"{text} is not in [0, 1]")
    return value


def run(
    module: str,
    options: argparse.Namespace,
    verifiers: tuple[str, ...],
    drafts: Callable[[], Iterable[Draft]],
    *,
    total: int | None = None,
) -> int:
    """Make, prove and write the tasks of a source and print a summary; returns the exit status.

    options: from `source_parser`. run_info.json records the judge settings of the proof.
    """
    out: Path = options.out
    journal = out / ".proved.jsonl"
    try:
        judge = judge_of(options)
        _require(verifiers)
        harvest = collect(drafts(), total).proved(journal, judge)
        sizes = write(harvest, out)
        record = {"experiment": options.experiment, "judge": judge.record()}
        (out / "run_info.json").write_text(json.dumps(record, indent=2) + "\n")
        journal.unlink(missing_ok=True)
    except (DataFileError, OSError) as error:
        print(f"{command(module)}: {error}", file=sys.stderr)
        return 1
    for split, size in sizes.items():
        print(f"{out / split}.parquet: {size:,} rows")
    unproved = sum(task.solution is None for task in harvest.tasks)
    print(f"{unproved:,} rows have no solution to prove; {len(harvest.refused):,} problems refused", end="")
    print(f", see {out / 'refused.jsonl'}" if harvest.refused else "")
    for reason, count in Counter(item.reason for item in harvest.refused).most_common(3):
        print(f"  {count:,} x {reason}")
    return 0


def _require(verifiers: tuple[str, ...]) -> None:
    try:
        for verifier in verifiers:
            registry.get(verifier)
    except ValueError as error:
        raise DataFileError(f"answers could not be judged: {error}") from error


def add_show_tests(parser: argparse.ArgumentParser, default: ShowTests) -> None:
    """Add the option `--show-tests`."""
    parser.add_argument("--show-tests", choices=_SHOWN_COUNTS, default=default, help="tests that the prompt shows")


def shown_tests(tests: Sequence[str], show: ShowTests) -> Sequence[str]:
    """The tests that the prompt shows: the first ones, whose number is `visible` in the ground truth."""
    return tests[: _SHOWN_COUNTS[show]]


def shown_lines(tests: Sequence[str]) -> list[str]:
    """The lines of a prompt that show these tests; empty for no tests."""
    if not tests:
        return []
    return [
        f"It must pass {'this test' if len(tests) == 1 else 'these tests'}:",
        "```python\n" + "\n".join(tests) + "\n```",
    ]
