"""Judging of Python programs: extraction from the response, a run in the shared sandbox, checks for reward hacking."""

import ast
import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace
from weakref import WeakKeyDictionary

from rewards import guardrails
from rewards.analysis.parsing import LineOffsets, parse
from rewards.extraction import extract_block
from rewards.sandbox import Case, CheckResult, Program, Sandbox
from rewards.settings import JudgeSettings
from rewards.verdict import ErrorKind, Verdict

# Connections belong to the event loop that opened them.
_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str | Collection[str] | None, str | None], Sandbox]]
_clients = WeakKeyDictionary()


def sandbox_at(url: str | Collection[str] | None, isolation: str | None = None) -> Sandbox:
    """The running event loop's client of this server, or these; None: this machine's embedded server, with this
    isolation mode.
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
    """The program of a response, the only part that is judged; "" if there is none."""
    return extract_block(response, "python") or ""


def counted_tests(tests: int, visible: int, settings: JudgeSettings) -> int:
    """How many of the first tests the score counts: all, or only the visible ones, if there are any."""
    return tests if settings.hidden_tests or not visible else visible


async def judge_program(
    response: str,
    cases: Sequence[Case],
    settings: JudgeSettings,
    shown_inputs: Sequence[Sequence[str]] = (),
    entry_points: Sequence[str] = (),
    *,
    impossible: bool = False,
    names: str = "",
) -> Verdict:
    """Run the program of a response on every case; the pass ratio is the share of the counted ones that passed.

    shown_inputs: the words in the input of each visible case; the visible cases are the first ones.
    entry_points: names that the tests take from the program, builtins and libraries included.
    impossible: whether the visible cases contradict the prompt's text, so that no program is correct.
    names: a line of imports that the program need not write.
    """
    source = extract_block(response, "python")
    if source is None:
        return Verdict.failed("extract")
    program = parse(source)  # most early answers of a small model are no programs
    if program is None:
        return Verdict.failed("syntax")
    sandbox = sandbox_at(settings.sandbox_url, settings.sandbox_isolation)
    result = await sandbox.check(
        Program(_with_names(source, program, names)),
        cases,
        timeout=settings.timeout,
        memory_mb=settings.memory_mb,
        entry_points=entry_points,
    )
    shown = len(shown_inputs)
    passed_visible = all(case.passed for case in result.cases[:shown])
    correct = result.all_passed and not impossible
    guard = guardrails.of_program(
        program,
        settings.forbidden_imports,
        correct=correct,
        passed_inputs=shown_inputs if passed_visible else (),
        impossible=impossible,
    )
    counted = CheckResult(result.cases[: counted_tests(len(cases), shown, settings)])
    verdict = Verdict.of_ratio(counted.fraction, partial_credit=settings.partial_credit, guard=guard)
    error: ErrorKind = "none" if result.all_passed else _ERRORS.get(result.outcome, "wrong_answer")
    return replace(verdict, correct=correct, error=error, visible=passed_visible if shown else None)


def _with_names(source: str, program: ast.Module, names: str) -> str:
    """The program with a line of imports at its top, or after those from `__future__`, which must come first."""
    future = [node for node in program.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    if not names or not future:
        return names + source
    end = LineOffsets(source).span(future[-1])[1]
    return f"{source[:end]}\n{names}{source[end:].lstrip(' ;')}"
