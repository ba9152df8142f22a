"""Perplexity of held-out text before and after training: did it change what it does not name?

Under each model, a Hugging Face folder (``recipe.export`` makes one of a run), with its change against the first and an
interval over blocks of the text. Computed in float32.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from recipe.evaluation.perplexity import TextError, blocks_of, change_table, changes, losses, read_text
from recipe.records.run_directory import write_atomically

BLOCK = 512


def measure(models: Sequence[Path], content: str, length: int) -> dict[str, list[float]]:
    """Loss of each block of the text by model, in the given order.

    Raises:
        TextError: a folder is not a model, or two of them have different tokenizers.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    by_model: dict[str, list[float]] = {}
    known: Sequence[int] | None = None
    for folder in models:
        if not (folder / "config.json").exists():
            raise TextError(f"{folder} is not a Hugging Face folder; python -m recipe.export RUN makes one of a run")
        tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        ids = tokenizer(content, add_special_tokens=False, verbose=False)["input_ids"]
        if known is not None and ids != known:
            raise TextError(f"{folder} and {models[0]} have different tokenizers: their losses per token differ")
        known = ids
        network: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        limit = min(length, getattr(network.config, "max_position_embeddings", length))
        by_model[str(folder)] = []
        blocks = blocks_of(ids, limit)
        for number, loss in enumerate(losses(network, blocks), 1):
            by_model[str(folder)].append(loss)
            if number % 20 == 0 or number == len(blocks):
                print(f"{folder}: {number} of {len(blocks)} blocks", file=sys.stderr)
    return by_model


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subcommand."""
    parser.add_argument("--models", nargs="+", type=Path, required=True, metavar="FOLDER", help="the first: before")
    parser.add_argument("--text", nargs="+", type=Path, required=True, help="files, or folders of *.md and *.txt")
    parser.add_argument("--block", type=int, default=BLOCK, help=f"tokens of a block (default {BLOCK})")
    parser.add_argument("--out", type=Path, help="also write perplexity.md and perplexity.json there")


def run(options: argparse.Namespace) -> None:
    """Run the subcommand."""
    if options.block < 2:
        raise TextError(f"--block {options.block}: a block has at least two tokens")
    text = read_text(options.text)
    by_model = measure(options.models, text.content, options.block)
    compared = changes(by_model)
    about = f"{len(next(iter(by_model.values())))} blocks of {options.block} tokens, text {text.digest}"
    table = f"{about}\n\n{change_table(compared)}"
    print(table)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        numbers = {"text": text.digest, "block": options.block, "models": [asdict(one) for one in compared]}
        write_atomically(options.out / "perplexity.md", f"{table}\n")
        write_atomically(options.out / "perplexity.json", json.dumps(numbers, indent=1) + "\n")
