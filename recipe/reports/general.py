"""Text that training never names: each arm's change of its loss over runs, measured by ``recipe.report perplexity``.

RUNS is a folder of run directories named ``<arm>.<repeat>``, or a file written by ``recipe.keep``. Means over runs with
t intervals, and paired differences from --against. Writes ``general.md`` and ``general.json``.
"""

import argparse
import json
from dataclasses import asdict

from recipe.evaluation.general import GeneralLoss, general_loss, general_rows, general_table
from recipe.records.arms import (
    ReportError,
    add_study_options,
    arm_of,
    finished_runs,
    notes_of,
    output_folder,
    repeat_of,
)
from recipe.records.run_directory import write_atomically

add_options = add_study_options


def run(options: argparse.Namespace) -> None:
    """Run the subcommand."""
    runs = finished_runs(options.runs)
    losses: dict[str, dict[str, GeneralLoss]] = {}
    unmeasured = []
    for one in runs:
        if (loss := general_loss(one)) is None:
            unmeasured.append(one.path.name)
        else:
            losses.setdefault(arm_of(one), {})[repeat_of(one)] = loss
    if not losses:
        raise ReportError(f"no run in {options.runs} was measured: python -m recipe.report perplexity --runs RUN ...")
    measures = {
        f"text {loss.text}, {loss.blocks} blocks of {loss.block} tokens, {loss.before:.4f} nats before"
        for own in losses.values() for loss in own.values()
    }  # fmt: skip
    if len(measures) > 1:
        found = "; ".join(sorted(measures))
        raise ReportError(f"the runs were measured differently ({found}): use one text and one starting model for all")
    rows = general_rows(losses, options.against)
    parts = [f"{measures.pop()}; above 0 is loss.", general_table(rows, options.against)]
    if unmeasured:
        parts.append(f"Not measured: {', '.join(unmeasured)}.")
    table = "\n\n".join([*parts, *notes_of(options, runs)])
    print(table)
    out = output_folder(options)
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / "general.md", f"{table}\n")
    write_atomically(out / "general.json", json.dumps([asdict(row) for row in rows], indent=1) + "\n")
