"""Perplexity of held-out text before and after training: did it change what it does not name?

Under each model, a Hugging Face folder, and each run, whose last checkpoint is exported for it, with its change against
the first model and an interval over blocks of the text. Computed in float32. Each run records its loss, which
``recipe.keep`` keeps and ``recipe.report general`` compares over arms; one that has recorded it for this text is not
measured again.
"""

import argparse
import json
import statistics
import tempfile
from dataclasses import asdict
from pathlib import Path

from recipe.evaluation.exported import ExportError, checkpoint, merge
from recipe.evaluation.general import EVENT, general_loss
from recipe.evaluation.perplexity import (
    BLOCK,
    Text,
    TextError,
    change_table,
    changes,
    measure,
    read_text,
)
from recipe.records.run_directory import RunDirectory, write_atomically


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subcommand."""
    parser.add_argument("--models", nargs="+", type=Path, required=True, metavar="FOLDER", help="the first: before")
    parser.add_argument("--runs", nargs="+", type=Path, default=[], metavar="RUN", help="runs with a checkpoint")
    parser.add_argument("--text", nargs="+", type=Path, required=True, help="files, or folders of *.md and *.txt")
    parser.add_argument("--block", type=int, default=BLOCK, help=f"tokens of a block (default {BLOCK})")
    parser.add_argument("--blocks", type=int, help="only the first N blocks (default: all)")
    parser.add_argument("--out", type=Path, help="also write perplexity.md and perplexity.json there")


def run(options: argparse.Namespace) -> None:
    """Run the subcommand."""
    if options.block < 2:
        raise TextError(f"--block {options.block}: a block has at least two tokens")
    if options.blocks is not None and options.blocks < 1:
        raise TextError(f"--blocks {options.blocks}: at least one")
    text = read_text(options.text)
    runs = [RunDirectory.existing(path) for path in options.runs]
    known = [one for one in runs if _has_recorded(one, text, options)]
    if known:
        print(f"measured before: {', '.join(str(one.path) for one in known)}")
    if known == runs and runs and len(options.models) == 1 and not options.out:
        return
    by_model = measure(options.models, text.content, options.block, options.blocks)
    for one in runs:
        if one not in known:
            by_model |= _measured(one, options.models[0], by_model, text, options)
    compared = changes(by_model)
    about = f"{len(next(iter(by_model.values())))} blocks of {options.block} tokens, text {text.digest}"
    table = f"{about}\n\n{change_table(compared)}"
    print(table)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        numbers = {"text": text.digest, "block": options.block, "models": [asdict(one) for one in compared]}
        write_atomically(options.out / "perplexity.md", f"{table}\n")
        write_atomically(options.out / "perplexity.json", json.dumps(numbers, indent=1) + "\n")


def _has_recorded(run: RunDirectory, text: Text, options: argparse.Namespace) -> bool:
    """Whether the run has recorded its loss of as much of the same text."""
    known = general_loss(run)
    return (
        known is not None
        and (known.text, known.block) == (text.digest, options.block)
        and options.blocks in (None, known.blocks)
    )


def _measured(
    run: RunDirectory, first: Path, by_model: dict[str, list[float]], text: Text, options: argparse.Namespace
) -> dict[str, list[float]]:
    """The losses of a run's last checkpoint, which the run records beside those of the first model."""
    try:
        actor = checkpoint(run, None)
        with tempfile.TemporaryDirectory(dir=run.path, prefix=".exported.") as folder:
            model = Path(folder) / "model"
            merge(actor, run.read_config().actor_rollout_ref.model.path, model)
            (losses,) = measure([model], text.content, options.block, options.blocks, like=first).values()
    except ExportError as error:
        raise TextError(str(error)) from error
    run.log_before_end(
        EVENT, text=text.digest, block=options.block, blocks=len(losses),
        before=statistics.fmean(by_model[str(first)]), after=statistics.fmean(losses),
    )  # fmt: skip
    return {str(run.path): losses}
