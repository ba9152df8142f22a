"""Assignment of rows to skills: by a column, by data source, or by a user's function (config group ``skills``)."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any, Literal

SkillOf = Callable[[Mapping[str, Any]], str]
SkillSource = Literal["column", "data_source", "function"]


def skill_assigner(by: str, column: str, function: str | None) -> SkillOf:
    """The function that maps a row of the data to the name of its skill.

    Preflight refuses rows without text in the column (recipe/checks/data.py), so the column is present here.

    Args:
        by: ``column``, ``data_source`` or ``function``.
        column: the column, for ``column``.
        function: ``package.module:name``, for ``function``; it gets the row as a mapping and returns a name.

    Raises:
        ValueError: the function is not given as ``package.module:name``, or cannot be imported.
    """
    if by == "function":
        return _named_function(function)
    key = column if by == "column" else "data_source"
    return lambda row: str(row[key])


def task_of(extra_info: Mapping[str, Any]) -> str:
    """A row's task: its id, or its number where it has none."""
    return str(extra_info.get("id", extra_info.get("index")))


def level_of(row: Mapping[str, Any]) -> str:
    """``level3`` for a row whose source gives its difficulty: ``skills.function=rewards.skills:level_of``.

    Raises:
        KeyError: the row's ``extra_info`` has no ``level``.
    """
    return f"level{row['extra_info']['level']}"


def _named_function(name: str | None) -> SkillOf:
    module, colon, attribute = (name or "").partition(":")
    if not (module and colon and attribute):
        raise ValueError(f"skills.function must be package.module:name, got {name!r}")
    try:
        function = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"skills.function={name} cannot be imported: {error}") from error
    if not callable(function):
        raise ValueError(f"skills.function={name} is not a function")
    return lambda row: str(function(row))
