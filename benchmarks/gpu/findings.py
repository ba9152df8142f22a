"""What the parts of the check measured: one line of JSON each, in one file per part."""

import json
import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Measured:
    """A measured value and what it must be: at least `low`, at most `high`; without either it is only reported."""

    part: str
    what: str
    value: float | str
    unit: str = ""
    low: float | None = None
    high: float | None = None

    @property
    def passed(self) -> bool:
        """Whether the value is within its bounds. NaN is not."""
        if isinstance(self.value, str) or (self.low is None and self.high is None):
            return True
        low = -math.inf if self.low is None else self.low
        high = math.inf if self.high is None else self.high
        return low <= self.value <= high

    @property
    def bounds(self) -> str:
        """As text."""
        low = "" if self.low is None else f">= {self.low:g}"
        high = "" if self.high is None else f"<= {self.high:g}"
        return ", ".join(filter(None, (low, high)))


class Findings:
    """Writes what a part measures at once, so that nothing is lost if it dies."""

    def __init__(self, folder: Path, part: str):
        self.part = part
        self.file = folder / f"{part}.jsonl"

    def add(
        self, what: str, value: float | str, unit: str = "", low: float | None = None, high: float | None = None
    ) -> None:
        """Note and print a value."""
        one = Measured(self.part, what, value, unit, low, high)
        with self.file.open("a") as file:
            file.write(json.dumps(asdict(one)) + "\n")
            file.flush()
            os.fsync(file.fileno())
        print(f"[{self.part}] {what}: {value} {unit} {one.bounds} {'' if one.passed else 'FAILED'}", flush=True)


def read(file: Path) -> list[Measured]:
    """What a part noted; empty if it noted nothing."""
    if not file.exists():
        return []
    return [Measured(**json.loads(line)) for line in file.read_text().splitlines()]
