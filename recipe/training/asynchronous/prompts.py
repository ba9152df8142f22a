"""A schedule's prompts one by one: generation runs ahead of training, so a prompt carries its place in the plan."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from recipe.records.run_directory import write_atomically
from recipe.training.schedule import PromptSchedule

DRAWN = "drawn_prompt"
"""Batch field: a `DrawnPrompt` as a dictionary; it travels with the prompt and with each of its samples."""


@dataclass(frozen=True)
class DrawnPrompt:
    """A prompt's place in the plan.

    number: among all prompts of the run, from 0. step: of the plan, from 1; 0 without one. memory: answered for
    constraint gradients, not trained on.
    """

    number: int
    step: int = 0
    memory: bool = False

    def uid(self) -> str:
        """A name for its group; names sort in the order in which the prompts were drawn."""
        return f"{self.number:012d}-{uuid4()}"


class PromptStream:
    """Draws the prompts of a plan's steps in order; past the last step, that step's again.

    schedule: None where verl's dataloader draws the rows, which then are only numbered.
    """

    FILE = "prompts.json"

    def __init__(self, schedule: PromptSchedule | None):
        self._schedule = schedule
        self._number = self._step = 0
        self._waiting: list[tuple[int, bool]] = []  # rows of the step that are not drawn yet, with their memory flags

    def number(self) -> DrawnPrompt:
        """The next prompt without a plan."""
        self._number += 1
        return DrawnPrompt(self._number - 1)

    def draw(self) -> tuple[int, DrawnPrompt]:
        """The row of the next prompt, and its place in the plan."""
        assert self._schedule is not None
        if not self._waiting:
            self._step = min(self._step + 1, self._schedule.plan.steps)
            prompts = self._schedule.at(self._step)
            self._waiting = list(zip(prompts.rows, prompts.memory, strict=True))
        row, memory = self._waiting.pop(0)
        self._number += 1
        return row, DrawnPrompt(self._number - 1, self._step, memory)

    def save(self, folder: Path) -> None:
        """Write what is drawn next into a checkpoint's folder."""
        folder.mkdir(parents=True, exist_ok=True)
        state = {"number": self._number, "step": self._step, "waiting": self._waiting}
        write_atomically(folder / self.FILE, json.dumps(state))

    def load(self, folder: Path, step: int) -> None:
        """Load what `save` wrote; after a checkpoint of a synchronous run, of this step, the plan's next one comes."""
        if not (folder / self.FILE).exists():
            self._step = step
            return
        state = json.loads((folder / self.FILE).read_text())
        self._number, self._step = state["number"], state["step"]
        self._waiting = [(int(row), bool(memory)) for row, memory in state["waiting"]]


def place_metrics(drawn: Iterable[DrawnPrompt], stages: Sequence[int]) -> dict[str, float]:
    """``async/earlier_stage_groups``: groups from an earlier stage than the latest in their batch.

    drawn: one for each group. stages: of the plan's steps.
    """
    found = [stages[each.step - 1] for each in drawn]
    return {"async/earlier_stage_groups": float(sum(stage < max(found) for stage in found))}


def version_metrics(tags: Mapping[str, Sequence[Mapping[str, Any]]], step: int) -> dict[str, float]:
    """How far the weights that answered lag behind those of this step. tags: verl's, of each group's samples.

    ``async/stale_groups``: groups with a token of earlier weights. ``async/continued_samples``: samples begun with
    other weights than they ended with.
    """
    current = step - 1  # verl numbers weights by the step that trained them
    samples = [tag for group in tags.values() for tag in group]
    stale = [any(tag["min_global_steps"] < current for tag in group) for group in tags.values()]
    continued = [tag["min_global_steps"] < tag["max_global_steps"] for tag in samples]
    return {"async/stale_groups": float(sum(stale)), "async/continued_samples": float(sum(continued))}
