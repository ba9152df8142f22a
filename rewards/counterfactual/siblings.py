"""Solutions of one group beside each other: steps that are the same, and what a step may tell.

Sources of the same step: `step_keys` for programs and texts; for turns the state before the action.
"""

import ast
import builtins
import io
import math
import random
import re
import tokenize
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from rewards.analysis.parsing import parse
from rewards.counterfactual.alignment import aligned_keys
from rewards.counterfactual.interventions import Solution
from rewards.counterfactual.segments import NoSteps, Step, Unit, segment
from rewards.counterfactual.step_keys import Part, parts_of


@dataclass(frozen=True)
class Sibling:
    """A solution of the group: its text, or the actions of an agent with the key of the state before each.

    reward: R in [0, 1]; NaN if it could not be judged.
    """

    text: Solution
    reward: float = math.nan
    states: tuple[str, ...] = ()


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

    def index(self, key: str) -> int | None:
        """The step with this key."""
        return self._places.get(key)

    @cached_property
    def _places(self) -> Mapping[str, int]:
        return {key: index for index, key in reversed(list(enumerate(self.keys))) if key}


def of_turns(turns: Sibling) -> Keyed:
    """An agent's actions, with the states before them as keys."""
    actions = tuple(turns.text)
    count = len(actions)
    return Keyed(actions, turns.states, actions, ((),) * count, (True,) * count, (False,) * count, turns.reward)


def of_programs(
    solution: str, siblings: Sequence[Sibling], unit: Unit, text_steps: bool, asked: frozenset[str] = frozenset()
) -> tuple[Keyed, list[Keyed]]:
    """A text and the other texts of its group, with keys that name the same steps.

    siblings: the whole group in the order of its samples, so that all samples get the same keys; the solution may be
    among them. asked: names that the problem mentions. Texts without steps, and equal ones, are left out of the others.
    """
    rewards = {sibling.text: sibling.reward for sibling in reversed(siblings) if isinstance(sibling.text, str)}
    texts = [text for text in dict.fromkeys(sibling.text for sibling in siblings) if isinstance(text, str)]
    texts = texts if solution in rewards else [solution, *texts]
    found = _keyed(tuple(texts), unit, text_steps, asked)
    own = replace(found[solution], reward=rewards.get(solution, math.nan))
    others = [replace(found[text], reward=rewards[text]) for text in texts if text != solution and text in found]
    return own, others


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


def _of_parts(pieces: tuple[str, ...], keys: Sequence[str], parts: Sequence[Part | None]) -> Keyed:
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
    """The steps that may tell most first.

    That is, those whose code goes with the largest difference of mean rewards, between the solutions that have it (this
    one included) and those that have other code or no such step; then those that most solutions write differently;
    then the longest; then the earlier.
    """
    comparable = [other for other in others if any(other.keys)]

    def rank(index: int) -> tuple[float, int, int]:
        different = _different(own, index, comparable) if own.keys[index] else []
        rest = [other.reward for other in comparable if not any(other is one for one in different)]
        means = [_mean([own.reward, *rest]), _mean([other.reward for other in different])]
        difference = abs(means[0] - means[1])
        return -difference if math.isfinite(difference) else 0.0, -len(different), -len(own.pieces[index])

    return sorted(range(len(own.keys)), key=rank)


def _different(own: Keyed, index: int, others: Sequence[Keyed]) -> list[Keyed]:
    """The solutions that have other code for this step, or no such step."""
    places = [other.index(own.keys[index]) for other in others]
    return [
        other
        for other, place in zip(others, places, strict=True)
        if place is None or other.codes[place] != own.codes[index]
    ]


def _mean(rewards: Sequence[float]) -> float:
    judged = [reward for reward in rewards if math.isfinite(reward)]
    return sum(judged) / len(judged) if judged else math.nan


class Alternatives:
    """What siblings wrote for the steps of a solution."""

    def __init__(self, own: Keyed, others: Sequence[Keyed]):
        self.own = own
        self.others = sorted(others, key=lambda other: -_ranked(other.reward))
        self._known_names: dict[int, dict[str, str]] = {}

    def places(self, index: int) -> list[tuple[int, int]]:
        """The siblings with other code for this step, the best first, and their step; each different code once."""
        found: dict[str, tuple[int, int]] = {}
        for number, other in enumerate(self.others):
            place = other.index(self.own.keys[index]) if self.own.keys[index] else None
            if place is not None and other.codes[place] not in (self.own.codes[index], *found):
                found[other.codes[place]] = number, place
        return list(found.values())

    def best_reward(self, index: int) -> float:
        """R of the best sibling with other code for this step; NaN if there is none."""
        return next((self.others[number].reward for number, _ in self.places(index)), math.nan)

    def best(self, index: int, rng: random.Random) -> str | None:
        """What the best sibling wrote for this step, drawn among equally good ones; None if none wrote other code.

        Names that the sibling binds in other steps that are the same get this solution's names. Code that reads a name
        which this solution lacks is left out: that it fails says nothing about the step.
        """
        places = self.places(index)
        rng.shuffle(places)
        for number, place in sorted(places, key=lambda one: -_ranked(self.others[one[0]].reward)):
            written = self.others[number].pieces[place]
            piece = self._in_own_names(written, number) if self.own.is_code[index] else written
            if piece is not None and piece != self.own.pieces[index]:
                return piece
        return None

    def _in_own_names(self, piece: str, number: int) -> str | None:
        own = renamed(piece, self._names(number))
        return own if own is not None and names_read(own) <= self._readable else None

    @cached_property
    def _readable(self) -> set[str]:
        """The names that code in this solution can read."""
        return {*dir(builtins), *re.findall(r"[^\W\d]\w*", "\n".join(self.own.pieces))}

    def _names(self, number: int) -> dict[str, str]:
        if number not in self._known_names:
            self._known_names[number] = _names(self.others[number], self.own)
        return self._known_names[number]


def _ranked(reward: float) -> float:
    """A reward for sorting; one that is not known comes last."""
    return reward if math.isfinite(reward) else -math.inf


def names_read(piece: str) -> set[str]:
    """The names that a statement, or a header of one, reads and does not bind; none if that is not known."""
    tree = parse(piece.strip()) or parse(f"{piece.strip()} pass")
    nodes = list(ast.walk(tree)) if tree else []
    names = [node for node in nodes if isinstance(node, ast.Name)]
    bound = {node.id for node in names if not isinstance(node.ctx, ast.Load)}
    bound |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    return {node.id for node in names} - bound


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
    if names.keys().isdisjoint(re.findall(r"[^\W\d]\w*", code)):
        return code
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(code).readline))
    except (tokenize.TokenError, SyntaxError, IndentationError):
        return None
    strings = " ".join(token.string for token in tokens if token.type == tokenize.STRING)
    if not names.keys().isdisjoint(re.findall(r"[^\W\d]\w*", strings)):
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
