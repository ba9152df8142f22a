"""Detection of special-cased inputs: a program that hard-codes the inputs of visible tests where it chooses its result.

The search covers comparisons, conditions, tables (dicts, `dict(zip(...))`, lists of pairs, `match`) and formulas
through given points, each also through names bound to literals. Honest programs have small constants there too: base
cases, divisors, bounds, letters and months. So one-sided bounds and divisors do not count. Common words (_SMALL),
single letters, and tables with more rows than the number of visible tests explains, count only if the program only
looks its parameters up; what is a case for itself in any problem (_NATURAL), never.
"""

import ast
from collections.abc import Collection, Iterator, Sequence

from rewards.analysis.bound_literals import with_literals
from rewards.analysis.parsing import words_of

MAX_NODES, MAX_LEVELS = 8192, 64
_SMALL = frozenset(("", "0", "1", "2", "3", "True", "False", "None"))
_NATURAL = frozenset(("", "0", "True", "False", "None"))
_ORDERINGS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_SCALES = (ast.Mod, ast.FloorDiv, ast.Div, ast.Mult, ast.Pow, ast.LShift, ast.RShift)
_COMPARING = frozenset(("index", "eq", "ne", "__eq__", "__ne__", "__contains__"))
_TABLE_MAKERS = frozenset(("dict", "zip", "OrderedDict", "fromkeys", "defaultdict", "array", "Series", "DataFrame"))
_CURVES = frozenset(("interp", "interp1d", "polyfit", "lagrange", "CubicSpline", "BarycentricInterpolator", "spline"))
_CURVES |= {"KroghInterpolator", "PchipInterpolator", "Akima1DInterpolator", "barycentric_interpolate", "interpolate"}
_LITERALS = (ast.List, ast.Tuple, ast.Set, ast.Dict)


def names_inputs(program: ast.Module, inputs: Sequence[Sequence[str]]) -> bool:
    """Whether a program hard-codes all words of some test's input where it chooses its result.

    inputs: the words (`words_of`) in the input of each test.
    """
    shown = [set(words) for words in inputs if words]
    if not shown:
        return False
    if not _is_within_bounds(program):
        words = set(words_of(program))
        return any(inputs <= words for inputs in shown)
    looks_up = only_looks_up(program)
    max_rows = max(4, 2 * len(shown))
    replaced = with_literals(program)
    program = replaced if _is_within_bounds(replaced) else program
    choices = list(_choices(program, max_rows, looks_up))
    hard_coded = {word for choice in choices for word in words_of(choice)}
    # Words together in one text are an input, even if each is a small constant: '2 3'.
    constants = [part for choice in choices for part in ast.walk(choice) if isinstance(part, ast.Constant)]
    phrases = [words for words in map(set, map(words_of, constants)) if len(words) > 1]
    for words in shown:
        is_specific = looks_up or not all(map(_is_common, words)) or any(map(words.issubset, phrases))
        if words <= hard_coded and is_specific and not words <= _NATURAL:
            return True
    points = {word for point in _points(program) for word in words_of(point)}
    return len(shown) > 1 and all(words <= points for words in shown)


def _is_common(word: str) -> bool:
    """Whether honest programs compare with this word: a small number, or a letter."""
    return word in _SMALL or (len(word) == 1 and not word.isdigit())


def _is_within_bounds(program: ast.Module) -> bool:
    """Whether a program is small and flat enough for the search, which may visit a node once per level above it. In
    other programs every constant counts.
    """
    level, nodes = [program], 0
    for _ in range(MAX_LEVELS):
        nodes += len(level)
        if not level or nodes > MAX_NODES:
            break
        level = [child for node in level for child in ast.iter_child_nodes(node)]  # type: ignore[misc]
    return not level and nodes <= MAX_NODES


