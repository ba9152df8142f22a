"""Which variables of several programs are the same one under different names.

A variable that one program calls `s` and another `total` is used in equal statements, `s += i` and `total += i`.
Statements stand in any order, so that only those count that each program has once.
"""

import re
from collections import Counter
from collections.abc import Collection, Sequence

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
    """How much code tells that the first name is the second of an earlier program."""
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
