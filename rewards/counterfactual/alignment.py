"""Keys of steps that name the same step in all solutions of a group.

A key is made of the keys of the headers around a step, its role, and a number if the place has several of that role
(`step_keys`); the last of them has none. So most steps of siblings have equal keys without any comparison, and of two
definitions of a name the one in force has the name's key: a line that overrides another is not mistaken for it.

Beside siblings, steps of a role that define nothing are numbered together (`rewards.analysis.columns`). Roles have an
earlier solution's names where equal code shows which variable is which (`SharedNames`): one that a program calls `s`
and another `total` is used in equal statements, `s += i` and `total += i`. Statements stand in any order, so that only
those count that each program has once. And a step that no sibling has under its key is aligned: it takes the key of an
earlier solution's step of the same kind that stands at the same distance after the same common step, unless some
solution has both steps, or both of their names.
"""

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import count

from rewards.analysis.columns import in_columns
from rewards.counterfactual.step_keys import StepContent

# Longer keys are replaced by a digest: deep nesting must not make them grow.
_LONGEST = 64
# An alignment gives the next steps a common one to stand after, so it is repeated at most this often.
_PASSES = 3

_DEFINITIONS = ("FunctionDef", "AsyncFunctionDef", "ClassDef")
_NO_VARIABLES = (*_DEFINITIONS, "Import", "ImportFrom")

Keys = list[str]
SolutionSteps = Sequence[StepContent | None]

# A name in the dump of a syntax tree, which may be quoted.
_DUMPED = re.compile(r"(?<!\w)id=\\*'([^'\\]+)")
# A string, or a word that is no attribute.
_WORD = re.compile(r"""['"].*['"]|(?<![\w.])[^\W\d]\w*""")


class SharedNames:
    """The names of one scope in several programs; in each of them one variable has one name.

    programs: dumps of their statements. held: the names of each program's variables. kept: names that stay themselves.
    """

    def __init__(self, programs: Sequence[Sequence[str]], held: Sequence[Collection[str]], kept: Collection[str] = ()):
        self._held = [set(names) - set(kept) for names in held]
        self._kept = kept
        self._earlier: dict[str, str] = {}
        for (name, earlier), _ in _evidence(programs, self._held).most_common():
            self.unite([name], [earlier])

    def of(self, name: str) -> str:
        """The name in the earliest program that has this variable."""
        while name in self._earlier:
            name = self._earlier[name]
        return name

    def unite(self, names: Sequence[str], earlier: Sequence[str]) -> bool:
        """Make these variables the earlier ones; False if this would give a name of some program two meanings."""
        pairs = {(self.of(one), self.of(other)) for one, other in zip(names, earlier, strict=True)}
        pairs = {(one, other) for one, other in pairs if one != other}
        if any(name in self._kept for pair in pairs for name in pair):
            return False
        if any(held.issuperset(pair) for held in self._held for pair in pairs):
            return False
        for one, other in pairs:
            self._earlier[one] = other
            for held in self._held:
                if one in held:
                    held.remove(one)
                    held.add(other)
        return True

    def translated(self, role: str, code: str) -> str:
        """A role with the earliest names. code: the dump of its statement."""
        new = {name: self.of(name) for name in _DUMPED.findall(code)}
        return _WORD.sub(lambda word: new.get(word[0], word[0]), role)


def _evidence(programs: Sequence[Sequence[str]], held: Sequence[Collection[str]]) -> Counter[tuple[str, str]]:
    """How much code is evidence that the first name is the second of an earlier program."""
    first: dict[str, list[str]] = {}
    evidence: Counter[tuple[str, str]] = Counter()
    for statements, variables in zip(programs, held, strict=True):
        patterns = [_pattern(statement, variables) for statement in statements]
        times = Counter(pattern for pattern, _ in patterns)
        for pattern, names in patterns:
            if times[pattern] == 1:
                for pair in zip(names, first.setdefault(pattern, names), strict=True):
                    evidence[pair] += len(pattern)
    return evidence


