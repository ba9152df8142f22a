"""How strong the tests of tasks are: `python -m data_prep.audit_tests FILE ... [--out DIR]`.

Runs wrong programs (small changes of each solution) against the tests, hidden ones included, and reports the share that
they reject, with examples of wrong programs that they accept. `--more-tests` writes copies of the files with hidden
tests that reject those; a new input must fit what all inputs share, and the answers of the solutions that are at hand
(more/solutions.jsonl beside a file) must agree. `--leave-out` writes copies without the weak problems. Finished
problems are kept in DIR: an interrupted audit resumes. docs/reference/data.md describes the measure.
"""

import argparse
import asyncio
import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from data_prep.files import complete_file
from data_prep.json_lines import Journal, read_lines
from data_prep.proving import prove
from data_prep.schema import DataFileError
from data_prep.sources.source import MORE_SOLUTIONS, judge_of, positive, share
from data_prep.strength.measuring import Measurement, measured
from data_prep.strength.strength import Strength, counts_of, report
from data_prep.strength.suites import VERIFIERS, with_tests
from data_prep.tasks import Task, checked_tasks, write_task_rows, write_tasks
from rewards.analysis.parsing import parse
from rewards.sandbox import InfrastructureError
from rewards.settings import JudgeSettings
from rewards.verifiers.programs import program_in, sandbox_at

_OUT = Path("outputs/audit_tests")
_AT_A_TIME = 8
_VERSION = 2  # of the measure: results of another one are not read again


@dataclass(frozen=True)
class TaskFile:
    """The tasks of one file, in order, and more solutions by id, none of them proved."""

    path: Path
    tasks: list[Task]
    solutions: dict[str, list[str]]


def is_measurable(task: Task) -> bool:
    """Whether a task has tests of programs, and a solution."""
    return task.verifier in VERIFIERS and task.solution is not None


def read(paths: Sequence[Path]) -> list[TaskFile]:
    """The tasks of all files. DataFileError names file, line and field of the first bad row, and repeated ids."""
    files, origins = [], dict[str, str]()
    for path in paths:
        if path.name == "refused.jsonl":  # `*.jsonl` of a source's folder
            continue
        tasks = []
        for number, task in checked_tasks(path):
            if isinstance(task, str):
                raise DataFileError(f"{path}:{number}: {task}; see python -m data_prep.validate {path}")
            if task.id in origins:
                raise DataFileError(
                    f"{path}:{number}: field 'id': '{task.id}' is also in {origins[task.id]}; ids must be unique"
                )
            if is_measurable(task) and parse(program_in(task.solution or "")) is None:
                raise DataFileError(
                    f"{path}:{number}: field 'solution': no Python program; correct it or set it to null"
                )
            origins[task.id] = f"{path}:{number}"
            tasks.append(task)
        files.append(TaskFile(path, tasks, _more_solutions(path.parent / MORE_SOLUTIONS)))
    if not any(is_measurable(task) for file in files for task in file.tasks):
        listed = ", ".join(map(str, paths))
        raise DataFileError(f"{listed}: no task has a solution and a verifier of {', '.join(VERIFIERS)}")
    return files


def _more_solutions(path: Path) -> dict[str, list[str]]:
    if not path.exists():
        return {}
    lines = (line.value for line in read_lines(path) if line.value is not None)
    return {str(line.get("id")): [one for one in line.get("solutions", ()) if parse(one)] for line in lines}


async def strengths(
    tasks: Sequence[Task], others: Mapping[str, list[str]], out: Path, judge: JudgeSettings, how: Measurement
) -> dict[str, Strength | None]:
    """The strength of every task by id, with a progress bar; None if the sandbox could not run it.

    others: more solutions by id. Complete results are kept in `out`/strength.jsonl and read from there.
    """
    journal = Journal(out / "strength.jsonl")
    places = asyncio.Semaphore(_AT_A_TIME)
    sandbox = sandbox_at(judge.sandbox_url, judge.sandbox_isolation)
    results: dict[str, Strength | None] = {}
    with Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task("auditing tests", total=len(tasks))

        async def one(task: Task) -> None:
            more = others.get(task.id, [])
            digest = hashlib.sha256(json.dumps([_VERSION, judge.record(), vars(how), more]).encode()).hexdigest()[:16]
            key = f"{task.id}/{task.fingerprint()}/{digest}"
            if key in journal:
                results[task.id] = Strength.of_record(journal[key])
            else:
                async with places:
                    try:
                        result = results[task.id] = await measured(task, sandbox, how, more)
                        if not result.unjudged:
                            journal.add(key, result.record())
                    except InfrastructureError:
                        results[task.id] = None
            progress.advance(bar)

        try:
            await asyncio.gather(*map(one, tasks))
        finally:
            journal.close()
    return results


