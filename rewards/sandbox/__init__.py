"""A sandbox for model-written programs: client, server, verdicts that cannot be forged (docs/reference/sandbox.md)."""

from rewards.sandbox.cases import (
    AssertCase,
    CallCase,
    Case,
    CaseResult,
    CheckResult,
    InfrastructureError,
    Program,
    RunResult,
    StdioCase,
)
from rewards.sandbox.client.client import Sandbox

__all__ = [
    "AssertCase",
    "CallCase",
    "Case",
    "CaseResult",
    "CheckResult",
    "InfrastructureError",
    "Program",
    "RunResult",
    "Sandbox",
    "StdioCase",
]
