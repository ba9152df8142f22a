"""One thing that is wrong, in the words that a user needs."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """What is wrong, where (a key or a path), and how to mend it."""

    what: str
    where: str
    mend: str

    def __str__(self) -> str:
        return f"{self.what} [{self.where}] -> {self.mend}"
