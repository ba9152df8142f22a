"""Steps of a solution: character spans that get credit.

A solution is the whole decoded response. For units of code (statement, line) the code is extracted as a verifier
extracts it (`rewards.extraction`), and the text around it is a separate kind of step, or no step. In a trajectory with
tools the assistant's turns can be the steps; the output of a tool never is.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from rewards.analysis.parsing import LineOffsets, parse, statements, stripped
from rewards.extraction import find_block

Unit = Literal["statement", "line", "paragraph", "turn", "token"]
StepKind = Literal["code", "text", "turn"]
UNITS: tuple[Unit, ...] = get_args(Unit)

# A solution with more steps gets no credit: the few that a budget covers are no evidence about the rest.
MAX_STEPS = 2_000


@dataclass(frozen=True)
class Step:
    """One step: characters [start, end) of the solution, and the kind of its content."""

    start: int
    end: int
    kind: StepKind = "code"


class NoSteps(ValueError):
    """The solution has no steps of this unit; the message gives the reason."""


def segment(
    solution: str, unit: Unit, *, text_steps: bool = False, turns: Sequence[tuple[int, int]] = ()
) -> list[Step]:
    """The steps of a solution, in order and without overlap; together they need not cover it.

    statement: every statement of the Python program, nested ones too; a compound statement's step is its header
        (`if a<4:`), since the statements of its body are steps themselves. Of code that does not parse, every
        line, as below, without its indentation.
    line: every line of code that is not blank.
    paragraph: stretches of the solution between blank lines, code and text alike.
    turn: the spans of `turns`, characters of each turn of the assistant; without them the solution is one turn.
    token: the same, with `turns` the characters of each token; blank ones count.
    text_steps: for units of code, the text before the code and the text after it are steps too (kind "text").

    Raises NoSteps if there is no code, or more than MAX_STEPS steps; ValueError for an unknown unit.
    """
    if unit not in UNITS:
        raise ValueError(f"unknown unit '{unit}' of steps; valid: {', '.join(UNITS)}")
    if unit in ("turn", "token"):
        spans = turns or [(0, len(solution))]
        kind: StepKind = "turn" if unit == "turn" else "text"
        may_be_blank = unit == "token" and bool(turns)
        steps = [Step(start, end, kind) for start, end in spans if may_be_blank or solution[start:end].strip()]
    elif unit == "paragraph":
        steps = list(_paragraphs(solution))
    else:
        steps = _code_steps(solution, unit, text_steps)
    if not steps:
        raise NoSteps("the solution is empty")
    if len(steps) > MAX_STEPS:
        raise NoSteps(f"{len(steps)} steps; more than {MAX_STEPS} get no credit")
    return steps


def _code_steps(solution: str, unit: Unit, text_steps: bool) -> list[Step]:
    block = find_block(solution, "python")
    if block is None:
        raise NoSteps("the solution has no code")
    start, end = block
    spans = _statements(solution[start:end]) if unit == "statement" else _lines(solution[start:end])
    steps = [Step(start + first, start + last) for first, last in spans]
    if text_steps:
        before, after = Step(0, start, "text"), Step(end, len(solution), "text")
        steps = [step for step in (before, *steps, after) if solution[step.start : step.end].strip()]
    return steps


def _statements(code: str) -> list[tuple[int, int]]:
    tree = parse(code)
    if tree is None:
        return [stripped(code, *span) for span in _lines(code)]
    offsets = LineOffsets(code)
    return [offsets.header(node) for node in statements(tree)]


def _lines(code: str) -> list[tuple[int, int]]:
    spans, position = [], 0
    for line in code.splitlines(keepends=True):
        if line.strip():
            spans.append((position, position + len(line.rstrip("\r\n"))))
        position += len(line)
    return spans


def _paragraphs(solution: str) -> Iterator[Step]:
    start: int | None = None
    position = end = 0
    for line in solution.splitlines(keepends=True):
        if line.strip():
            start = position if start is None else start
            end = position + len(line.rstrip("\r\n"))
        elif start is not None:
            yield Step(start, end, "text")
            start = None
        position += len(line)
    if start is not None:
        yield Step(start, end, "text")
