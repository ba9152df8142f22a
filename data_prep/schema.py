"""Schema of the rows of data files, validated on writing and on reading.

verl reads parquet files of such rows. An invalid row is refused here, with the file, the row number, the field and the
fix, rather than hours later inside a worker. With ``skills.by=column`` another column may name the skill.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from data_prep.files import complete_file
from rewards import registry

DEFAULT_AGENT = "single_turn_agent"


class DataFileError(ValueError):
    """A data file is missing, unreadable or empty, or has an invalid row; the message says how to fix it."""


class Message(BaseModel):
    """One turn of a chat."""

    model_config = ConfigDict(extra="forbid")

    role: Literal["system", "user", "assistant", "tool"]
    content: str = Field(min_length=1)


class RewardModel(BaseModel):
    """Input of the verifier: `ground_truth` is a JSON string of the model that the verifier's module declares."""

    model_config = ConfigDict(extra="allow")

    style: Literal["rule"] = "rule"
    ground_truth: str = Field(min_length=1)


class ExtraInfo(BaseModel):
    """Origin of a row; sources may add their own keys."""

    model_config = ConfigDict(extra="allow")

    split: str
    index: int = Field(ge=0)
    id: str = Field(min_length=1)


class Row(BaseModel):
    """One problem for reinforcement learning."""

    model_config = ConfigDict(extra="forbid")

    data_source: str = Field(min_length=1, description="name of the verifier")
    prompt: list[Message] = Field(min_length=1)
    ability: str = Field(min_length=1)
    reward_model: RewardModel
    skill: str = Field(min_length=1, description="what schedules and protection group by")
    agent_name: str = DEFAULT_AGENT
    extra_info: ExtraInfo

    @field_validator("data_source")
    @classmethod
    def _is_a_verifier(cls, name: str) -> str:
        return registry.get(name).name

    @field_validator("reward_model")
    @classmethod
    def _the_verifier_can_read_its_ground_truth(cls, value: RewardModel, info: ValidationInfo) -> RewardModel:
        if "data_source" in info.data:
            try:
                registry.validate_ground_truth(info.data["data_source"], value.ground_truth)
            except ValidationError as error:
                raise ValueError(f"ground_truth is not for verifier '{info.data['data_source']}': {error}") from error
        return value

    @model_validator(mode="after")
    def _its_agent_has_something_to_see(self) -> "Row":
        if self.agent_name != DEFAULT_AGENT:
            from rewards.environments import ENVIRONMENTS

            # Other agents are verl's or a user's, which this check knows nothing about.
            if self.agent_name in ENVIRONMENTS:
                ENVIRONMENTS[self.agent_name].check_truth(self.reward_model.ground_truth)
        return self


class Demonstration(BaseModel):
    """One solved problem for supervised training; `correct`: whether its answer is right."""

    model_config = ConfigDict(extra="forbid")

    messages: list[Message] = Field(min_length=2)
    skill: str = Field(min_length=1)
    correct: bool
    extra_info: ExtraInfo

    @model_validator(mode="after")
    def _an_assistant_has_the_last_word(self) -> "Demonstration":
        if self.messages[-1].role != "assistant":
            raise ValueError("the last message must have the role 'assistant'")
        return self


def write_rows(path: Path, rows: Iterable[BaseModel]) -> int:
    """Write validated rows (all of one model) as parquet and return their number.

    The file appears under its name only when it is complete, so a reader never sees half of it.
    """
    records = [row.model_dump() for row in rows]
    if not records:
        raise DataFileError(f"{path}: no rows to write; set --limit to at least 1")
    with complete_file(path) as temporary:
        pd.DataFrame(records).to_parquet(temporary, index=False)
    return len(records)


def read_rows(path: Path, model: type[BaseModel] = Row) -> list[Any]:
    """Read a parquet file into validated rows; `DataFileError` names file, row and field of an invalid value."""
    if not path.is_file():
        raise DataFileError(f"{path}: no such file; make it with python -m data_prep.<source> --out {path.parent}")
    try:
        records = pd.read_parquet(path).to_dict(orient="records")
    except Exception as error:
        raise DataFileError(f"{path}: not a readable parquet file ({error}); make it again") from error
    if not records:
        raise DataFileError(f"{path}: has no rows; make it again with a --limit of at least 1")
    return [_validated(path, number, record, model) for number, record in enumerate(records)]


def _validated(path: Path, number: int, record: dict[str, Any], model: type[BaseModel]) -> BaseModel:
    try:
        return model.model_validate({key: _plain(value) for key, value in record.items()})
    except ValidationError as error:
        raise DataFileError(
            f"{path}: row {number}, {explain(error)}; "
            f"fix that row or make the file again. Fields of a row: {', '.join(model.model_fields)}"
        ) from error


def explain(error: ValidationError) -> str:
    """The first error, in one line: field, reason, and the value found."""
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"])
    text = f"field '{field}': {first['msg']} (found {_short(first['input'])})" if field else first["msg"]
    return " ".join(text.split())


def _plain(value: Any) -> Any:
    """The value with lists for the numpy arrays that parquet returns: pydantic requires lists."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


def _short(value: object, limit: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def row_model(by: str, column: str) -> type[Row]:
    """`Row`; if the skill is named by a column that `Row` lacks, `Row` with that column in addition to its fields."""
    if by != "column" or column in Row.model_fields:
        return Row

    class RowWithSkillColumn(Row):
        model_config = ConfigDict(extra="allow")

        @model_validator(mode="after")
        def _has_no_other_column(self) -> "RowWithSkillColumn":
            others = sorted(set(self.model_extra or ()) - {column})
            if others:
                raise ValueError(
                    f"unknown columns {others}: the only additional column allowed is that of skills.column, {column!r}"
                )
            return self

    return RowWithSkillColumn
