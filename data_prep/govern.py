"""Governance of task files: `python -m data_prep.govern FILE [FILE ...] --out DIR [--threshold T]`.

Finds exact and near duplicates within and across roles (docs/reference/data.md). Writes train.jsonl, dev.jsonl and
test.jsonl (the kept tasks, with parquet files), manifest.jsonl (every task, kept or dropped), leakage.jsonl (tasks of
train or dev that leak from a role they are measured on) and audit.md.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from data_prep.files import complete_file
from data_prep.governance.audit import THRESHOLD, AuditFinding, audit, find
from data_prep.json_lines import write_lines
from data_prep.schema import DataFileError
from data_prep.splits import ROLES
from data_prep.tasks import Task, read_tasks, write_task_rows, write_tasks


@dataclass(frozen=True)
class Governed:
    """All tasks, in the order of their files, and the findings about them."""

    tasks: list[Task]
    findings: list[AuditFinding]

    def kept(self, role: str) -> list[Task]:
        """The tasks of a role that were not dropped."""
        dropped = {finding.task for finding in self.findings if finding.dropped}
        return [task for number, task in enumerate(self.tasks) if task.role == role and number not in dropped]

    def manifest(self) -> Iterator[dict[str, Any]]:
        """One object per task: its origin, hash and licence, and the reason if it was dropped."""
        reasons = {finding.task: finding for finding in self.findings if finding.dropped}
        for number, task in enumerate(self.tasks):
            reason = reasons.get(number)
            yield {
                "id": task.id,
                "hash": task.fingerprint(),
                "source": task.source,
                "split": task.split,
                "role": task.role,
                "licence": task.licence,
                "kept": reason is None,
                "reason": reason and reason.kind,
                "like": reason and self.tasks[reason.other].id,
            }

    def leakage(self) -> Iterator[dict[str, Any]]:
        """One object per leak."""
        for finding in self.findings:
            if finding.leak:
                task, other = self.tasks[finding.task], self.tasks[finding.other]
                yield {
                    "id": task.id,
                    "role": task.role,
                    "like": other.id,
                    "like_role": other.role,
                    "part": finding.part,
                    "exact": finding.exact,
                    "similarity": round(finding.similarity, 4),
                }


def read_all(paths: Sequence[Path]) -> list[Task]:
    """The tasks of all files; DataFileError for a bad line or an id in two files."""
    tasks: list[Task] = []
    origins: dict[str, Path] = {}
    for path in track(paths, "reading", console=Console(stderr=True)):
        for task in read_tasks(path):
            if task.id in origins:
                raise DataFileError(f"{path}: the id '{task.id}' is also in {origins[task.id]}; ids must be unique")
            origins[task.id] = path
            tasks.append(task)
    return tasks


def govern(paths: Sequence[Path], out: Path, threshold: float = THRESHOLD) -> Governed:
    """Read the tasks, find duplicates and leaks, and write all output files of the module."""
    tasks = read_all(paths)
    governed = Governed(tasks, find(tasks, threshold))
    for role in ROLES:
        if kept := governed.kept(role):
            write_tasks(out / f"{role}.jsonl", kept)
            write_task_rows(out / f"{role}.parquet", kept)
    write_lines(out / "leakage.jsonl", governed.leakage())
    with complete_file(out / "audit.md") as temporary:
        temporary.write_text(audit(tasks, governed.findings, threshold), encoding="utf-8")
    write_lines(out / "manifest.jsonl", governed.manifest())
    return governed


def _threshold(text: str) -> float:
    value = float(text)
    if not 0.5 <= value <= 1.0:
        raise argparse.ArgumentTypeError(f"{text} is not in [0.5, 1]; below 0.5 the search misses most pairs")
    return value


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m data_prep.govern", description=__doc__)
    parser.add_argument("files", type=Path, nargs="+", help="tasks as JSON Lines")
    parser.add_argument("--out", type=Path, required=True, help="output folder")
    parser.add_argument("--threshold", type=_threshold, default=THRESHOLD, help="similarity of near duplicates")
    options = parser.parse_args(arguments)
    try:
        governed = govern(options.files, options.out, options.threshold)
    except (DataFileError, OSError) as error:
        print(f"data_prep.govern: {error}", file=sys.stderr)
        return 1
    for role in ROLES:
        total = sum(task.role == role for task in governed.tasks)
        print(f"{role}: {len(governed.kept(role)):,} of {total:,} tasks kept")
    print(f"{sum(1 for _ in governed.leakage()):,} leaks; see {options.out / 'audit.md'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
