"""What a step is, apart from where it stands: the place, role and code from which its key is made (`alignment`).

Place: the headers around the statement. Role: what it defines, changes or calls, or the kind of statement. Code: its
header without layout and comments, with names that it binds locally replaced (`rewards.analysis.local_names`). The same
step of two solutions has the same place and role; its code may differ. Steps of one role in one place are numbered.

A turn's key is the state before its action, as in GiGPO (Feng et al., arXiv 2505.10978): the observations so far.
"""

import ast
import hashlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rewards.analysis.idle_code import truth_of
from rewards.analysis.local_names import rename_by_place
from rewards.analysis.node_kinds import BLOCKS, ENDS
from rewards.analysis.parsing import LineOffsets, parse, written
from rewards.counterfactual.segments import Step
from rewards.extraction import find_block

_SCOPE_SHAPING = (
    *(ast.Yield, ast.YieldFrom, ast.Global, ast.Nonlocal, ast.Import, ast.ImportFrom),
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef),
)


@dataclass(frozen=True)
class StepContent:
    """One step without its position.

    parent: the step of the header around it, -1 at the top. branch: the part of that header's statement, such as
    `else`. kind: the kind of statement. role: what the step defines, changes or calls. code: normalised, for comparison
    only. binds: names that its header assigns, as written. fixed: the problem asks for its name, so no other name plays
    this role. reached: False if no run can execute it.
    """

    parent: int
    branch: str
    kind: str
    role: str
    code: str
    binds: tuple[str, ...] = ()
    fixed: bool = False
    reached: bool = True

    @property
    def defines(self) -> bool:
        """Whether a later step of the same role replaces it."""
        return (self.role.endswith(" =") and "[]" not in self.role) or self.role.startswith(("define ", "import "))


def parts_of(solution: str, steps: Sequence[Step], asked: frozenset[str] = frozenset()) -> list[StepContent | None]:
    """A part for each step of a text; None for code that does not parse.

    asked: names that the problem mentions.
    """
    parts: list[StepContent | None] = [_text_part(solution, steps, index) for index in range(len(steps))]
    code = [index for index, step in enumerate(steps) if step.kind == "code"]
    for index, part in zip(code, _code_parts(solution, steps, code, asked), strict=True):
        parts[index] = part
    return parts


def state_keys(text: str, turns: Sequence[tuple[int, int]]) -> list[str]:
    """The key of each turn, given its characters [start, end): a digest of the text between the turns before it."""
    keys, seen, end = [], hashlib.sha256(), 0
    for number, (start, after) in enumerate(turns):
        if number:
            seen.update(text[end:start].encode(errors="surrogatepass") + b"\0")
        keys.append(f"state {seen.hexdigest()[:16]}")
        end = after
    return keys


def _text_part(solution: str, steps: Sequence[Step], index: int) -> StepContent:
    words = " ".join(solution[steps[index].start : steps[index].end].split())
    if any(step.kind == "code" for step in steps):
        return StepContent(-1, "", "text", "text after" if index else "text before", words)
    digest = hashlib.sha256(words.encode(errors="surrogatepass")).hexdigest()[:16]
    return StepContent(-1, "", "text", f"text {digest}", words)


def _code_parts(
    solution: str, steps: Sequence[Step], code: Sequence[int], asked: frozenset[str]
) -> list[StepContent] | list[None]:
    """The parts of the steps with these indices."""
    block = find_block(solution, "python")
    tree = parse(solution[slice(*block)]) if block else None
    if block is None or tree is None or not code:
        return [None] * len(code)
    offsets = LineOffsets(solution[slice(*block)])
    starts = [steps[index].start for index in code]
    try:
        placed = list(_placed(tree.body, None, "", True))
        at = {
            each.node: code[max(bisect_right(starts, block[0] + offsets.span(each.node)[0]) - 1, 0)] for each in placed
        }
        binds = {each.node: tuple(_bound(each.node)) for each in placed}
        rename_by_place(tree, asked)
        of_step: dict[int, list[StepContent]] = {}
        for each in placed:
            parent = -1 if each.parent is None else at[each.parent]
            names = binds[each.node]
            part = StepContent(
                parent, each.branch, type(each.node).__name__, _role(each.node), _header_code(each.node), names,
                each.parent is None and not asked.isdisjoint(names), each.reached,
            )  # fmt: skip
            of_step.setdefault(at[each.node], []).append(part)
    except RecursionError:
        return [None] * len(code)
    last = code[0]
    parts = []
    for index in code:
        last = index if index in of_step else last
        words = " ".join(solution[steps[index].start : steps[index].end].split())
        parts.append(_joined(of_step[index]) if index in of_step else StepContent(last, "", "line", "line", words))
    return parts


