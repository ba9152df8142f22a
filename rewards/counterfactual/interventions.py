"""Interventions: a solution with one step changed, for programs and for the turns of an agent.

Interventions on Python statements edit the syntax tree, so the result is valid: a body that loses its last statement
gets `pass`, and a removed compound statement takes its body with it. The remaining code is unparsed from the tree:
comments and layout may differ, behaviour may not. `keep` with all steps returns the solution in that layout, as the
reference for comparisons.
"""

import ast
from collections.abc import Callable, Collection, Sequence
from typing import Literal, Protocol, get_args

from rewards.analysis.parsing import LineOffsets, error_line, parse, statements, written
from rewards.counterfactual.segments import Step
from rewards.extraction import find_block

Kind = Literal["delete", "truncate", "replace"]
KINDS: tuple[Kind, ...] = get_args(Kind)


def intervene(
    solution: str, steps: Sequence[Step], index: int, kind: Kind, *, replacement: str | None = None
) -> str | None:
    """The solution with step `index` changed, or None if no valid change exists.

    delete: without the step. truncate: only this step and those before it. replace: `replacement` in the step's place
    (the same step of another solution of the group).

    Args:
        steps: the steps of this solution, from `rewards.counterfactual.segments.segment`.

    Raises ValueError for an unknown kind, an index out of range, or a missing replacement.
    """
    if kind not in KINDS:
        raise ValueError(f"unknown intervention '{kind}'; valid: {', '.join(KINDS)}")
    if not 0 <= index < len(steps):
        raise ValueError(f"no step {index}: the solution has {len(steps)} steps, counted from 0")
    if kind == "replace":
        if replacement is None:
            raise ValueError("intervention 'replace' needs the argument `replacement`")
        return _replace(solution, steps, index, replacement)
    if kind == "truncate":
        return keep(solution, steps, range(index + 1))
    return keep(solution, steps, [other for other in range(len(steps)) if other != index])


def keep(solution: str, steps: Sequence[Step], chosen: Collection[int]) -> str | None:
    """The solution with only these steps, or None if that is not valid. Text that belongs to no step stays.

    A compound statement that is not kept takes the statements inside it along.
    """
    tree, positions = tree_of(solution, steps)
    if tree is None:
        text = _without(solution, [step for index, step in enumerate(steps) if index not in chosen])
        return text if _still_parses(solution, text) else None
    numbered = dict(zip(statements(tree), positions, strict=True))
    _filter_bodies(tree, lambda node: numbered[node] in chosen)
    dropped = [step for index, step in enumerate(steps) if step.kind == "text" and index not in chosen]
    return _with_code(solution, tree, dropped)


def _replace(solution: str, steps: Sequence[Step], index: int, replacement: str) -> str | None:
    tree, positions = tree_of(solution, steps)
    old = list(statements(tree))[positions.index(index)] if tree is not None and index in positions else None
    if tree is None or old is None or _is_compound(old):
        text = solution[: steps[index].start] + replacement + solution[steps[index].end :]
        if not _still_parses(solution, text):
            return None
        return text if tree is None else _reformatted(text)
    patch = parse(replacement.strip())
    if patch is None or not patch.body:
        return None
    _filter_bodies(tree, lambda node: True, lambda node: patch.body if node is old else [node])
    return _with_code(solution, tree, [])


def _reformatted(solution: str) -> str | None:
    """The solution with its program unparsed from its tree."""
    block = find_block(solution, "python")
    tree = parse(solution[slice(*block)]) if block else None
    return solution if tree is None else _with_code(solution, tree, [])


def _is_compound(node: ast.stmt) -> bool:
    return next(statements(node), None) is not None


def tree_of(solution: str, steps: Sequence[Step]) -> tuple[ast.Module | None, list[int]]:
    """The program's tree and the step of each of its statements; no tree if the steps are not its statements."""
    block = find_block(solution, "python")
    tree = parse(solution[slice(*block)]) if block else None
    if block is None or tree is None:
        return None, []
    offsets = LineOffsets(solution[slice(*block)])
    headers = [offsets.header(node) for node in statements(tree)]
    at = {(step.start - block[0], step.end - block[0]): index for index, step in enumerate(steps)}
    positions = [at.get(header, -1) for header in headers]
    return (None, []) if -1 in positions else (tree, positions)


