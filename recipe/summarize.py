"""A Markdown table over runs, accuracy before and after: ``python -m recipe.summarize RUN_DIRECTORY ...``."""

import sys
from pathlib import Path

from recipe.records.experiment_page import skill_table
from recipe.records.precision import cautions
from recipe.records.run_directory import RunDirectory


def summarize(runs: list[RunDirectory]) -> str:
    """Accuracy at the first and the last validation of each run, as Markdown: sampled, per skill and in the mean, and
    the mean of greedy answers.

    Raises:
        ValueError: a folder holds no run with a validation, or the runs have different skills.
    """
    tables = {run: skill_table(run) for run in runs}
    for run, table in tables.items():
        if not table:
            raise ValueError(f"{run.path} holds no run with a validation")
    skills = [row.skill for row in tables[runs[0]]]
    lines = [
        f"| run | updates | {' | '.join(skills)} | change of the mean (points) | mean, greedy |",
        "|---|---:|" + "---:|" * (len(skills) + 2),
    ]
    for run, table in tables.items():
        if [row.skill for row in table] != skills:
            raise ValueError(f"{run.path} has other skills than {runs[0].path}")
        cells = [_change(row.before, row.after) for row in table]
        updates = int(run.metrics()[-1]["step"])
        lines.append(
            f"| {run.path.name} | {updates} | {' | '.join(cells)} | {100 * table[-1].change:+.1f} "
            f"| {_change(*table[-1].greedy) if table[-1].greedy else '-'} |"
        )
    return "\n".join([*lines, *(f"\n{caution}" for caution in cautions(runs))])


def _change(before: float, after: float) -> str:
    return f"{100 * before:.1f} -> {100 * after:.1f}"


def main(arguments: list[str]) -> int:
    if not arguments:
        print(__doc__)
        return 2
    try:
        print(summarize([RunDirectory(Path(path)) for path in arguments]))
    except ValueError as error:
        print(f"recipe.summarize: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
