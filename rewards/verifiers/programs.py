"""Judge a response that is a Python program: extract it, run it in the shared sandbox, look for reward hacking."""

import ast
import asyncio
from collections.abc import Collection, Sequence
from weakref import WeakKeyDictionary

from rewards import guardrails
from rewards.extraction import extract_block
from rewards.sandbox import AssertCase, Program, Sandbox, StdioCase
from rewards.settings import JudgeSettings
from rewards.verdict import ErrorKind, Verdict

# Connections belong to the event loop that opened them.
_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str | Collection[str] | None, str | None], Sandbox]]
_clients = WeakKeyDictionary()


def sandbox_at(url: str | Collection[str] | None, isolation: str | None = None) -> Sandbox:
    """The running loop's client for this address, or these; None: this machine's embedded server, with this isolation
    mode.
    """
    clients = _clients.setdefault(asyncio.get_running_loop(), {})
    key = (url, isolation)
    if key not in clients:
        clients[key] = Sandbox(url if isinstance(url, str | None) else list(url), isolation=isolation)
    return clients[key]


_ERRORS: dict[str, ErrorKind] = {
    "wrong_answer": "wrong_answer",
    "runtime_error": "runtime",
    "syntax_error": "syntax",
    "timeout": "timeout",
    "memory": "runtime",
    "output_limit": "runtime",
}


def program_in(response: str) -> str:
    """The program of a response, all that is read of it; "" where there is none."""
    return extract_block(response, "python") or ""


async def judge_program(
    response: str,
    cases: Sequence[AssertCase | StdioCase],
    settings: JudgeSettings,
    shown_inputs: Sequence[Sequence[str]] = (),
    entry_points: Sequence[str] = (),
) -> Verdict:
    """Runs the program of a response against every case; the pass ratio is the share that passed.

    shown_inputs: of each of the first cases, which the prompt shows, the words that it puts in.
    entry_points: names that the tests take from the program, whatever they are called.
    """
    source = extract_block(response, "python")
    if source is None:
        return Verdict.failed("extract")
    program = _parsed(source)
    if program is None:
        return Verdict.failed("syntax")
    result = await sandbox_at(settings.sandbox_url, settings.sandbox_isolation).check(
        Program(source),
        cases,
        timeout=settings.timeout,
        memory_mb=settings.memory_mb,
        entry_points=entry_points,
    )
    guard = guardrails.of_program(
        program,
        settings.forbidden_imports,
        correct=result.all_passed,
        passed_inputs=shown_inputs if all(case.passed for case in result.cases[: len(shown_inputs)]) else (),
    )
    error = _ERRORS.get(result.outcome, "wrong_answer")
    return Verdict.of_ratio(result.fraction, error, partial_credit=settings.partial_credit, guard=guard)


def _parsed(source: str) -> ast.Module | None:
    """The program as a tree; None spares the sandbox what cannot run: most early answers of a small model."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
