"""Learning signal of data sets: ``python -m recipe.probe --model FOLDER --data FILE.parquet ... --out DIR``.

Takes the options of ``recipe.evaluate``, samples every prompt several times (``--samples``), and reports accuracy,
share of tests passed, share of mixed groups, reward variance and entropy of each data set and prompt.
``DIR/<data set>.parquet`` gets the prompts that carry signal and may be trained on.
"""

import recipe.runtime.quiet  # noqa: F401  (before the stack is imported)

import json  # isort: skip
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.table import Table

from data_prep.json_lines import write_lines
from data_prep.schema import DataFileError, read_rows, write_rows
from data_prep.splits import may_train
from recipe.evaluate import RequestError, budget_of, evaluate, explain, parser
from recipe.evaluation import ServerError
from recipe.evaluation.folder import FolderError
from recipe.evaluation.metrics import by_data_set, group, measure
from recipe.evaluation.samples import Problem, Sample, data_files
from recipe.records.run_directory import write_atomically
from recipe.records.tables import cut_warnings, table_console

# If all answers to a problem earn the same reward, their group-relative advantages are zero. Ranges of the accuracy and
# the entropy, and what the variance of the reward is above (sources: docs/how-to/evaluate.md).
ACCURACY, ENTROPY, VARIANCE = (0.1, 0.8), (0.2, 0.8), 0.05
# Accuracies beyond which a data set is unsuitable, not only hard or easy.
HOPELESS, SOLVED = 0.05, 0.95


@dataclass(frozen=True)
class Signal:
    """Learning signal; for a data set, means over its problems.

    accuracy: share of accepted answers. variance: of the reward over answers. entropy: in nats per generated token,
    None if the server returned no log-probabilities. pass_ratio: mean share of tests passed. mixed: share of problems
    with accepted and other answers, so with a gradient.
    """

    accuracy: float
    variance: float
    entropy: float | None
    pass_ratio: float
    mixed: float = 0.0


def signal(samples: Sequence[Sample]) -> Signal:
    """Signal of one problem, from its judged samples (at least one); entropy is a mean over tokens."""
    rewards = [sample.reward for sample in samples if sample.reward]
    measured = [
        (sample.answer.entropy, sample.answer.tokens) for sample in samples if sample.answer.entropy is not None
    ]
    tokens = sum(count for _, count in measured)
    entropy = sum(value * count for value, count in measured) / tokens if tokens else None
    accuracy, pass_ratio = (float(np.mean([reward[name] for reward in rewards])) for name in ("acc", "pass_ratio"))
    variance = float(np.var([reward["score"] for reward in rewards]))
    return Signal(accuracy, variance, entropy, pass_ratio, float(0 < accuracy < 1))


def mean_signal(signals: Sequence[Signal]) -> Signal:
    """Signal of a data set, from its problems (at least one)."""
    entropies = [found.entropy for found in signals if found.entropy is not None]
    names = ("accuracy", "variance", "pass_ratio", "mixed")
    means = {name: float(np.mean([getattr(item, name) for item in signals])) for name in names}
    return Signal(entropy=float(np.mean(entropies)) if entropies else None, **means)


def verdict(signal: Signal) -> list[str]:
    """Messages about values out of range, with advice; empty if all are in range."""
    messages = []
    if signal.accuracy < ACCURACY[0]:
        advice = "train it on demonstrations first" if signal.accuracy < HOPELESS else "add easier problems"
        messages.append(f"accuracy {signal.accuracy:.1%} is below {ACCURACY[0]:.0%}: {advice}")
    if signal.accuracy > ACCURACY[1]:
        advice = "choose a harder set" if signal.accuracy > SOLVED else "add harder problems"
        messages.append(f"accuracy {signal.accuracy:.1%} is above {ACCURACY[1]:.0%}: {advice}")
    if signal.variance <= VARIANCE:
        messages.append(f"reward variance {signal.variance:.3f} is not above {VARIANCE}: most groups teach nothing")
    if signal.entropy is not None and signal.entropy < ENTROPY[0]:
        messages.append(f"entropy {signal.entropy:.2f} is below {ENTROPY[0]}: the model repeats itself")
    if signal.entropy is not None and signal.entropy > ENTROPY[1]:
        messages.append(f"entropy {signal.entropy:.2f} is above {ENTROPY[1]}: the model guesses")
    return messages


def prompts_with_signal(signals: Mapping[str, Signal], min_variance: float) -> set[str]:
    """The problems with a reward variance above `min_variance`."""
    return {problem for problem, found in signals.items() if found.variance > min_variance}


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


def write_prompts_with_signal(path: Path, source: Path, problems: Sequence[Problem], keep: set[str]) -> tuple[int, int]:
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
            keep = prompts_with_signal(signals.get(dataset, {}), chosen.min_variance)
            of_dataset = [problem for problem in problems if problem.dataset == dataset]
            path = chosen.out / f"{dataset}.parquet"
            rows, reserved = write_prompts_with_signal(path, source, of_dataset, keep)
            written = f"{path}: {rows} of {len(of_dataset)} prompts" if rows else f"{dataset}: no prompt to train on"
            print(written + (f"; {reserved} more carry signal but may not be trained on" if reserved else ""))
    except (DataFileError, FolderError, RequestError, ServerError, OSError) as error:
        return explain(error, chosen.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
