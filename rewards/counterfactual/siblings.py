"""Solutions of one group beside each other: steps that are the same, and how informative a step is.

Sources of the same step: `step_keys` for programs and texts; for turns the state before the action.
"""

import builtins
import io
import math
import random
import tokenize
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rewards.analysis.local_names import names_in, names_read
from rewards.counterfactual.alignment import aligned_keys
from rewards.counterfactual.interventions import WrittenSolution
from rewards.counterfactual.replayer import Array
from rewards.counterfactual.segments import NoSteps, Step, Unit, segment
from rewards.counterfactual.step_keys import StepContent, parts_of


@dataclass(frozen=True)
class Sibling:
    """A solution of the group: its text, or the actions of an agent with the key of the state before each.

    reward: R in [0, 1]; NaN if it could not be judged. tests: which tests it passed, if that is known.
    """

    text: WrittenSolution
    reward: float = math.nan
    states: tuple[str, ...] = ()
    tests: tuple[bool, ...] = ()


@dataclass(frozen=True)
class Keyed:
    """A solution's steps as written, their keys ("" for a step of code that does not parse), and what they are.

    codes: normalised code, equal for steps that do the same in the same words. binds: the names that a step assigns.
    reached: False for a step that no run can execute. is_code: False for text and for an agent's actions.
    """

    pieces: tuple[str, ...]
    keys: tuple[str, ...]
    codes: tuple[str, ...]
    binds: tuple[tuple[str, ...], ...]
    reached: tuple[bool, ...]
    is_code: tuple[bool, ...]
    reward: float = math.nan
    tests: tuple[bool, ...] = ()

    def index(self, key: str) -> int | None:
        """The step with this key."""
        return self._places.get(key)

    @cached_property
    def _places(self) -> Mapping[str, int]:
        return {key: index for index, key in reversed(list(enumerate(self.keys))) if key}


def of_turns(turns: Sibling) -> Keyed:
    """An agent's actions, with the states before them as keys."""
    actions = tuple(turns.text)
    each = len(actions)
    return Keyed(
        actions, turns.states, actions, ((),) * each, (True,) * each, (False,) * each, turns.reward, turns.tests
    )


def of_programs(
    solution: str, siblings: Sequence[Sibling], unit: Unit, text_steps: bool, asked: frozenset[str] = frozenset()
) -> tuple[Keyed, list[Keyed]]:
    """A text and the other texts of its group, with keys that name the same steps.

    siblings: the whole group in the order of its samples, so that all samples get the same keys; the solution may be
    among them. asked: names that the problem mentions. Texts without steps, and equal ones, are left out of the others.
    """
    members = {sibling.text: sibling for sibling in reversed(siblings) if isinstance(sibling.text, str)}
    texts = [text for text in dict.fromkeys(sibling.text for sibling in siblings) if isinstance(text, str)]
    texts = texts if solution in members else [solution, *texts]
    by_text = _keyed(tuple(texts), unit, text_steps, asked)
    judged = {
        text: replace(keyed, reward=members[text].reward, tests=members[text].tests) if text in members else keyed
        for text, keyed in by_text.items()
    }
    return judged[solution], [judged[text] for text in texts if text != solution and text in judged]


# Each sample of a group asks for the same one.
@lru_cache(maxsize=32)
def _keyed(texts: tuple[str, ...], unit: Unit, text_steps: bool, asked: frozenset[str]) -> dict[str, Keyed]:
    steps: dict[str, list[Step]] = {}
    for text in texts:
        try:
            steps[text] = segment(text, unit, text_steps=text_steps)
        except NoSteps:
            continue
    parts = [parts_of(text, own, asked) for text, own in steps.items()]
    keys = aligned_keys(parts)
    return {
        text: _of_parts(tuple(text[step.start : step.end] for step in own), names, described)
        for (text, own), described, names in zip(steps.items(), parts, keys, strict=True)
    }


def _of_parts(pieces: tuple[str, ...], keys: Sequence[str], parts: Sequence[StepContent | None]) -> Keyed:
    return Keyed(
        pieces,
        tuple(keys),
        tuple(part.code if part else "" for part in parts),
        tuple(part.binds if part else () for part in parts),
        tuple(part is None or part.reached for part in parts),
        tuple(part is None or part.kind != "text" for part in parts),
    )


