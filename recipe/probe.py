"""Learning signal of data sets: ``python -m recipe.probe --model FOLDER --data FILE.parquet ... --out DIR``.

Takes the options of ``recipe.evaluate``, samples every prompt several times (``--samples``), and reports accuracy,
share of tests passed, share of mixed groups, reward variance and entropy of each data set and prompt.
``DIR/<data set>.parquet`` gets the prompts that carry signal and may be trained on.
"""

import recipe.runtime.quiet  # noqa: F401  (before the stack is imported)

import json  # isort: skip
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.table import Table

from data_prep.json_lines import write_lines
from data_prep.schema import DataFileError, read_rows, write_rows
from data_prep.splits import may_train
from recipe.evaluate import RequestError, budget_of, evaluate, explain, parser
from recipe.evaluation.folder import FolderError
from recipe.evaluation.metrics import by_data_set, group, measure
from recipe.evaluation.samples import Problem, Sample, data_files
from recipe.evaluation.servers import ServerError
from recipe.evaluation.signal import VARIANCE, Signal, carrying, mean_signal, signal, verdict
from recipe.records.run_directory import write_atomically
from recipe.records.tables import cut_warnings, table_console

Signals = dict[str, dict[str, Signal]]


def signals_of(samples: Iterable[Sample]) -> Signals:
    """Data set -> problem -> signal, for all judged problems."""
    datasets: dict[str, list[Sample]] = {}
    for sample in samples:
        datasets.setdefault(sample.dataset, []).append(sample)
    grouped = {dataset: group(found) for dataset, found in datasets.items()}
    return {
        name: {id: signal(found) for id, found in problems.items()} for name, problems in grouped.items() if problems
    }


def write_probe(out: Path, signals: Signals) -> None:
    """Write `probe.json`, with each data set's verdict, and `prompts.jsonl`, with each prompt's signal."""
    means = {dataset: mean_signal(list(found.values())) for dataset, found in signals.items()}
    summary = {dataset: asdict(mean) | {"verdict": verdict(mean) or ["in range"]} for dataset, mean in means.items()}
    write_atomically(out / "probe.json", json.dumps(summary, indent=2) + "\n")
    lines = (
        {"dataset": name, "id": id} | asdict(item) for name, found in signals.items() for id, item in found.items()
    )
    write_lines(out / "prompts.jsonl", lines)


def write_carrying(path: Path, source: Path, problems: Sequence[Problem], keep: set[str]) -> tuple[int, int]:
    """Write the rows of `source` in `keep` that may be trained on; returns their number, and the number of those in
    `keep` that may not be trained on.
    """
    allowed = {problem.id for problem in problems if may_train(problem.id, problem.role)}
    rows = [row for row in read_rows(source) if row.extra_info.id in keep & allowed]
    if rows:
        write_rows(path, rows)
    return len(rows), len(keep - allowed)


def table(signals: Signals) -> Table:
    """A table of the data sets: mean signal and verdict."""
    names = ("data set", "prompts", "accuracy", "tests passed", "mixed groups", "variance", "entropy", "verdict")
    result = Table(*names, title="learning signal")
    for dataset, of_prompts in signals.items():
        mean = mean_signal(list(of_prompts.values()))
        entropy = "-" if mean.entropy is None else f"{mean.entropy:.2f}"
        verdicts = "\n".join(verdict(mean)) or "in range"
        shares = f"{mean.accuracy:.1%}", f"{mean.pass_ratio:.1%}", f"{mean.mixed:.1%}"
        result.add_row(dataset, str(len(of_prompts)), *shares, f"{mean.variance:.3f}", entropy, verdicts)
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = parser("probe", __doc__)
    options.add_argument(
        "--min-variance",
        type=float,
        default=VARIANCE,
        help=f"minimal reward variance of a prompt to keep (default {VARIANCE})",
    )
    chosen = options.parse_args(arguments)
    try:
        budget = budget_of(chosen, "eval@k", entropy=True)
        _, problems, samples = evaluate(chosen, budget)
        signals = signals_of(samples)
        write_probe(chosen.out, signals)
        table_console().print(table(signals))
        for line in cut_warnings({name: measure(found, budget) for name, found in by_data_set(samples).items()}):
            print(line, file=sys.stderr)
        for dataset, source in data_files(chosen.data).items():
            keep = carrying(signals.get(dataset, {}), chosen.min_variance)
            of_dataset = [problem for problem in problems if problem.dataset == dataset]
            path = chosen.out / f"{dataset}.parquet"
            rows, reserved = write_carrying(path, source, of_dataset, keep)
            written = f"{path}: {rows} of {len(of_dataset)} prompts" if rows else f"{dataset}: no prompt to train on"
            print(written + (f"; {reserved} more carry signal but may not be trained on" if reserved else ""))
    except (DataFileError, FolderError, RequestError, ServerError, OSError) as error:
        return explain(error, chosen.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
