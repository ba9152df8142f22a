"""Impossible tasks: `python -m data_prep.impossible FILE.jsonl ... --out DIR`.

A test that the prompt shows is changed, in the prompt and in the ground truth, so that it contradicts the text. What
passes the shown tests of such a task special-cases them: their acceptance rate measures reward hacking. Written are
tasks of verifier `code` whose solution passes all tests and fails the changed one in the sandbox, as JSON Lines and as
parquet.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from data_prep.proving import prove
from data_prep.schema import DataFileError
from data_prep.sources.source import judge_of
from data_prep.strength.contradiction import contradict
from data_prep.tasks import Task, read_tasks, write_task_rows, write_tasks
from rewards.settings import JudgeSettings
from rewards.verifiers.code import CodeTruth


def impossible(task: Task) -> Task | None:
    """The impossible version of a task with a solution; None if it has none, or shows no test that can be changed."""
    if task.verifier != "code" or task.solution is None:
        return None
    changed = contradict(task.prompt, CodeTruth.model_validate(task.ground_truth))
    if changed is None:
        return None
    prompt, truth = changed
    fields = {"id": f"{task.id}/impossible", "prompt": prompt, "ground_truth": truth.model_dump()}
    return Task.model_validate(task.model_dump() | fields)


def proved(tasks: Sequence[Task], journal: Path, judge: JudgeSettings) -> tuple[list[Task], int]:
    """The impossible versions whose solution fails the changed test alone, and the number of all versions."""
    pairs = [(task, changed) for task in tasks if (changed := impossible(task)) is not None]
    errors = prove([one for pair in pairs for one in pair], journal, judge)
    judged = zip(pairs, errors[::2], errors[1::2], strict=True)
    return [changed for (_, changed), *both in judged if both == ["none", "wrong_answer"]], len(pairs)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m data_prep.impossible", description=__doc__)
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help="tasks as JSON Lines")
    parser.add_argument("--out", type=Path, required=True, help="output folder")
    parser.add_argument("--experiment", metavar="NAME", help="judge as this file of configs/experiment does")
    options = parser.parse_args(arguments)
    try:
        judge = judge_of(options)
        for file in options.files:
            tasks = read_tasks(file)
            made, changed = proved(tasks, options.out / "proved.jsonl", judge)
            if not made:
                raise DataFileError(
                    f"{file}: no task can be made impossible; it takes verifier code, a solution, and a shown test "
                    "that compares a result with a literal"
                )
            path = options.out / f"{file.absolute().parent.name}_{file.name}"
            write_tasks(path, made)
            write_task_rows(path.with_suffix(".parquet"), made)
            print(
                f"{path}, {path.with_suffix('.parquet').name}: {len(made):,} of {len(tasks):,} tasks; without a shown "
                f"test to change {len(tasks) - changed:,}, not proved {changed - len(made):,}"
            )
    except (DataFileError, OSError) as error:
        print(f"data_prep.impossible: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