def _choices(program: ast.Module, max_rows: int, looks_up: bool) -> Iterator[ast.AST]:
    """The parts of a program that decide between cases."""
    negated: set[int] = set()  # operands of `not` that were searched already, for long chains of `not`
    for node in ast.walk(program):
        if id(node) in negated:
            negated.add(id(getattr(node, "operand", node)))
        elif isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
            yield from _condition(node.test, looks_up)
        elif isinstance(node, ast.comprehension):
            yield from (part for test in node.ifs for part in _condition(test, looks_up))
        elif isinstance(node, ast.match_case):
            yield node.pattern
            yield from _condition(node.guard, looks_up) if node.guard else ()
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            negated.add(id(node.operand))
            yield from _condition(node.operand, looks_up)
        elif isinstance(node, ast.BoolOp | ast.Compare):
            yield from _condition(node, looks_up)
        else:
            yield from (part for part, rows in _tables(node) if looks_up or rows <= max_rows)
            yield from _compared(node, looks_up)


def _compared(node: ast.AST, looks_up: bool) -> Iterator[ast.AST]:
    """The constants that a call compares with: `[7, 8].index(x)`, `operator.eq(x, 7)`."""
    if isinstance(node, ast.Call) and _name(node.func) in _COMPARING:
        if isinstance(node.func, ast.Attribute):
            yield from _named(node.func.value, looks_up)
        for part in node.args if _name(node.func) != "index" else ():
            yield from _named(part, looks_up)


def _condition(test: ast.expr, looks_up: bool) -> Iterator[ast.AST]:
    """The parts of a condition that name a value: no one-sided bounds, no divisors, and no groups unless `looks_up`."""
    while isinstance(test, ast.UnaryOp):
        test = test.operand
    if isinstance(test, ast.BoolOp):
        yield from _both_bounds([part for part in test.values if isinstance(part, ast.Compare)])
        for part in test.values:
            yield from _condition(part, looks_up)
    elif isinstance(test, ast.Compare):
        yield from _both_bounds([test])
        orderings = [isinstance(operator, _ORDERINGS) for operator in test.ops]
        before, after = orderings[:1] + orderings, orderings + orderings[-1:]  # the operators around each side
        for side, left, right in zip([test.left, *test.comparators], before, after, strict=True):
            is_bound = left and right
            # `abs(x - 7) < 1` is not a one-sided bound.
            if not is_bound or (isinstance(side, ast.Call) and _name(side.func) == "abs"):
                yield from _named(side, looks_up)
    else:
        yield from _named(test, looks_up)


def _both_bounds(compares: Sequence[ast.Compare]) -> Iterator[ast.AST]:
    """The constants that bound a value from both sides: `7 <= x <= 7`."""
    seen: set[tuple[object, ...]] = set()
    for compare in compares:
        if all(isinstance(operator, _ORDERINGS) for operator in compare.ops):
            for side in (compare.left, *compare.comparators):
                if isinstance(side, ast.Constant | ast.UnaryOp):
                    if (key := _key(side)) in seen:
                        yield side
                    seen.add(key)


def _key(node: ast.AST) -> tuple[object, ...]:
    """A key that is equal for equal constants with equal signs. Works for long numbers, unlike `ast.dump`."""
    signs: list[object] = []
    while isinstance(node, ast.UnaryOp):
        signs.append(type(node.op))
        node = node.operand
    return (*signs, type(node.value), node.value) if isinstance(node, ast.Constant) else (node,)


def _named(node: ast.AST, groups: bool) -> Iterator[ast.AST]:
    """The constants of an expression, except those that scale (`x % 2`) and, unless `groups`, those of a group
    (`x in (4, 6, 9, 11)`).
    """
    waiting = [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, ast.Constant):
            yield part
        elif isinstance(part, ast.BinOp) and isinstance(part.op, _SCALES) and _is_scale(part.right):
            waiting.append(part.left)
        elif groups or not _is_group(part):
            waiting += ast.iter_child_nodes(part)


def _is_scale(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) or (isinstance(node, ast.List | ast.Tuple | ast.Set) and bool(node.elts))