def equal_steps(own: Keyed, others: Sequence[Keyed]) -> set[int]:
    """The steps that every other solution with keys has with the same code; none if there is no such solution."""
    comparable = [other for other in others if any(other.keys)]
    if not comparable:
        return set()
    return {index for index, key in enumerate(own.keys) if key and not _different(own, index, comparable)}


def informative(own: Keyed, others: Sequence[Keyed]) -> list[int]:
    """The most informative steps first.

    That is, those whose code goes with the largest difference of mean outcomes, between the solutions that have it
    (this one included) and those that have other code or no such step; then those that most solutions write
    differently; then the longest; then the earlier. The outcome is that of the test with the largest difference, or R.
    """
    comparable = [other for other in others if any(other.keys)]
    outcomes = _outcomes([own, *comparable])

    def rank(index: int) -> tuple[float, int, int]:
        different = {id(other) for other in _different(own, index, comparable)} if own.keys[index] else set()
        apart = np.array([id(other) in different for other in (own, *comparable)])
        difference = np.abs(_contrast(outcomes, apart)).max()
        return -float(difference), -len(different), -len(own.pieces[index])

    return sorted(range(len(own.keys)), key=rank)


def _different(own: Keyed, index: int, others: Sequence[Keyed]) -> list[Keyed]:
    """The solutions that have other code for this step, or no such step."""
    places = [other.index(own.keys[index]) for other in others]
    return [
        other
        for other, place in zip(others, places, strict=True)
        if place is None or other.codes[place] != own.codes[index]
    ]


def _outcomes(solutions: Sequence[Keyed]) -> Array:
    """(solutions, tests) which tests each passed, if all know that; else (solutions, 1) R. NaN: not judged."""
    judged = [solution for solution in solutions if math.isfinite(solution.reward)]
    tests = {len(solution.tests) for solution in judged}
    if len(tests) != 1 or tests == {0}:
        return np.array([[solution.reward] for solution in solutions])
    unknown = [math.nan] * tests.pop()
    return np.array([solution.tests if math.isfinite(solution.reward) else unknown for solution in solutions], float)


def _contrast(outcomes: Array, chosen: NDArray[np.bool_]) -> Array:
    """Mean outcomes of the chosen solutions minus those of the others; 0 where one side has none."""
    judged = np.isfinite(outcomes[:, 0])
    sides = outcomes[judged & chosen], outcomes[judged & ~chosen]
    if not all(map(len, sides)):
        return np.zeros(outcomes.shape[1])
    contrast: Array = sides[0].mean(axis=0) - sides[1].mean(axis=0)
    return contrast


class OtherCode(NamedTuple):
    """Other code for a step: the sibling that wrote it, the text in this solution's names, and without layout."""

    sibling: int
    piece: str
    words: tuple[str, ...]


