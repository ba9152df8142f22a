"""What runs did to text that they never name, by the event that `recipe.report perplexity` records in each."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from recipe.records.intervals import Interval, t_interval
from recipe.records.online import paired_p
from recipe.records.run_directory import RunDirectory
from recipe.records.tables import markdown_table

EVENT = "general"


@dataclass(frozen=True)
class GeneralLoss:
    """Mean loss of a text (nats per token) under the model before training and under the run's last one.

    text: its digest. block: tokens of a block; blocks: how many were measured.
    """

    text: str
    block: int
    blocks: int
    before: float
    after: float

    @property
    def change(self) -> float:
        return self.after - self.before


Losses = Mapping[str, Mapping[str, GeneralLoss]]
"""Arm -> repeat -> loss."""


@dataclass(frozen=True)
class GeneralRow:
    """An arm's mean change of the loss over runs, and against another arm over pairs of runs."""

    arm: str
    runs: int
    perplexity_before: float
    change: Interval
    pairs: int
    difference: Interval | None
    p: float | None


def general_loss(run: RunDirectory) -> GeneralLoss | None:
    """The run's last measurement; None without one."""
    events = [event for event in run.events() if event["event"] == EVENT]
    if not events:
        return None
    last = events[-1]
    return GeneralLoss(
        str(last["text"]), int(last["block"]), int(last["blocks"]), float(last["before"]), float(last["after"])
    )


def general_rows(losses: Losses, against: str) -> list[GeneralRow]:
    """One row per arm, with its paired difference from `against` in runs of the same repeat."""
    others = losses.get(against, {})
    rows = []
    for arm, own in losses.items():
        gains = [own[repeat].change - others[repeat].change for repeat in own if repeat in others]
        compared = bool(gains) and arm != against
        rows.append(
            GeneralRow(
                arm=arm,
                runs=len(own),
                perplexity_before=math.exp(next(iter(own.values())).before),
                change=t_interval([one.change for one in own.values()]),
                pairs=len(gains) if compared else 0,
                difference=t_interval(gains) if compared else None,
                p=paired_p(gains) if compared else None,
            )
        )
    return rows


def general_table(rows: Sequence[GeneralRow], against: str) -> str:
    """The rows as a Markdown table; above 0 is loss."""
    lines = [
        [
            row.arm, str(row.runs), f"{row.perplexity_before:.2f}", row.change.text(4, sign="+"),
            row.difference.text(4, sign="+") if row.difference else "-", "-" if row.p is None else f"{row.p:.4f}",
        ]
        for row in rows
    ]  # fmt: skip
    head = ["arm", "runs", "perplexity before", "change (nats per token)", f"minus {against}", "p"]
    return markdown_table(head, lines)
