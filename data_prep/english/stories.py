"""Word problems: a short story in which one quantity changes, and the Python program that computes the answer.

Each event of a story is one or two statements that use the ones before. Domains differ in what is counted and in the
sentences; the arithmetic, which decides a problem's split, does not.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from data_prep.english.domains import DOMAINS, PEOPLE, Domain

# Statements without `def` and `return`, by level.
STATEMENTS = {1: range(4, 6), 2: range(6, 9), 3: range(9, 13)}
_LARGEST = 600

# Kinds of events by the number of their statements.
_SINGLE, _PAIRS = ("gain", "loss", "double", "half"), ("many_gain", "many_loss")
_ENDINGS = ("price", "friend", "more")
_CHANGES = {
    "gain": "+ {0}", "loss": "- {0}", "many_gain": "+ {0} * {1}", "many_loss": "- {0} * {1}", "double": "* 2",
    "half": "// 2",
}  # fmt: skip
_DRAWS = {
    "start": range(10, 61),
    "gain": range(3, 31),
    "loss": range(2, 21),
    "more": range(3, 21),
    "friend": range(2, 5),
}


@dataclass(frozen=True)
class Event:
    """One event: its kind, its numbers and, for the text, a phrase number."""

    kind: str
    numbers: tuple[int, ...] = ()
    phrase: int = 0


@dataclass(frozen=True)
class EnglishStory:
    """A start, events, and possibly an ending that turns the quantity into another one."""

    domain: Domain
    people: tuple[str, str]
    events: tuple[Event, ...]

    def program(self) -> str:
        """The program that computes the answer."""
        lines = [f"    {line}" for event in self.events for line in self._lines(event)]
        return "\n".join(["def solution():", *lines, f"    return {self._answer()}"])

    def ledger(self) -> str:
        """The program that computes the quantity at the start and after each event, a statement for each (no ending).

        Without a statement the quantities after it shift, and those before it stay.
        """
        name, (start, *others) = self.domain.variable, self.events
        changes = [f"    {name}.append({name}[-1] {_CHANGES[event.kind].format(*event.numbers)})" for event in others]
        return "\n".join(["def solution():", f"    {name} = [{start.numbers[0]}]", *changes, f"    return {name}"])

    def sentences(self) -> str:
        """The story without its question."""
        phrases = self.domain.phrases
        told = [phrases[event.kind][event.phrase % len(phrases[event.kind])] for event in self.events]
        return " ".join(self._filled(text, event.numbers) for text, event in zip(told, self.events, strict=True))

    def text(self) -> str:
        """The story and its question."""
        phrases, last = self.domain.phrases, self.events[-1].kind
        question = phrases[f"ask_{last}"][0] if last in _ENDINGS else phrases["ask"][self.events[0].phrase % 2]
        return f"{self.sentences()} {self._filled(question, ())}"

    def value(self) -> int:
        """The answer."""
        total = 0
        for event in self.events:
            total = _after(total, event)
        return total

    def values(self) -> list[int]:
        """The quantity after each event."""
        found = [0]
        for event in self.events:
            found.append(_after(found[-1], event))
        return found[1:]

    def key(self) -> str:
        """The arithmetic: the same for the same numbers in other words."""
        return " ".join(f"{event.kind}{','.join(map(str, event.numbers))}" for event in self.events)

    def neighbours(self) -> Iterator["EnglishStory"]:
        """The stories with one event misread or overlooked."""
        opposite = {"gain": "loss", "loss": "gain", "many_gain": "many_loss", "many_loss": "many_gain"}
        opposite |= {"double": "half", "half": "double"}
        for place, event in enumerate(self.events):
            if event.kind in opposite:
                yield self._with(place, replace(event, kind=opposite[event.kind]))
            if place and event.kind not in _ENDINGS:
                yield replace(self, events=(*self.events[:place], *self.events[place + 1 :]))
            for index, number in enumerate(event.numbers):
                numbers = (*event.numbers[:index], number + 1, *event.numbers[index + 1 :])
                yield self._with(place, replace(event, numbers=numbers))

    def _with(self, place: int, event: Event) -> "EnglishStory":
        return replace(self, events=(*self.events[:place], event, *self.events[place + 1 :]))

    def _filled(self, text: str, numbers: tuple[int, ...]) -> str:
        first, second = self.people
        return text.format(*numbers, p=first, q=second, **self.domain.names)

    def _answer(self) -> str:
        last = self.events[-1].kind
        return {"price": "money", "friend": "together", "more": self.people[1].lower()}.get(last, self.domain.variable)

    def _lines(self, event: Event) -> list[str]:
        name, friend, numbers = self.domain.variable, self.people[1].lower(), event.numbers
        simple = {"start": "{0}", "gain": "{v} + {0}", "loss": "{v} - {0}", "double": "{v} * 2", "half": "{v} // 2"}
        if event.kind in simple:
            return [f"{name} = {simple[event.kind].format(*numbers, v=name)}"]
        if event.kind in _PAIRS:
            part = self.domain.names["added" if event.kind == "many_gain" else "taken"]
            sign = "+" if event.kind == "many_gain" else "-"
            return [f"{part} = {numbers[0]} * {numbers[1]}", f"{name} = {name} {sign} {part}"]
        if event.kind == "friend":
            return [f"{friend} = {name} * {numbers[0]}", f"together = {name} + {friend}"]
        return [f"money = {name} * {numbers[0]}" if event.kind == "price" else f"{friend} = {name} + {numbers[0]}"]


def _after(total: int, event: Event) -> int:
    first, second = (*event.numbers, 0, 0)[:2]
    return {
        "start": first,
        "gain": total + first,
        "loss": total - first,
        "many_gain": total + first * second,
        "many_loss": total - first * second,
        "double": total * 2,
        "half": total // 2,
        "price": total * first,
        "friend": total + total * first,
        "more": total + first,
    }[event.kind]


def random_story(rng: random.Random, level: int) -> EnglishStory | None:
    """A story of this level; None if the numbers drawn make no sense (half of an odd number, less than nothing)."""
    domain = rng.choice(DOMAINS)
    endings = [kind for kind in _ENDINGS if kind in domain.phrases]
    events = [_random_event(rng, domain, "start")]
    wanted = rng.choice(STATEMENTS[level])
    ending = rng.choice(endings) if rng.random() < 0.5 else None
    left = wanted - 1 - (0 if ending is None else 2 if ending == "friend" else 1)
    while left:
        kind = rng.choice(_PAIRS if left > 1 and rng.random() < 0.35 else _SINGLE)
        if not _fits(kind, domain, events):
            continue
        events.append(_random_event(rng, domain, kind))
        left -= 2 if kind in _PAIRS else 1
    if ending is not None:
        events.append(_random_event(rng, domain, ending))
    return _story(rng, domain, events)


def random_ledger(rng: random.Random, level: int) -> EnglishStory | None:
    """A story without an ending, whose start and events are as many as the statements of this level; None as above."""
    domain = rng.choice(DOMAINS)
    events = [_random_event(rng, domain, "start")]
    wanted = rng.choice(STATEMENTS[level])
    while len(events) < wanted:
        kind = rng.choice((*_SINGLE, *_PAIRS))
        if _fits(kind, domain, events):
            events.append(_random_event(rng, domain, kind))
    return _story(rng, domain, events)


def _fits(kind: str, domain: Domain, events: Sequence[Event]) -> bool:
    """Whether a domain has this kind of event, and it may follow these."""
    return kind in domain.phrases and not (kind == events[-1].kind and kind in ("double", "half"))


def _story(rng: random.Random, domain: Domain, events: Sequence[Event]) -> EnglishStory | None:
    first, second = rng.sample(PEOPLE, 2)
    story = EnglishStory(domain, (first, second), tuple(events))
    return story if _makes_sense(story) else None


def _random_event(rng: random.Random, domain: Domain, kind: str) -> Event:
    if kind in _PAIRS:
        numbers: tuple[int, ...] = (rng.randint(2, 6), rng.randint(2, 9))
    elif kind in ("double", "half"):
        numbers = ()
    else:
        numbers = (rng.choice(_DRAWS.get(kind, range(2, 10))),)
    return Event(kind, numbers, rng.randrange(len(domain.phrases[kind])))


def _makes_sense(story: EnglishStory) -> bool:
    values = story.values()
    halves = [before for before, event in zip(values, story.events[1:], strict=False) if event.kind == "half"]
    return all(0 < value <= _LARGEST for value in values) and all(value % 2 == 0 for value in halves)
