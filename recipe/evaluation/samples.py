"""Problems of an evaluation, their samples, and the journal to which each judged sample is appended at once."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from data_prep.schema import DEFAULT_AGENT, DataFileError, Row, read_rows
from recipe.records.run_directory import read_jsonl


@dataclass(frozen=True)
class Problem:
    """One row of a data file: prompt and ground truth. `role` is that of data_prep/splits.py, None if not recorded."""

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
    """The problems of files given as `FILE.parquet` (named after its folder and stem) or `NAME=FILE.parquet`.

    limit: maximum per file, from its beginning. DataFileError for an invalid file or row, or a duplicate name or id.
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
    """Name and file of each data set; DataFileError if two have the same name."""
    files: dict[str, Path] = {}
    for text in texts:
        name, _, file = text.rpartition("=")
        path = Path(file).expanduser()
        name = name or f"{path.absolute().parent.name}_{path.stem}"
        if name in files or "/" in name:
            raise DataFileError(
                f"{text}: the name '{name}' is in use or has a slash; choose another: NAME=FILE.parquet"
            )
        files[name] = path
    return files


def _problem(name: str, row: Row) -> Problem:
    messages = tuple({"role": message.role, "content": message.content} for message in row.prompt)
    extra: dict[str, Any] = row.extra_info.model_extra or {}
    truth = row.reward_model.ground_truth
    return Problem(
        name, row.extra_info.id, row.skill, row.data_source, messages, truth, extra.get("role"), row.agent_name
    )


TOO_LONG = "prompt_too_long"
"""The `finish` of a problem whose prompt exceeds the server's context."""

EPISODE_FAILED = "environment_failed"
"""The `finish` of an agent's episode whose environment could not run; a later run retries it."""


@dataclass(frozen=True)
class Answer:
    """A server's answer. tokens: number of generated tokens; finish: the reason for its end, `stop` or `length`;
    entropy: in nats per token, estimated from the sampled tokens, None if not requested; started, ended: seconds since
    the epoch.

    For an agent's episode, `text` is the answering turn, `conversation` every message after the prompt, and
    `first_failed` whether the environment showed the first turn to be wrong.
    """

    text: str
    tokens: int
    finish: str
    entropy: float | None
    started: float
    ended: float
    conversation: list[dict[str, str]] = field(default_factory=list)
    first_failed: bool = False


@dataclass(frozen=True)
class Sample:
    """Answer `number` to a problem, with the reward from `rewards.compute_score`; None: there is nothing to judge."""

    dataset: str
    id: str
    skill: str
    number: int
    answer: Answer
    reward: dict[str, Any] | None

    @property
    def key(self) -> tuple[str, str, int]:
        return self.dataset, self.id, self.number

    @property
    def judged(self) -> bool:
        """Whether there is a verdict: the answer was judged, without an infrastructure failure."""
        return self.reward is not None and self.reward["error"] != "infrastructure"

    @property
    def error(self) -> str:
        return self.answer.finish if self.reward is None else self.reward["error"]

    @property
    def settled(self) -> bool:
        """Whether a resumed evaluation has nothing left to do for this sample."""
        return self.judged or self.answer.finish == TOO_LONG


class SampleJournal:
    """`samples.jsonl`: one line per sample, appended and flushed; of two lines for one sample the later one counts."""

    def __init__(self, path: Path):
        self.path = path
        self.samples: dict[tuple[str, str, int], Sample] = {}
        for line in read_jsonl(path):
            sample = Sample(**(line | {"answer": Answer(**line["answer"])}))
            self.samples[sample.key] = sample
        _end_last_line(path)

    def add(self, sample: Sample) -> None:
        """Append a sample; raises OSError if the disk is full."""
        line = asdict(sample)
        if sample.reward is not None:
            line["reward"] = {key: _json_number(value) for key, value in sample.reward.items()}
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
        self.samples[sample.key] = sample

    def of(self, problems: Iterable[tuple[str, str]]) -> list[Sample]:
        """The samples of these problems, in a fixed order."""
        wanted = set(problems)
        return sorted((sample for key, sample in self.samples.items() if key[:2] in wanted), key=lambda item: item.key)


def _end_last_line(path: Path) -> None:
    """Terminate a line that was truncated when an evaluation was killed, so that the next one stays separate."""
    if path.exists() and path.stat().st_size:
        with open(path, "rb+") as file:
            file.seek(-1, 2)
            if file.read(1) != b"\n":
                file.write(b"\n")


def _json_number(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value
