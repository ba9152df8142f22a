"""Interventions: a solution with one step changed, and the changes that a replay may make to a program or to turns.

Interventions on Python statements edit the syntax tree, so the result is valid: a body that loses its last statement
gets `pass`, and a compound statement goes with its body. The rest is unparsed from the tree: comments and layout may
differ, behaviour may not. `keep` with all steps gives the solution in that layout, to compare with.
"""

import ast
import random
from collections.abc import Callable, Collection, Sequence
from typing import Any, Literal, Protocol

from rewards.analysis.parsing import LineOffsets, parse, statements, written
from rewards.counterfactual.segments import NoSteps, Step, Unit, segment
from rewards.extraction import find_block

Kind = Literal["delete", "truncate", "replace"]
KINDS: tuple[Kind, ...] = ("delete", "truncate", "replace")


def intervene(
    solution: str, steps: Sequence[Step], index: int, kind: Kind, *, replacement: str | None = None
) -> str | None:
    """The solution with step `index` changed, or None when no valid one exists.

    delete: without the step. truncate: with this step and those before it only. replace: with `replacement` in its
    place (the same step of another solution of the group).

    Args:
        steps: what `rewards.counterfactual.segments.segment` gave for this solution.

    Raises ValueError for an unknown kind, an index that is no step, or a replacement that is missing.
    """
    if kind not in KINDS:
        raise ValueError(f"unknown intervention '{kind}'; valid: {', '.join(KINDS)}")
    if not 0 <= index < len(steps):
        raise ValueError(f"step {index} of {len(steps)} steps")
    if kind == "replace":
        if replacement is None:
            raise ValueError("intervention 'replace' needs the replacement")
        return _replace(solution, steps, index, replacement)
    chosen = range(index + 1) if kind == "truncate" else [other for other in range(len(steps)) if other != index]
    return keep(solution, steps, chosen)


def keep(solution: str, steps: Sequence[Step], chosen: Collection[int]) -> str | None:
    """The solution with these steps only, or None when it would not be valid; what is no step stays.

    A statement inside a compound statement that is not kept goes with it.
    """
    tree, positions = _tree_of(solution, steps)
    if tree is None:
        text = _without(solution, [step for index, step in enumerate(steps) if index not in chosen])
        return text if _still_parses(solution, text) else None
    numbered = dict(zip(statements(tree), positions, strict=True))
    _filter_bodies(tree, lambda node: numbered[node] in chosen)
    dropped = [step for index, step in enumerate(steps) if step.kind == "text" and index not in chosen]
    return _with_code(solution, tree, dropped)


def _replace(solution: str, steps: Sequence[Step], index: int, replacement: str) -> str | None:
    tree, positions = _tree_of(solution, steps)
    if tree is None or index not in positions or _is_compound(list(statements(tree))[positions.index(index)]):
        text = solution[: steps[index].start] + replacement + solution[steps[index].end :]
        if not _still_parses(solution, text):
            return None
        return text if tree is None else _written_anew(text)
    patch = parse(replacement.strip())
    if patch is None or not patch.body:
        return None
    place = list(statements(tree))[positions.index(index)]
    _filter_bodies(tree, lambda node: True, lambda node: patch.body if node is place else [node])
    return _with_code(solution, tree, [])


def _written_anew(solution: str) -> str | None:
    """The solution with its program in the layout of its tree."""
    block = find_block(solution, "python")
    tree = parse(solution[slice(*block)]) if block else None
    return solution if tree is None else _with_code(solution, tree, [])


def _is_compound(node: ast.stmt) -> bool:
    return next(statements(node), None) is not None


def _tree_of(solution: str, steps: Sequence[Step]) -> tuple[ast.Module | None, list[int]]:
    """The program's tree and the step of each of its statements; no tree where the steps are not its statements."""
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
    """Keep in every body below this node the statements that are wanted, each as `replaced` gives it."""
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
    """The solution with another program in the place of its own, without the dropped text; None where the program
    has no text.
    """
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
    # A fence is part of the text around the code: without its opening the closing one would stand alone.
    if before in dropped or after in dropped:
        parts = [f"```python\n{code}\n```" if "```" in parts[0] + parts[2] else code]
    return "".join(parts)