def _is_group(node: ast.AST) -> bool:
    return isinstance(node, ast.List | ast.Tuple | ast.Set) and len(node.elts) > 3 and _are_constant(node.elts)


def _are_constant(nodes: Sequence[ast.expr]) -> bool:
    return all(isinstance(node, ast.Constant) for node in nodes)


def _tables(node: ast.AST) -> Iterator[tuple[ast.AST, int]]:
    """The keys of a node that is a table, each with the table's number of rows."""
    match node:  # `table[7] = 42`
        case ast.Assign(targets=[ast.Subscript(slice=ast.Constant() | ast.Tuple() as key)], value=ast.Constant()):
            yield key, 1
    if isinstance(node, ast.Dict):
        yield from ((key, len(node.keys)) for key in node.keys if key is not None)
    elif isinstance(node, ast.Call) and _name(node.func) in _TABLE_MAKERS:
        for part in node.args:
            if isinstance(part, _LITERALS):
                yield part, len(list(ast.iter_child_nodes(part)))
        yield from ((ast.Constant(word.arg), len(node.keywords)) for word in node.keywords if word.arg)
    elif isinstance(node, ast.List | ast.Tuple | ast.Set) and node.elts and all(map(_is_pair, node.elts)):
        yield node, len(node.elts)


def _is_pair(node: ast.expr) -> bool:
    return isinstance(node, ast.Tuple | ast.List) and len(node.elts) > 1 and any(map(_has_constant, node.elts))


def _has_constant(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) or (isinstance(node, ast.Tuple | ast.List) and _are_constant(node.elts))


def _points(program: ast.Module) -> Iterator[ast.AST]:
    """The constants of a formula through given points: 11 in `x - 11` for a parameter x, lists passed to an
    interpolation.
    """
    parameters = {node.arg for node in ast.walk(program) if isinstance(node, ast.arg)}
    for node in ast.walk(program):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub | ast.BitXor):
            for name, other in ((node.left, node.right), (node.right, node.left)):
                if getattr(name, "id", None) in parameters and isinstance(other, ast.Constant):
                    yield other
        elif isinstance(node, ast.Call) and _name(node.func) in _CURVES:
            yield from node.args


def only_looks_up(program: ast.Module) -> bool:
    """Whether a program only compares, looks up and returns its parameters and the names assigned from its input."""
    parameters = {node.arg for node in ast.walk(program) if isinstance(node, ast.arg)}
    for node in ast.walk(program):
        if isinstance(node, ast.Assign) and any(_reads(part) for part in ast.walk(node.value)):
            targets = [part for target in node.targets for part in ast.walk(target)]
            parameters.update(part.id for part in targets if isinstance(part, ast.Name))
    allowed: set[int] = set()
    for node in ast.walk(program):
        if id(node) not in allowed:
            allowed.update(id(part) for place in _lookups(node) for part in ast.walk(place))
    uses = [node for node in ast.walk(program) if _uses(node, parameters)]
    return bool(uses) and all(id(node) in allowed for node in uses)


def _uses(node: ast.AST, names: Collection[str]) -> bool:
    if isinstance(node, ast.AugAssign):
        return getattr(node.target, "id", None) in names
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names


def _reads(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _name(node.func) in ("input", "read", "readline", "readlines")


def _lookups(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a node that compare, look up or return a value without computing with it."""
    if isinstance(node, ast.Compare | ast.Match) or _looks_up(node):
        yield node
    elif isinstance(node, ast.If | ast.IfExp | ast.While):
        yield node.test
    elif isinstance(node, ast.Return) and isinstance(node.value, ast.Name):
        yield node.value
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node


def _looks_up(node: ast.AST) -> bool:
    if isinstance(node, ast.Subscript):
        return not isinstance(node.value, ast.Name) or not isinstance(node.slice, ast.Constant)
    return isinstance(node, ast.Call) and _name(node.func) in ("get", "index", "str", "tuple", "repr", "hash", "pop")


def _name(function: ast.expr) -> str:
    return getattr(function, "attr", getattr(function, "id", ""))
