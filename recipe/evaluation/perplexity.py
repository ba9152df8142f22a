"""Perplexity of text that training never names: what a model's other abilities cost, block by block."""

import hashlib
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from recipe.records.arms import ReportError
from recipe.records.intervals import Interval, bootstrap_interval
from recipe.records.tables import markdown_table

Blocks = Sequence[Sequence[int]]
BLOCK = 512
"""Tokens of a block."""


class TextError(ReportError):
    """The text or a model cannot be measured; the message addresses the user."""


@dataclass(frozen=True)
class Text:
    """Held-out text and its digest (SHA-256, 12 digits)."""

    content: str
    digest: str


@dataclass(frozen=True)
class Change:
    """A model's mean loss, and its difference from the first model's over the same blocks; nats per token."""

    model: str
    loss: Interval
    change: Interval | None

    @property
    def perplexity(self) -> float:
        return math.exp(self.loss.estimate)


def read_text(paths: Iterable[Path]) -> Text:
    """The files, and those of folders (*.md, *.txt) in the order of their names, joined by blank lines.

    Raises:
        TextError: a path is missing, or no file has text.
    """
    files: list[Path] = []
    for path in paths:
        if not path.exists():
            raise TextError(f"no such file or folder: {path}")
        files += sorted(one for one in path.rglob("*") if one.suffix in (".md", ".txt")) if path.is_dir() else [path]
    try:
        content = "\n\n".join(file.read_text(encoding="utf-8") for file in files).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise TextError(f"the text cannot be read: {error}") from error
    if not content:
        raise TextError(f"no text in {', '.join(map(str, paths))}: name files, or folders of *.md and *.txt")
    return Text(content, hashlib.sha256(content.encode()).hexdigest()[:12])


def blocks_of(ids: Sequence[int], length: int) -> Blocks:
    """Whole blocks of `length` tokens in order, without the rest; the text itself if it is shorter than one.

    Raises:
        TextError: fewer than two tokens: nothing to predict.
    """
    if len(ids) < 2:
        raise TextError("the text has fewer than two tokens")
    whole = [ids[start : start + length] for start in range(0, len(ids) - length + 1, length)]
    return whole or [ids]


def losses(network: Any, blocks: Blocks) -> Iterator[float]:
    """Mean loss (nats per token) of each block, predicted from its own beginning."""
    import torch

    for block in blocks:
        ids = torch.tensor([list(block)], device=network.device)
        with torch.no_grad():
            yield float(network(input_ids=ids, labels=ids).loss)


def measure(
    models: Sequence[Path], content: str, length: int, most: int | None = None, like: Path | None = None
) -> dict[str, list[float]]:
    """Loss of each block of the text, or of its first `most` blocks, by model in the given order. Computed in float32.

    like: a model whose tokens theirs must be (default: the first).

    Raises:
        TextError: a folder is not a model, or its tokens are not those of `like`.
    """
    import torch  # seconds, which other reports need not wait
    from transformers import AutoModelForCausalLM

    by_model: dict[str, list[float]] = {}
    like = like or models[0]
    known = _token_ids(like, content)
    for folder in models:
        if folder != like and _token_ids(folder, content) != known:
            raise TextError(f"{folder} and {like} have different tokenizers: their losses per token differ")
        network: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        limit = min(length, getattr(network.config, "max_position_embeddings", length))
        by_model[str(folder)] = []
        blocks = blocks_of(known, limit)[:most]
        for number, loss in enumerate(losses(network, blocks), 1):
            by_model[str(folder)].append(loss)
            if number % 20 == 0 or number == len(blocks):
                print(f"{folder}: {number} of {len(blocks)} blocks", file=sys.stderr)
    return by_model


def _token_ids(model: Path, content: str) -> Sequence[int]:
    """The text in the model's tokens; TextError if the folder is not a model."""
    from transformers import AutoTokenizer

    if not (model / "config.json").exists():
        raise TextError(f"{model} is not a Hugging Face folder; python -m recipe.export RUN makes one of a run")
    tokenizer: Any = AutoTokenizer.from_pretrained(model)
    ids: Sequence[int] = tokenizer(content, add_special_tokens=False, verbose=False)["input_ids"]
    return ids


def changes(by_model: Mapping[str, Sequence[float]]) -> list[Change]:
    """Each model's loss with a bootstrap interval over blocks, and its paired difference from the first model's."""
    first = np.asarray(next(iter(by_model.values())))
    return [
        Change(
            name,
            bootstrap_interval(own),
            bootstrap_interval(np.asarray(own) - first) if number else None,
        )
        for number, (name, own) in enumerate(by_model.items())
    ]


def change_table(models: Sequence[Change]) -> str:
    """The models as a Markdown table."""
    rows = [
        [
            one.model, f"{one.perplexity:.2f}", one.loss.text(3), one.change.text(4, sign="+") if one.change else "-",
        ]
        for one in models
    ]  # fmt: skip
    return markdown_table(["model", "perplexity", "nats per token [95%]", "change [95%]"], rows)
