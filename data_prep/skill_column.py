"""The row of a run whose skills stand in a column of their own (``skills.by=column skills.column=topic``)."""

from pydantic import ConfigDict, model_validator

from data_prep.schema import Row


def row_model(by: str, column: str) -> type[Row]:
    """`Row`, or where the skill is told by a column that it has not, `Row` with that column beside its fields."""
    if by != "column" or column in Row.model_fields:
        return Row

    class RowWithSkillColumn(Row):
        model_config = ConfigDict(extra="allow")

        @model_validator(mode="after")
        def _has_no_other_column(self) -> "RowWithSkillColumn":
            others = sorted(set(self.model_extra or ()) - {column})
            if others:
                raise ValueError(
                    f"the columns {others} are none of a row, and skills.column names another one: {column!r}"
                )
            return self

    return RowWithSkillColumn
