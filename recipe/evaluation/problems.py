"""The problems of an evaluation, by data set."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_prep.schema import DEFAULT_AGENT, DataFileError, Row, read_rows


@dataclass(frozen=True)
class Problem:
    """One row of a data file, as it is asked and judged. `role` is that of data_prep/roles.py, None where not told."""

    dataset: str
    id: str
    skill: str
    verifier: str
    messages: tuple[dict[str, str], ...]
    ground_truth: str
    role: str | None
    agent: str = DEFAULT_AGENT

    @property
    def key(self) -> tuple[str, str]:
        return self.dataset, self.id


def read_data_sets(texts: Sequence[str], limit: int | None = None) -> list[Problem]:
    """The problems of files named as `FILE.parquet` (named after its folder and stem) or `NAME=FILE.parquet`.

    limit: at most so many of each file, from its beginning. DataFileError for a file or a row that does not fit, a
    name or an id that is there twice.
    """
    problems: list[Problem] = []
    for name, path in data_files(texts).items():
        problems += [_problem(name, row) for row in read_rows(path)[:limit]]
    seen: set[tuple[str, str]] = set()
    for problem in problems:
        if problem.key in seen:
            raise DataFileError(f"{problem.dataset}: two rows have the id '{problem.id}'; ids must be unique in a file")
        seen.add(problem.key)
    return problems


def data_files(texts: Sequence[str]) -> dict[str, Path]:
    """Name and file of each data set; DataFileError when two have the same name."""
    files: dict[str, Path] = {}
    for text in texts:
        name, _, file = text.rpartition("=")
        path = Path(file).expanduser()
        name = name or f"{path.absolute().parent.name}_{path.stem}"
        if name in files or "/" in name:
            raise DataFileError(f"{text}: the name '{name}' is taken or has a slash; name the set: NAME=FILE.parquet")
        files[name] = path
    return files


def _problem(name: str, row: Row) -> Problem:
    messages = tuple({"role": message.role, "content": message.content} for message in row.prompt)
    extra: dict[str, Any] = row.extra_info.model_extra or {}
    truth = row.reward_model.ground_truth
    return Problem(
        name, row.extra_info.id, row.skill, row.data_source, messages, truth, extra.get("role"), row.agent_name
    )
