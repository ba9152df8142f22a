"""HTML page of solutions with each step coloured by its credit: green earned reward, red lost some of it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from recipe.records.run_directory import RunDirectory, read_jsonl, write_atomically


@dataclass(frozen=True)
class Piece:
    """A part of a solution: a step with its credit, or text between steps (credit None)."""

    text: str
    credit: float | None = None
    colour: str = "transparent"


def pieces(response: str, spans: Sequence[Sequence[int]], credits: Sequence[float | None]) -> list[Piece]:
    """The whole response in order, split at the steps; colours are relative to the response's largest credit."""
    largest = max((abs(value) for value in credits if value is not None and math.isfinite(value)), default=0.0)
    found, position = [], 0
    for (start, end), value in zip(spans, credits, strict=True):
        found.append(Piece(response[position:start]))
        credit = value if value is not None and math.isfinite(value) else None
        colour = _colour(credit / largest) if credit is not None and largest > 0 else "#eeeeee"
        found.append(Piece(response[start:end], credit, colour))
        position = end
    found.append(Piece(response[position:]))
    return [piece for piece in found if piece.text]


def _colour(share: float) -> str:
    """Green for shares above 0, red below, paler towards 0."""
    hue = 130 if share > 0 else 0
    return f"hsl({hue} 70% {95 - 40 * abs(share):.0f}%)"


def write_credit_page(run: RunDirectory, step: int) -> None:
    """Write ``plots/credit_<step>.html`` from this step's samples in ``generations/``."""
    rows = list(read_jsonl(run.path / "generations" / f"train_{step:06d}.jsonl"))
    samples = [_sample(row) for row in rows if row.get("credit_spans")]
    if not samples:
        return
    environment = Environment(
        loader=PackageLoader("recipe.records"), undefined=StrictUndefined, autoescape=True, trim_blocks=True
    )
    text = environment.get_template("credit.html.j2").render(step=step, samples=samples)
    write_atomically(run.path / "plots" / f"credit_{step:06d}.html", text)


def _sample(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "prompt": row["prompt"],
        "score": row["score"],
        "pass_ratio": row.get("pass_ratio", row["score"]),
        "cause": row.get("credit_cause", ""),
        "pieces": pieces(row["response"], row["credit_spans"], row["credit_values"]),
    }
