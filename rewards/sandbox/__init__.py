"""A sandbox for programs that a model wrote: client, embedded server, unforgeable verdicts. See docs/sandbox.md."""

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