def _pattern(code: str, variables: Collection[str]) -> tuple[str, list[str]]:
    """A statement with its variables numbered by appearance, and these."""
    numbers: dict[str, int] = {}
    pattern = _DUMPED.sub(
        lambda name: f"id={numbers.setdefault(name[1], len(numbers))}" if name[1] in variables else name[0], code
    )
    return pattern, list(numbers)


# For each step the names of the scope that it stands in.
Names = list[dict[int, SharedNames]]


def aligned_keys(group: Sequence[SolutionSteps]) -> list[Keys]:
    """The keys of each solution's steps; "" for a step without a part. Within a solution no two steps share a key."""
    keys = [[""] * len(parts) for parts in group]
    levels = [_by_level(parts) for parts in group]
    scopes = [_by_scope(parts) for parts in group]
    names: Names = [{} for _ in group]
    for level in range(max(map(len, levels), default=0)):
        here = [found[level] if level < len(found) else [] for found in levels]
        _share_names(group, keys, here, scopes, names)
        _name(group, keys, here, names)
        for _ in range(_PASSES if len(group) > 1 else 0):
            if not _align(group, keys, here, names):
                break
    return keys


def _by_level(parts: SolutionSteps) -> list[list[int]]:
    """The steps at each depth of nesting, in order."""
    depths: list[int] = []
    levels: list[list[int]] = []
    for index, part in enumerate(parts):
        depths.append(0 if part is None or part.parent < 0 else depths[part.parent] + 1)
        if part is not None:
            levels.extend([] for _ in range(len(levels), depths[-1] + 1))
            levels[depths[-1]].append(index)
    return levels


def _by_scope(parts: SolutionSteps) -> dict[int, list[int]]:
    """The steps in each function or class, without those of inner ones; -1: the module."""
    scopes: list[int] = []
    inside: dict[int, list[int]] = {}
    for index, part in enumerate(parts):
        parent = part.parent if part else -1
        around = parts[parent] if parent >= 0 else None
        scopes.append(parent if around is None or around.kind in _DEFINITIONS else scopes[parent])
        inside.setdefault(scopes[-1], []).append(index)
    return inside


def _variables(part: StepContent) -> tuple[str, ...]:
    return () if part.kind in _NO_VARIABLES else part.binds


def _share_names(
    group: Sequence[SolutionSteps],
    keys: list[Keys],
    here: Sequence[Sequence[int]],
    scopes: Sequence[Mapping[int, Sequence[int]]],
    names: Names,
) -> None:
    """Set the names of the scopes whose first steps are at this level."""
    members: defaultdict[str, list[tuple[int, Sequence[int]]]] = defaultdict(list)
    for solution, (parts, steps) in enumerate(zip(group, here, strict=True)):
        for scope in {part.parent for index in steps if (part := parts[index])} & scopes[solution].keys():
            key = keys[solution][scope] if scope >= 0 else ""
            members[key].append((solution, scopes[solution][scope]))
    for found in members.values():
        programs = [[part for index in steps if (part := group[solution][index])] for solution, steps in found]
        shared = SharedNames(
            [[part.code for part in parts] for parts in programs],
            [{name for part in parts for name in _variables(part)} for parts in programs],
            {name for parts in programs for part in parts if part.fixed for name in part.binds},
        )
        for solution, steps in found:
            names[solution].update(dict.fromkeys(steps, shared))


def _name(group: Sequence[SolutionSteps], keys: list[Keys], here: Sequence[Sequence[int]], names: Names) -> None:
    """Set the keys of the steps of one level, given those of the levels above."""
    members: defaultdict[str, dict[int, list[tuple[int, StepContent]]]] = defaultdict(dict)
    for solution, steps in enumerate(here):
        for index in steps:
            part = group[solution][index]
            assert part is not None
            place = f"{keys[solution][part.parent]}/" if part.parent >= 0 else ""
            own = names[solution][index].translated(part.role, part.code)
            role = f"{place}{part.branch + ': ' if part.branch else ''}{own}"
            members[role].setdefault(solution, []).append((index, part))
    for role, by_solution in members.items():
        for solution, index, number in _numbered(by_solution):
            keys[solution][index] = _short(f"{role} #{number}" if number > 1 else role)