def _filter_bodies(
    node: ast.AST,
    kept: Callable[[ast.stmt], bool],
    replaced: Callable[[ast.stmt], list[ast.stmt]] = lambda node: [node],
) -> None:
    """Keep the statements for which `kept` holds in every body below this node; `replaced` maps each kept one."""
    for field, value in ast.iter_fields(node):
        if not isinstance(value, list):
            continue
        inner = [item for item in value if isinstance(item, ast.stmt)]
        if inner:
            remaining = [item for item in inner if kept(item)]
            for item in remaining:
                _filter_bodies(item, kept, replaced)
            body = [new for item in remaining for new in replaced(item)]
            setattr(node, field, body or ([] if _may_be_empty(node, field) else [ast.Pass()]))
        for item in value:
            if isinstance(item, ast.excepthandler | ast.match_case):
                _filter_bodies(item, kept, replaced)


def _may_be_empty(node: ast.AST, field: str) -> bool:
    if isinstance(node, ast.Module) or field == "orelse":
        return True
    return field == "finalbody" and bool(getattr(node, "handlers", None))


def _with_code(solution: str, tree: ast.Module, dropped: Sequence[Step]) -> str | None:
    """The solution with this tree as its program, without the dropped text; None if the tree cannot be unparsed."""
    code = written(tree)
    if code is None:
        return None
    block = find_block(solution, "python")
    assert block is not None
    before, after = Step(0, block[0], "text"), Step(block[1], len(solution), "text")
    parts = [
        "" if before in dropped else solution[: block[0]],
        code,
        "" if after in dropped else solution[block[1] :],
    ]
    # A fence belongs to the text around the code: dropping one of its ends would leave the other unpaired.
    if before in dropped or after in dropped:
        parts = [f"```python\n{code}\n```" if "```" in parts[0] + parts[2] else code]
    return "".join(parts)


_NEAR = 3
"""Lines around the one at which Python reports an error that may hold its cause, such as an open bracket."""


def breaking_steps(solution: str, steps: Sequence[Step]) -> list[int]:
    """The steps near a syntax error without which the program would parse; none if it parses as it is."""
    block = find_block(solution, "python")
    line = error_line(solution[slice(*block)]) if block else None
    if block is None or line is None:
        return []
    lines = [solution.count("\n", block[0], step.start) + 1 for step in steps]
    near = [index for index, own in enumerate(lines) if steps[index].kind == "code" and abs(own - line) <= _NEAR]
    return [index for index in near if _parses(_without(solution, [steps[index]]))]


def _parses(solution: str) -> bool:
    """Whether the solution's program parses; no program does."""
    block = find_block(solution, "python")
    return block is None or parse(solution[slice(*block)]) is not None


def _without(solution: str, dropped: Sequence[Step]) -> str:
    """The text without these spans; a line that becomes empty is removed."""
    pieces, position = [], 0
    for step in dropped:
        start, end = step.start, step.end
        if solution[start - 1 : start] in ("", "\n") and solution[end : end + 1] == "\n":
            end += 1
        pieces.append(solution[position:start])
        position = end
    return "".join([*pieces, solution[position:]])


def _still_parses(before: str, after: str) -> bool:
    """Whether the change keeps code that parses parseable; otherwise every step would look necessary."""
    return not _parses(before) or _parses(after)


# A text, or the actions of an agent in order.
WrittenSolution = str | tuple[str, ...]


class Edits(Protocol):
    """The edits of a solution that the estimation needs; None if no valid edit exists."""

    def whole(self) -> WrittenSolution:
        """The solution as the policy wrote it."""
        ...

    def rewritten(self) -> WrittenSolution | None:
        """The solution with all its steps, in the layout of its edits."""
        ...

    def keep(self, chosen: Collection[int]) -> WrittenSolution | None:
        """The solution with only these steps."""
        ...

    def put(self, index: int, piece: str) -> WrittenSolution | None:
        """The solution with this text in the step's place."""
        ...


class ProgramEdits:
    """Edits of a text whose steps are spans of it."""

    def __init__(self, solution: str, steps: Sequence[Step]):
        self.solution = solution
        self.steps = steps

    def whole(self) -> str:
        return self.solution

    def rewritten(self) -> str | None:
        return self.keep(range(len(self.steps)))

    def keep(self, chosen: Collection[int]) -> str | None:
        return keep(self.solution, self.steps, chosen)

    def put(self, index: int, piece: str) -> str | None:
        return intervene(self.solution, self.steps, index, "replace", replacement=piece)


class TurnEdits:
    """Edits of an agent's actions, the texts of its turns. Any of them may be dropped, since the rest is replayed in a
    fresh environment.
    """

    def __init__(self, actions: tuple[str, ...]):
        self.actions = actions

    def whole(self) -> tuple[str, ...]:
        return self.actions

    def rewritten(self) -> tuple[str, ...]:
        return self.actions

    def keep(self, chosen: Collection[int]) -> tuple[str, ...]:
        return tuple(self.actions[index] for index in sorted(chosen))

    def put(self, index: int, piece: str) -> tuple[str, ...]:
        return (*self.actions[:index], piece, *self.actions[index + 1 :])