def _without(solution: str, dropped: Sequence[Step]) -> str:
    """The text without these spans; a line that becomes empty goes whole."""
    pieces, position = [], 0
    for step in dropped:
        start, end = step.start, step.end
        if solution[start - 1 : start] in ("", "\n") and solution[end : end + 1] == "\n":
            end += 1
        pieces.append(solution[position:start])
        position = end
    return "".join([*pieces, solution[position:]])


def _still_parses(before: str, after: str) -> bool:
    """False where code that parsed does so no longer: every step would look necessary."""
    programs = [text[slice(*block)] if (block := find_block(text, "python")) else "" for text in (before, after)]
    return parse(programs[0]) is None or parse(programs[1]) is not None


# What is verified: a text, or the actions of an agent in order.
Changed = str | tuple[str, ...]


class Edits(Protocol):
    """What the estimation asks of a solution; None where no valid change exists."""

    def whole(self) -> Changed:
        """The solution as the policy wrote it."""
        ...

    def rewritten(self) -> Changed | None:
        """The solution with all its steps, in the layout that its changes have."""
        ...

    def keep(self, chosen: Collection[int]) -> Changed | None:
        """The solution with these steps only."""
        ...

    def swap(self, index: int, rng: random.Random) -> Changed | None:
        """The solution with this step as one of the siblings wrote it; None where all wrote the same."""
        ...


class ProgramEdits:
    """Changes of one text whose steps are parts of it (`rewards.counterfactual.interventions`).

    siblings: other solutions of the same problem.
    """

    def __init__(
        self, solution: str, steps: Sequence[Step], unit: Unit, text_steps: bool = False, siblings: Sequence[str] = ()
    ):
        self.solution = solution
        self.steps = steps
        self.unit = unit
        self.text_steps = text_steps
        self.siblings = siblings

    def whole(self) -> str:
        return self.solution

    def rewritten(self) -> str | None:
        return self.keep(range(len(self.steps)))

    def keep(self, chosen: Collection[int]) -> str | None:
        return keep(self.solution, self.steps, chosen)

    def swap(self, index: int, rng: random.Random) -> str | None:
        """With the step of a sibling that has as many steps."""
        own = self.solution[self.steps[index].start : self.steps[index].end]
        others: list[str] = []
        for sibling in self.siblings:
            try:
                found = segment(sibling, self.unit, text_steps=self.text_steps)
            except NoSteps:
                continue
            if len(found) == len(self.steps) and (text := sibling[found[index].start : found[index].end]) != own:
                others.append(text)
        if not others:
            return None
        return intervene(self.solution, self.steps, index, "replace", replacement=rng.choice(others))


class TurnEdits:
    """Changes of what an agent did: any of its actions may go, since the rest is replayed from a fresh environment.

    actions: text of each assistant turn in order. siblings: the actions of other trajectories of the same problem.
    """

    def __init__(self, actions: tuple[str, ...], siblings: Sequence[Any] = ()):
        self.actions = actions
        self.siblings = siblings

    def whole(self) -> tuple[str, ...]:
        return self.actions

    def rewritten(self) -> tuple[str, ...]:
        return self.actions

    def keep(self, chosen: Collection[int]) -> tuple[str, ...]:
        return tuple(self.actions[index] for index in sorted(chosen))

    def swap(self, index: int, rng: random.Random) -> tuple[str, ...] | None:
        """With what a sibling did in the same turn."""
        others = [
            sibling[index]
            for sibling in self.siblings
            if index < len(sibling) and sibling[index] != self.actions[index]
        ]
        if not others:
            return None
        return (*self.actions[:index], rng.choice(others), *self.actions[index + 1 :])
