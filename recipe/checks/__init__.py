"""Preflight checks: each module has ``check(config, run) -> list[PreflightFinding]``."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PreflightFinding:
    """One finding of a check: what is wrong, where (a key or a path), and how to fix it."""

    what: str
    where: str
    fix: str

    def __str__(self) -> str:
        return f"{self.what} [{self.where}] -> {self.fix}"