def _numbered(by_solution: Mapping[int, Sequence[tuple[int, StepContent]]]) -> Iterator[tuple[int, int, int]]:
    """Solution, step and number of all steps of one role, from the last; of definitions the last is in force."""
    programs = [[part.code for _, part in own] for own in by_solution.values()]
    if any(part.defines for own in by_solution.values() for _, part in own):
        numbers = [list(range(len(program), 0, -1)) for program in programs]
    else:
        numbers = in_columns(programs)
    for (solution, own), found in zip(by_solution.items(), numbers, strict=True):
        yield from ((solution, index, number) for (index, _), number in zip(own, found, strict=True))


def _short(key: str) -> str:
    if len(key) <= _LONGEST:
        return key
    return f"{key[-24:]} {hashlib.sha256(key.encode(errors='surrogatepass')).hexdigest()[:16]}"


# A step's place: the key and branch of the header around it, the common step before it, its kind, and how many steps of
# that kind stand between the two.
_Slot = tuple[str, str, str, str, int]


def _align(group: Sequence[SolutionSteps], keys: list[Keys], here: Sequence[Sequence[int]], names: Names) -> bool:
    """Give steps of one level the keys of earlier solutions' steps in the same slots; returns whether any changed."""
    held = [{own[index] for index in steps} for own, steps in zip(keys, here, strict=True)]
    fixed = {
        own[index]
        for parts, own, steps in zip(group, keys, here, strict=True)
        for index in steps
        if (part := parts[index]) is not None and part.fixed
    }
    common = _common(held)
    first: dict[_Slot, tuple[str, StepContent]] = {}
    renamed: dict[str, str] = {}
    for parts, own, shared, steps in zip(group, keys, names, here, strict=True):
        for index, slot in _slots(parts, own, steps, common):
            part = parts[index]
            assert part is not None
            named, model = first.setdefault(slot, (own[index], part))
            key, earlier = _latest(renamed, own[index]), _latest(renamed, named)
            if earlier == key or key in fixed or earlier in fixed:
                continue
            if any(earlier in solution and key in solution for solution in held):
                continue
            if not _same_variables(shared[index], part, model):
                continue
            renamed[key] = earlier
            for solution in held:
                if key in solution:
                    solution.remove(key)
                    solution.add(earlier)
    for own, steps in zip(keys, here, strict=True):
        for index in steps:
            own[index] = _latest(renamed, own[index])
    return bool(renamed)


def _same_variables(shared: SharedNames, part: StepContent, model: StepContent) -> bool:
    """Whether what the steps assign may be the same variables; from then on they are."""
    if part.role == model.role or part.kind in _NO_VARIABLES or len(part.binds) != len(model.binds):
        return True
    return shared.unite(part.binds, model.binds)


def _latest(renamed: Mapping[str, str], key: str) -> str:
    while key in renamed:
        key = renamed[key]
    return key


def _common(held: Sequence[set[str]]) -> set[str]:
    """The keys that more than half of the solutions with steps at this level have."""
    counts = Counter(key for solution in held for key in solution)
    solutions = sum(map(bool, held))
    return {key for key, number in counts.items() if 2 * number > solutions}


def _slots(parts: SolutionSteps, keys: Keys, steps: Sequence[int], common: set[str]) -> Iterator[tuple[int, _Slot]]:
    anchors: dict[tuple[str, str], str] = {}
    numbers: defaultdict[tuple[str, str, str, str], count[int]] = defaultdict(count)
    for index in steps:
        part = parts[index]
        assert part is not None
        block = (keys[part.parent] if part.parent >= 0 else "", part.branch)
        place = (*block, anchors.get(block, ""), part.kind)
        yield index, (*place, next(numbers[place]))
        if keys[index] in common:
            anchors[block] = keys[index]
