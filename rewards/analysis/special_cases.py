"""Whether a program spells out the inputs of the tests that its prompt shows, where it decides what to return.

Looked at are comparisons, conditions, tables (dicts, `dict(zip(...))`, lists of pairs, `match`) and formulas through
given points. Honest programs have small constants there too: base cases, divisors, bounds, letters and months. So a
bound on one side names nothing, nor does a divisor; words that any program may hold (SMALL) and tables of more rows
than the prompt gives a reason for count only where the program does nothing with its parameters but look them up.
"""

import ast
from collections.abc import Collection, Iterator, Sequence

from rewards.analysis.literals import words_of

MAX_NODES, MAX_LEVELS = 8192, 64
_SMALL = frozenset(("", "0", "1", "2", "3", "True", "False", "None"))
_ORDERINGS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_SCALES = (ast.Mod, ast.FloorDiv, ast.Div, ast.Mult, ast.Pow, ast.LShift, ast.RShift)
_TABLE_MAKERS = frozenset(("dict", "zip", "OrderedDict", "fromkeys", "defaultdict", "array", "Series", "DataFrame"))
_CURVES = frozenset(("interp", "interp1d", "polyfit", "lagrange", "CubicSpline", "BarycentricInterpolator", "spline"))
_CURVES |= {"KroghInterpolator", "PchipInterpolator", "Akima1DInterpolator", "barycentric_interpolate", "interpolate"}
_LITERALS = (ast.List, ast.Tuple, ast.Set, ast.Dict)


def names_inputs(program: ast.Module, inputs: Sequence[Sequence[str]]) -> bool:
    """Whether all that one of the tests puts in is spelled out where a program decides.

    inputs: of each test, the words of what it puts in (`words_of`).
    """
    shown = [set(words) for words in inputs if words]
    if not shown:
        return False
    if not _is_within_bounds(program):
        words = set(words_of(program))
        return any(inputs <= words for inputs in shown)
    looks_up = only_looks_up(program)
    rows = max(4, 2 * len(shown))
    places = list(_choices(program, rows, looks_up))
    spelled = {word for place in places for word in words_of(place)}
    # Words that stand together in one text are an input, however small each is: '2 3'.
    texts = [set(words_of(part)) for place in places for part in ast.walk(place) if isinstance(part, ast.Constant)]
    together = [words for words in texts if len(words) > 1]
    for words in shown:
        telling = looks_up or not words <= _SMALL or any(map(words.issubset, together))
        if words <= spelled and telling:
            return True
    points = {word for place in _points(program) for word in words_of(place)}
    return len(shown) > 1 and all(words <= points for words in shown)


def _is_within_bounds(program: ast.Module) -> bool:
    """Whether a program is small and flat enough to be looked into: some of what follows looks at a node once for each
    level above it. In others every constant counts."""
    level, nodes = [program], 0
    for _ in range(MAX_LEVELS):
        nodes += len(level)
        if not level or nodes > MAX_NODES:
            break
        level = [child for node in level for child in ast.iter_child_nodes(node)]  # type: ignore[misc]
    return not level and nodes <= MAX_NODES


def _choices(program: ast.Module, rows: int, looks_up: bool) -> Iterator[ast.AST]:
    """The parts of a program that decide between cases."""
    negated: set[int] = set()  # operands of a `not` that has been looked into, which long chains of them have
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
            yield from (part for part, size in _tables(node) if looks_up or size <= rows)


def _condition(test: ast.expr, looks_up: bool) -> Iterator[ast.AST]:
    """The parts of a condition that name a value: not a bound on one side, not a divisor, not a group (unless the
    program only looks values up).
    """
    while isinstance(test, ast.UnaryOp):
        test = test.operand
    if isinstance(test, ast.BoolOp):
        yield from _both_bounds([part for part in test.values if isinstance(part, ast.Compare)])
        for part in test.values:
            yield from _condition(part, looks_up)
    elif isinstance(test, ast.Compare):
        yield from _both_bounds([test])
        orderings = [isinstance(operator, _ORDERINGS) for operator in test.ops]
        sides = [test.left, *test.comparators]
        beside = [
            (orderings[:1] + orderings)[place] and (orderings + orderings[-1:])[place] for place in range(len(sides))
        ]
        for side, is_bound in zip(sides, beside, strict=True):
            # `abs(x - 7) < 1` is no bound on one side.
            if not is_bound or (isinstance(side, ast.Call) and _name(side.func) == "abs"):
                yield from _named(side, looks_up)
    else:
        yield from _named(test, looks_up)


