"""The task: one problem with its ground truth and its solution, if any, as a line of JSON.

Sources make tasks, governance reads them, and rows for verl are made from them. Fields: docs/reference/data.md.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from data_prep.json_lines import read_lines, write_lines
from data_prep.schema import DataFileError, ExtraInfo, Message, RewardModel, Row, explain, write_rows
from data_prep.splits import Role, is_reserved
from rewards import registry

TaskPart = Literal["prompt", "solution"]


class Task(BaseModel):
    """One problem of one source."""

    model_config = ConfigDict(extra="forbid")

    id: str = Field(min_length=1, description="unique, begins with the source: mbpp/601")
    source: str = Field(min_length=1)
    split: str = Field(min_length=1, description="as the source names it")
    role: Role
    skill: str = Field(min_length=1, description="what schedules and protection group by")
    verifier: str = Field(min_length=1, description="judges answers; a row's data_source")
    prompt: str = Field(min_length=1)
    ground_truth: dict[str, Any] = Field(description="what the verifier needs")
    solution: str | None = Field(default=None, description="an answer that scores the maximum")
    licence: str = "unknown"
    notes: dict[str, int | float | str | bool] = Field(default_factory=dict, description="facts for extra_info")

    @model_validator(mode="after")
    def _its_role_is_allowed(self) -> "Task":
        if is_reserved(self.id) and self.role != "test":
            raise ValueError(f"{self.id} is reserved for testing and can't have the role '{self.role}'")
        return self

    @model_validator(mode="after")
    def _the_verifier_can_read_its_ground_truth(self) -> "Task":
        try:
            registry.validate_ground_truth(self.verifier, json.dumps(self.ground_truth))
        except ValidationError as error:
            raise ValueError(f"ground_truth is not for verifier '{self.verifier}': {explain(error)}") from error
        except (SyntaxError, RecursionError, MemoryError) as error:
            raise ValueError(f"ground_truth is not for verifier '{self.verifier}': no Python ({error})") from error
        return self

    def fingerprint(self) -> str:
        """A hash of everything that determines how the model is prompted and how its answers are judged."""
        parts = [self.prompt, self.verifier, json.dumps(self.ground_truth, sort_keys=True), self.solution]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]

    def row(self, index: int) -> Row:
        """The row that verl reads, without the solution."""
        extra = ExtraInfo.model_validate(
            self.notes
            | {"split": self.split, "index": index, "id": self.id, "role": self.role, "source": self.source}
            | {"licence": self.licence}
        )
        return Row(
            data_source=self.verifier,
            prompt=[Message(role="user", content=self.prompt)],
            ability=self.skill,
            reward_model=RewardModel(ground_truth=json.dumps(self.ground_truth)),
            skill=self.skill,
            extra_info=extra,
        )


def checked_tasks(path: Path) -> Iterator[tuple[int, Task | str]]:
    """Every line of a task file with its number: the task, or the reason why it is invalid. Ids must be unique."""
    seen: dict[str, int] = {}
    for line in read_lines(path):
        if line.value is None:
            yield line.number, line.reason
            continue
        try:
            task = Task.model_validate(line.value)
        except ValidationError as error:
            yield line.number, explain(error)
            continue
        first = seen.setdefault(task.id, line.number)
        yield line.number, task if first == line.number else f"the id '{task.id}' is also in line {first}"


def read_tasks(path: Path) -> list[Task]:
    """The tasks of a file; DataFileError names the first bad line."""
    tasks = []
    for number, found in checked_tasks(path):
        if isinstance(found, str):
            raise DataFileError(f"{path}:{number}: {found}; see python -m data_prep.validate {path}")
        tasks.append(found)
    if not tasks:
        raise DataFileError(f"{path}: has no tasks; make it again with python -m data_prep.sources.<source>")
    return tasks


def write_tasks(path: Path, tasks: Iterable[Task]) -> int:
    """Write tasks as JSON Lines and return their number."""
    return write_lines(path, (task.model_dump() for task in tasks))


def write_task_rows(path: Path, tasks: Iterable[Task]) -> int:
    """Write tasks as the parquet file that verl reads and return its number of rows."""
    return write_rows(path, (task.row(index) for index, task in enumerate(tasks)))