class Alternatives:
    """What siblings wrote for the steps of a solution."""

    def __init__(self, own: Keyed, others: Sequence[Keyed]):
        self.own = own
        self.others = sorted(others, key=lambda other: -_ranked(other.reward))
        self._known_names: dict[int, dict[str, str]] = {}
        self._known_codes: dict[int, list[OtherCode | None]] = {}
        self._outcomes = _outcomes([own, *self.others])

    def codes(self, index: int) -> list[OtherCode]:
        """What siblings wrote for this step, that of the best first; each different code once.

        Names that a sibling binds in other steps that are the same get this solution's names: code that differs in them
        alone is no other code. Code that reads a name which this solution lacks is left out: that it fails is no
        evidence about the step.
        """
        first: dict[tuple[str, ...], OtherCode] = {}
        for code in self._codes(index):
            if code is not None:
                first.setdefault(code.words, code)
        return list(first.values())

    def _codes(self, index: int) -> list[OtherCode | None]:
        """What each sibling wrote; None where it has no other code that can stand here."""
        if index not in self._known_codes:
            self._known_codes[index] = [self._code(index, number) for number in range(len(self.others))]
        return self._known_codes[index]

    def _code(self, index: int, number: int) -> OtherCode | None:
        own, other = self.own, self.others[number]
        place = other.index(own.keys[index]) if own.keys[index] else None
        if place is None or other.codes[place] == own.codes[index]:
            return None
        written, is_code = other.pieces[place], own.is_code[index]
        piece = self._in_own_names(written, number) if is_code else written
        if piece is None or _words(piece, is_code) == _words(own.pieces[index], is_code):
            return None
        return OtherCode(number, piece, _words(piece, is_code))

    def promise(self, index: int) -> float:
        """What the best other code for this step may gain, from -1 to 1 (`_promised`); -1 if there is none."""
        return max((self._promised(index, code) for code in self.codes(index)), default=-1.0)

    def _promised(self, index: int, chosen: OtherCode) -> float:
        """Where each test is known: of those that this solution fails, the most that siblings with this code pass more
        often than the others. Else the reward of the best of these siblings minus this solution's.
        """
        if self._outcomes.shape[1] == 1 or self.own.reward == 1.0:
            gain = self.others[chosen.sibling].reward - self.own.reward
            return gain if math.isfinite(gain) else 0.0
        holds = [False, *(code is not None and code.words == chosen.words for code in self._codes(index))]
        failed = self._outcomes[0] == 0.0
        return float(_contrast(self._outcomes[:, failed], np.array(holds)).max(initial=-1.0))

    def best(self, index: int, rng: random.Random) -> str | None:
        """The code of a sibling for this step that promises most, then of the best one, then drawn; None if none is."""
        codes = list(self.codes(index))
        rng.shuffle(codes)
        codes.sort(key=lambda one: (-self._promised(index, one), -_ranked(self.others[one.sibling].reward)))
        return codes[0].piece if codes else None

    def _in_own_names(self, piece: str, number: int) -> str | None:
        translated = renamed(piece, self._names(number))
        return translated if translated is not None and names_read(translated) <= self._readable else None

    @cached_property
    def _readable(self) -> set[str]:
        """The names that code in this solution can read."""
        return {*dir(builtins), *names_in("\n".join(self.own.pieces))}

    def _names(self, number: int) -> dict[str, str]:
        if number not in self._known_names:
            self._known_names[number] = _names(self.others[number], self.own)
        return self._known_names[number]


@lru_cache(maxsize=8192)
def _words(piece: str, is_code: bool) -> tuple[str, ...]:
    """The tokens of a piece of code, without blanks and comments; of other text, and of broken code, the text."""
    if not is_code:
        return (piece,)
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(piece).readline))
    except (tokenize.TokenError, SyntaxError, IndentationError):
        return (piece,)
    return tuple(token.string.strip() for token in tokens if token.string.strip() and token.type != tokenize.COMMENT)


def _ranked(reward: float) -> float:
    """A reward for sorting; one that is not known comes last."""
    return reward if math.isfinite(reward) else -math.inf


def _names(other: Keyed, own: Keyed) -> dict[str, str]:
    """This solution's names for those of another, from the steps that are the same; a name with two meanings stays."""
    meanings: dict[str, set[str]] = {}
    for place, key in enumerate(other.keys):
        index = own.index(key)
        if index is not None and len(other.binds[place]) == len(own.binds[index]):
            for name, mine in zip(other.binds[place], own.binds[index], strict=True):
                meanings.setdefault(name, set()).add(mine)
    return {
        name: mine for name, (mine, *more) in ((name, list(found)) for name, found in meanings.items())
        if not more and mine != name
    }  # fmt: skip


def renamed(code: str, names: Mapping[str, str]) -> str | None:
    """A piece of code with these names replaced, except attributes and keywords of calls; None if one may stand in a
    string.
    """
    if names.keys().isdisjoint(names_in(code)):
        return code
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(code).readline))
    except (tokenize.TokenError, SyntaxError, IndentationError):
        return None
    strings = " ".join(token.string for token in tokens if token.type == tokenize.STRING)
    if not names.keys().isdisjoint(names_in(strings)):
        return None
    lines = code.splitlines(keepends=True)
    depths, depth = [], 0
    for token in tokens:
        depth += (token.string in "([{") - (token.string in ")]}") if token.type == tokenize.OP else 0
        depths.append(depth)
    for number in reversed(range(len(tokens))):
        token = tokens[number]
        before = tokens[number - 1].string if number else ""
        after = tokens[number + 1].string if number + 1 < len(tokens) else ""
        keyword = depths[number] > 0 and after == "="
        if token.type == tokenize.NAME and token.string in names and before != "." and not keyword:
            row, start, end = token.start[0] - 1, token.start[1], token.end[1]
            lines[row] = lines[row][:start] + names[token.string] + lines[row][end:]
    return "".join(lines)