def _both_bounds(compares: Sequence[ast.Compare]) -> Iterator[ast.AST]:
    """The constants that bound a value from below and from above at once: `7 <= x <= 7`."""
    seen: set[tuple[object, ...]] = set()
    for compare in compares:
        if all(isinstance(operator, _ORDERINGS) for operator in compare.ops):
            for side in (compare.left, *compare.comparators):
                if isinstance(side, ast.Constant | ast.UnaryOp):
                    if (key := _key(side)) in seen:
                        yield side
                    seen.add(key)


def _key(node: ast.AST) -> tuple[object, ...]:
    """Equal for equal constants below equal signs; a number of any length, which `ast.dump` can't write."""
    signs: list[object] = []
    while isinstance(node, ast.UnaryOp):
        signs.append(type(node.op))
        node = node.operand
    return (*signs, type(node.value), node.value) if isinstance(node, ast.Constant) else (node,)


def _named(node: ast.AST, groups: bool) -> Iterator[ast.AST]:
    """The constants of an expression but those that scale (`x % 2`) and those of a group (`x in (4, 6, 9, 11)`)."""
    waiting = [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, ast.Constant):
            yield part
        elif isinstance(part, ast.BinOp) and isinstance(part.op, _SCALES) and isinstance(part.right, ast.Constant):
            waiting.append(part.left)
        elif groups or not _is_group(part):
            waiting += ast.iter_child_nodes(part)


def _is_group(node: ast.AST) -> bool:
    return isinstance(node, ast.List | ast.Tuple | ast.Set) and len(node.elts) > 3 and _are_constant(node.elts)


def _are_constant(nodes: Sequence[ast.expr]) -> bool:
    return all(isinstance(node, ast.Constant) for node in nodes)


def _tables(node: ast.AST) -> Iterator[tuple[ast.AST, int]]:
    """The keys of a table that a node writes down, with the number of its rows."""
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
    """What a formula through given points holds: `x - 11` for a parameter x, the lists given to an interpolation."""
    parameters = {node.arg for node in ast.walk(program) if isinstance(node, ast.arg)}
    for node in ast.walk(program):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub | ast.BitXor):
            for name, other in ((node.left, node.right), (node.right, node.left)):
                if getattr(name, "id", None) in parameters and isinstance(other, ast.Constant):
                    yield other
        elif isinstance(node, ast.Call) and _name(node.func) in _CURVES:
            yield from node.args


def only_looks_up(program: ast.Module) -> bool:
    """Whether a program does nothing with its parameters, or with names that hold what it reads, but compare them, look
    them up and hand them back.
    """
    parameters = {node.arg for node in ast.walk(program) if isinstance(node, ast.arg)}
    for node in ast.walk(program):
        if isinstance(node, ast.Assign) and any(_reads(part) for part in ast.walk(node.value)):
            parameters.update(
                part.id for target in node.targets for part in ast.walk(target) if isinstance(part, ast.Name)
            )
    allowed: set[int] = set()
    for node in ast.walk(program):
        if id(node) not in allowed:
            allowed.update(id(part) for place in _looked_at(node) for part in ast.walk(place))
    reads = [node for node in ast.walk(program) if _uses(node, parameters)]
    return bool(reads) and all(id(node) in allowed for node in reads)


def _uses(node: ast.AST, names: Collection[str]) -> bool:
    if isinstance(node, ast.AugAssign):
        return getattr(node.target, "id", None) in names
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names


def _reads(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _name(node.func) in ("input", "read", "readline", "readlines")


def _looked_at(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a node in which a value decides and is not computed with."""
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