def _copies(
    files: Sequence[TaskFile],
    results: dict[str, Strength | None],
    options: argparse.Namespace,
    judge: JudgeSettings,
) -> None:
    """Write the copies that the options ask for and print what each one is."""
    for file in files:
        name = f"{file.path.parent.name}/{file.path.name}"
        weak = {
            task.id for task in file.tasks if (one := results.get(task.id)) and one.standing(options.strength) == "weak"
        }
        if options.leave_out:
            kept = [task for task in file.tasks if task.id not in weak]
            _write(options.out / "left_out" / name, kept, f"without {len(weak):,} weak problems")
        if options.more_tests:
            more = [with_tests(task, one.added) if (one := results.get(task.id)) else task for task in file.tasks]
            changed = [number for number, task in enumerate(more) if task != file.tasks[number]]
            errors = prove([more[number] for number in changed], options.out / "proved.jsonl", judge)
            refused = [number for number, error in zip(changed, errors, strict=True) if error != "none"]
            for number in refused:
                print(f"{file.tasks[number].id}: its solution fails with more tests, which were not added")
                more[number] = file.tasks[number]
            _write(options.out / "more_tests" / name, more, f"more tests for {len(changed) - len(refused):,} problems")


def _write(path: Path, tasks: Sequence[Task], what: str) -> None:
    if not tasks:
        print(f"{path}: not written, no problem is left")
        return
    write_tasks(path, tasks)
    write_task_rows(path.with_suffix(".parquet"), tasks)
    print(f"{path}, {path.with_suffix('.parquet').name}: {len(tasks):,} problems, {what}")


def _refuse_equal_names(files: Sequence[TaskFile], options: argparse.Namespace) -> None:
    names = [(file.path.parent.name, file.path.name) for file in files]
    if (options.more_tests or options.leave_out) and len(set(names)) < len(names):
        raise DataFileError("two files have the same folder and name, and so would their copies: audit them separately")


def audit(options: argparse.Namespace) -> int:
    """Audit the files of the options, write the report and the copies, print a summary; returns the exit status."""
    judge = judge_of(options)
    files = read(options.files)
    _refuse_equal_names(files, options)
    how = Measurement(options.mutants, options.inputs, options.timeout, judge.memory_mb, options.seed)
    tasks = [task for file in files for task in file.tasks]
    usable = list(filter(is_measurable, tasks))
    more = {name: found for file in files for name, found in file.solutions.items()}
    results = asyncio.run(strengths(usable, more, options.out, judge, how))
    judged = [one for task in usable if (one := results[task.id]) is not None]
    with complete_file(options.out / "audit_tests.md") as temporary:
        temporary.write_text(report(judged, options.strength), encoding="utf-8")
    _copies(files, results, options, judge)
    counts = counts_of(judged, options.strength)
    print(
        f"{len(judged):,} problems, line {options.strength:g}: {counts['strong']:,} strong, {counts['weak']:,} weak, "
        f"{counts['unknown']:,} unknown; see {options.out / 'audit_tests.md'}"
    )
    if others := len(tasks) - len(usable):
        print(f"{others:,} tasks not audited: without a solution, or of another verifier than {', '.join(VERIFIERS)}")
    lost, partly = len(usable) - len(judged), sum(one.unjudged > 0 for one in judged)
    if lost or partly:
        print(
            f"data_prep.audit_tests: the sandbox failed for {lost} problems and parts of {partly}; run again to resume",
            file=sys.stderr,
        )
    return 1 if lost or partly else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m data_prep.audit_tests", description=__doc__)
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help="tasks as JSON Lines")
    parser.add_argument("--out", type=Path, default=_OUT, help=f"output folder (default: {_OUT})")
    parser.add_argument("--strength", type=share, default=0.8, help="share of wrong programs that strong tests reject")
    parser.add_argument("--more-tests", action="store_true", help="write copies with tests that reject the survivors")
    parser.add_argument("--leave-out", action="store_true", help="write copies without the weak problems")
    parser.add_argument("--mutants", type=positive, default=Measurement.mutants, help="most wrong programs per problem")
    parser.add_argument("--inputs", type=positive, default=Measurement.inputs, help="most new inputs per problem")
    parser.add_argument("--timeout", type=_seconds, default=Measurement.timeout, help="seconds per test of a program")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--experiment", metavar="NAME", help="judge as this file of configs/experiment does")
    options = parser.parse_args(arguments)
    try:
        return audit(options)
    except (DataFileError, OSError) as error:
        print(f"data_prep.audit_tests: {error}", file=sys.stderr)
        return 1


def _seconds(text: str) -> float:
    value = float(text)
    if not 0.0 < value < 1000.0:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds above 0")
    return value


if __name__ == "__main__":
    sys.exit(main())