def _joined(parts: Sequence[StepContent]) -> StepContent:
    """One part for the statements of a line, with the place and kind of the first."""
    first = parts[0]
    if len(parts) == 1:
        return first
    return StepContent(
        first.parent, first.branch, first.kind, "; ".join(part.role for part in parts),
        "; ".join(part.code for part in parts), tuple(name for part in parts for name in part.binds),
        any(part.fixed for part in parts), any(part.reached for part in parts),
    )  # fmt: skip


@dataclass(frozen=True)
class _Placed:
    """A statement, the statement around it, the branch of that, and whether it can be reached."""

    node: ast.stmt
    parent: ast.stmt | None
    branch: str
    reached: bool


def _placed(block: Sequence[ast.stmt], parent: ast.stmt | None, branch: str, reached: bool) -> Iterator[_Placed]:
    for node in block:
        yield _Placed(node, parent, branch, reached or _shapes_scope(node))
        for name, inner in _inner_blocks(node):
            truth = truth_of(node.test) if isinstance(node, ast.If | ast.While) else None
            runs = truth is None or truth is (name == "")
            yield from _placed(inner, node, name, reached and runs)
        reached = reached and not isinstance(node, ENDS)


def _shapes_scope(node: ast.stmt) -> bool:
    """Whether a statement changes its function even if it is never executed: it binds a name, or yields."""
    return any(
        isinstance(part, _SCOPE_SHAPING) or (isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load))
        for part in ast.walk(node)
    )


def _inner_blocks(node: ast.stmt) -> Iterator[tuple[str, list[ast.stmt]]]:
    for field, name in (("body", ""), ("orelse", "else"), ("finalbody", "finally")):
        yield name, getattr(node, field, [])
    for number, handler in enumerate(getattr(node, "handlers", [])):
        yield f"except {_named(handler.type) if handler.type else number}", handler.body
    for number, case in enumerate(getattr(node, "cases", [])):
        yield f"case {number}", case.body


def _bound(node: ast.stmt) -> Iterator[str]:
    """The names that a statement's header assigns, in order."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield from (part.arg for part in ast.walk(node.args) if isinstance(part, ast.arg))
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name for alias in node.names)
    else:
        named = (one for part in _targets(node) for one in ast.walk(part) if isinstance(one, ast.Name))
        yield from (one.id for one in named if isinstance(one.ctx, ast.Store))


def _targets(node: ast.stmt) -> Sequence[ast.AST]:
    """The parts of a header that may assign names, except by `:=`."""
    if isinstance(node, ast.Assign):
        return node.targets
    if isinstance(node, ast.AugAssign | ast.AnnAssign | ast.For | ast.AsyncFor):
        return [node.target]
    return node.items if isinstance(node, ast.With | ast.AsyncWith) else []


def _header_code(node: ast.stmt) -> str:
    fields = {field: value for field, value in ast.iter_fields(node) if field not in BLOCKS}
    return f"{type(node).__name__} {[_shown(value) for value in fields.values()]}"


def _shown(value: object) -> str:
    if isinstance(value, list):
        return str([_shown(item) for item in value])
    if isinstance(value, ast.AST):
        return ast.dump(value)
    return hex(value) if isinstance(value, int) and not isinstance(value, bool) else repr(value)


def _role(node: ast.stmt) -> str:
    """What a statement defines, changes or calls; else its kind."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return f"define {node.name}"
    if isinstance(node, ast.Assign):
        return f"{', '.join(map(_named, node.targets))} ="
    if isinstance(node, ast.AnnAssign):
        return f"{_named(node.target)} ="
    if isinstance(node, ast.AugAssign):
        return f"{_named(node.target)} changes"
    if isinstance(node, ast.Import | ast.ImportFrom):
        return f"import {', '.join(alias.asname or alias.name for alias in node.names)}"
    if isinstance(node, ast.Expr):
        value = node.value.value if isinstance(node.value, ast.Await) else node.value
        return f"call {_named(value.func)}" if isinstance(value, ast.Call) else type(value).__name__.lower()
    return type(node).__name__.lower()


def _named(node: ast.expr) -> str:
    """A target or a called function without its arguments and its indices that are not constant."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_named(node.value)}.{node.attr}"
    if isinstance(node, ast.Subscript):
        constant = not any(isinstance(part, ast.Name) for part in ast.walk(node.slice))
        return f"{_named(node.value)}[{(written(node.slice) or '') if constant else ''}]"
    if isinstance(node, ast.Call):
        return f"{_named(node.func)}()"
    if isinstance(node, ast.Tuple | ast.List):
        return ", ".join(map(_named, node.elts))
    return _named(node.value) if isinstance(node, ast.Starred) else type(node).__name__.lower()
