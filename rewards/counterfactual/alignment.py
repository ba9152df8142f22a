"""Keys of steps that name the same step in all solutions of a group.

A key is made of the keys of the headers around a step, its role, and a number if the place has several of that role
(`step_keys`); the last of them has none. So most steps of siblings have equal keys without any comparison, and of two
definitions of a name the one in force has the name's key: a line that overrides another is not mistaken for it.

Beside siblings, order matters less: of several steps of a role that define nothing, one takes the number of a
sibling's step with equal code. And a step that no sibling has under its key, such as an assignment to a local name, is
aligned: it takes the key of an earlier solution's step of the same kind that stands at the same distance after the same
common step, unless some solution has both.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import count

from rewards.counterfactual.step_keys import StepContent

# Longer keys are replaced by a digest: deep nesting must not make them grow.
_LONGEST = 64
# An alignment gives the next steps a common one to stand after, so it is repeated at most this often.
_PASSES = 3

Keys = list[str]


def aligned_keys(group: Sequence[Sequence[StepContent | None]]) -> list[Keys]:
    """The keys of each solution's steps; "" for a step without a part. Within a solution no two steps share a key."""
    keys = [[""] * len(parts) for parts in group]
    levels = [_by_level(parts) for parts in group]
    for level in range(max(map(len, levels), default=0)):
        here = [found[level] if level < len(found) else [] for found in levels]
        _name(group, keys, here)
        for _ in range(_PASSES if len(group) > 1 else 0):
            if not _align(group, keys, here):
                break
    return keys


def _by_level(parts: Sequence[StepContent | None]) -> list[list[int]]:
    """The steps at each depth of nesting, in order."""
    depths: list[int] = []
    levels: list[list[int]] = []
    for index, part in enumerate(parts):
        depths.append(0 if part is None or part.parent < 0 else depths[part.parent] + 1)
        if part is not None:
            levels.extend([] for _ in range(len(levels), depths[-1] + 1))
            levels[depths[-1]].append(index)
    return levels


def _name(group: Sequence[Sequence[StepContent | None]], keys: list[Keys], here: Sequence[Sequence[int]]) -> None:
    """Set the keys of the steps of one level, given those of the levels above."""
    members: defaultdict[str, dict[int, list[tuple[int, StepContent]]]] = defaultdict(dict)
    for solution, steps in enumerate(here):
        for index in steps:
            part = group[solution][index]
            assert part is not None
            place = f"{keys[solution][part.parent]}/" if part.parent >= 0 else ""
            role = f"{place}{part.branch + ': ' if part.branch else ''}{part.role}"
            members[role].setdefault(solution, []).append((index, part))
    for role, by_solution in members.items():
        for solution, index, number in _numbered(by_solution):
            keys[solution][index] = _short(f"{role} #{number}" if number > 1 else role)


def _numbered(by_solution: Mapping[int, Sequence[tuple[int, StepContent]]]) -> Iterator[tuple[int, int, int]]:
    """Solution, step and number of all steps of one role, from the last of each solution; equal code, equal number.

    Solutions with the fewest come first: what they have is what the others' numbers refer to.
    """
    of_code: dict[tuple[str, int], int] = {}  # of the first, second, ... step with this code
    for solution in sorted(by_solution, key=lambda one: len(by_solution[one])):
        times: Counter[str] = Counter()
        numbers: dict[int, int] = {}
        waiting: list[tuple[int, tuple[str, int]]] = []
        taken: set[int] = set()
        for index, part in reversed(by_solution[solution]):
            times[part.code] += 1
            same = (part.code, times[part.code])
            number = 0 if part.defines else of_code.get(same, 0)
            if number and number not in taken:
                numbers[index] = number
                taken.add(number)
            else:
                waiting.append((index, same))
        free = (number for number in count(1) if number not in taken)
        for (index, same), number in zip(waiting, free, strict=False):
            numbers[index] = number
            of_code.setdefault(same, number)
        yield from ((solution, index, number) for index, number in numbers.items())


def _short(key: str) -> str:
    if len(key) <= _LONGEST:
        return key
    return f"{key[-24:]} {hashlib.sha256(key.encode(errors='surrogatepass')).hexdigest()[:16]}"


# A step's place: the key and branch of the header around it, the common step before it, its kind, and how many steps of
# that kind stand between the two.
_Slot = tuple[str, str, str, str, int]


def _align(group: Sequence[Sequence[StepContent | None]], keys: list[Keys], here: Sequence[Sequence[int]]) -> bool:
    """Give steps of one level the keys of earlier solutions' steps in the same slots; returns whether any changed."""
    held = [{own[index] for index in steps} for own, steps in zip(keys, here, strict=True)]
    fixed = {
        own[index]
        for parts, own, steps in zip(group, keys, here, strict=True)
        for index in steps
        if (part := parts[index]) is not None and part.fixed
    }
    common = _common(held)
    first: dict[_Slot, str] = {}
    renamed: dict[str, str] = {}
    for parts, own, steps in zip(group, keys, here, strict=True):
        for index, slot in _slots(parts, own, steps, common):
            key, earlier = (_latest(renamed, name) for name in (own[index], first.setdefault(slot, own[index])))
            if earlier == key or key in fixed or earlier in fixed:
                continue
            if any(earlier in solution and key in solution for solution in held):
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


def _latest(renamed: Mapping[str, str], key: str) -> str:
    while key in renamed:
        key = renamed[key]
    return key


def _common(held: Sequence[set[str]]) -> set[str]:
    """The keys that more than half of the solutions with steps at this level have."""
    counts = Counter(key for solution in held for key in solution)
    solutions = sum(map(bool, held))
    return {key for key, number in counts.items() if 2 * number > solutions}


def _slots(
    parts: Sequence[StepContent | None], keys: Keys, steps: Sequence[int], common: set[str]
) -> Iterator[tuple[int, _Slot]]:
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
