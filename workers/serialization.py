"""Frozen dataclasses as dictionaries of plain values: a batch carries those between the trainer and the workers."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

T = TypeVar("T")


def to_fields(value: Any) -> dict[str, Any]:
    """The fields of a dataclass by name; the values are those of the instance, not copies."""
    return {field.name: getattr(value, field.name) for field in fields(value)}


def from_fields(kind: type[T], given: Mapping[str, Any]) -> T:
    """An instance of a dataclass from its fields.

    Raises:
        ValueError: a name that is not a field, with the valid ones.
        TypeError: a field without a default is missing.
    """
    valid = [field.name for field in fields(kind)]  # type: ignore[arg-type]  # a dataclass
    if unknown := sorted(given.keys() - set(valid)):
        raise ValueError(f"{kind.__name__} has no field {', '.join(unknown)}; valid: {', '.join(valid)}")
    return kind(**given)
