"""What word problems are about: a variable, and several sentences for each kind of event.

In the sentences {p} and {q} are people, {0} and {1} the numbers of the event, the other names are the domain's own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

PEOPLE = (
    "Maya", "Tom", "Ana", "Leo", "Sara", "Ben", "Nina", "Omar", "Lucy", "Sam", "Ivy", "Finn", "Emma", "Jack", "Lily",
    "Noah", "Rosa", "Adam", "Kate", "Paul", "Zoe", "Mark", "Ella", "Hugo", "Mia", "Luke",
)  # fmt: skip


@dataclass(frozen=True)
class Domain:
    """A quantity with its sentences. names: `added` and `taken` are the variables of partial sums."""

    variable: str
    names: Mapping[str, str]
    phrases: Mapping[str, Sequence[str]]


def _collection(variable: str, box: str) -> Domain:
    """Things that a person collects, buys and gives away."""
    return Domain(
        variable,
        {"things": variable, "box": box, "added": "bought", "taken": "given"},
        {
            "start": ("{p} has {0} {things}.", "{p} starts with {0} {things}.", "{p} owns {0} {things}."),
            "gain": ("{p} buys {0} more.", "{q} gives {p} {0} more.", "Then {p} finds {0} {things}."),
            "loss": ("{p} gives {0} of them to {q}.", "{p} loses {0} {things}.", "Then {p} sells {0} of them."),
            "many_gain": (
                "{p} buys {0} {box} with {1} {things} in each.",
                "Then {p} gets {0} {box} of {1} {things} each.",
            ),
            "many_loss": (
                "{p} gives {1} {things} to each of {0} friends.",
                "{p} fills {0} {box} with {1} {things} each and gives them away.",
            ),
            "double": ("After a year {p} has twice as many.", "Then {p} doubles the number of {things}."),
            "half": ("{p} gives half of the {things} to {q}.", "Then {p} sells half of them."),
            "ask": ("How many {things} does {p} have now?", "How many {things} are left?"),
            "price": ("{p} sells all of them for {0} dollars each.", "Each of the {things} is worth {0} dollars."),
            "ask_price": ("How many dollars is that in total?",),
            "friend": ("{q} has {0} times as many {things} as {p}.",),
            "ask_friend": ("How many {things} do they have together?",),
            "more": ("{q} has {0} {things} more than {p}.",),
            "ask_more": ("How many {things} does {q} have?",),
        },
    )  # fmt: skip


def _stock(place: str, variable: str, customers: str) -> Domain:
    """Goods of a shop or a farm."""
    return Domain(
        variable,
        {"place": place, "things": variable, "customers": customers, "added": "delivered", "taken": "sold"},
        {
            "start": ("A {place} has {0} {things}.", "In the morning a {place} has {0} {things}."),
            "gain": ("It gets {0} more.", "A delivery brings {0} {things}.", "{p} brings {0} more {things}."),
            "loss": ("It sells {0} of them.", "{0} {things} are sold.", "{p} buys {0} {things}."),
            "many_gain": ("A truck brings {0} boxes with {1} {things} each.", "It gets {0} boxes of {1} {things}."),
            "many_loss": ("{0} {customers} buy {1} {things} each.", "Each of {0} {customers} takes {1} {things}."),
            "double": ("Then the number of {things} doubles.", "By noon the {place} has twice as many {things}."),
            "half": ("Half of the {things} are sold.", "Then it sells half of the {things}."),
            "ask": ("How many {things} does the {place} have at the end?", "How many {things} are left?"),
            "price": (
                "Each of the {things} that are left costs {0} dollars.",
                "It sells the rest for {0} dollars each.",
            ),
            "ask_price": ("How many dollars are they worth together?",),
        },
    )


def _vehicle(vehicle: str, stop: str) -> Domain:
    """Passengers who get on and off."""
    return Domain(
        "passengers",
        {"vehicle": vehicle, "stop": stop, "added": "boarded", "taken": "left"},
        {
            "start": ("A {vehicle} starts with {0} passengers.", "There are {0} passengers on a {vehicle}."),
            "gain": ("At the next {stop} {0} people get on.", "Then {0} more people get on."),
            "loss": ("At a {stop} {0} people get off.", "Then {0} passengers get off."),
            "many_gain": ("{0} groups of {1} people get on.", "At a {stop} {0} families of {1} get on."),
            "many_loss": ("{0} groups of {1} people get off.", "At a {stop} {0} families of {1} get off."),
            "half": ("Half of the passengers get off.", "At the next {stop} half of them get off."),
            "ask": ("How many passengers are on the {vehicle} now?", "How many passengers are left on the {vehicle}?"),
            "price": (
                "Each passenger who is left pays {0} dollars.",
                "Now each passenger buys a ticket for {0} dollars.",
            ),
            "ask_price": ("How many dollars do they pay in total?",),
        },
    )


_SAVINGS = Domain(
    "savings",
    {"added": "earned", "taken": "cost"},
    {
        "start": ("{p} has {0} dollars.", "{p} has saved {0} dollars."),
        "gain": ("{p} earns {0} dollars.", "{q} gives {p} {0} dollars.", "{p} gets {0} dollars for a birthday."),
        "loss": ("{p} spends {0} dollars on a book.", "{p} buys lunch for {0} dollars.", "{p} gives {q} {0} dollars."),
        "many_gain": ("{p} works {0} hours for {1} dollars an hour.", "{p} sells {0} cakes for {1} dollars each."),
        "many_loss": ("{p} buys {0} pens for {1} dollars each.", "{p} buys {0} tickets that cost {1} dollars each."),
        "double": ("{p}'s father doubles the money.", "Then {p} doubles the savings."),
        "half": ("{p} spends half of the money.", "{p} gives half of the money to {q}."),
        "ask": ("How many dollars does {p} have now?", "How many dollars are left?"),
        "friend": ("{q} has {0} times as much money as {p}.",),
        "ask_friend": ("How many dollars do they have together?",),
        "more": ("{q} has {0} dollars more than {p}.",),
        "ask_more": ("How many dollars does {q} have?",),
    },
)
_WATER = Domain(
    "liters",
    {"added": "added", "taken": "used"},
    {
        "start": ("A tank holds {0} liters of water.", "There are {0} liters of water in a tank."),
        "gain": ("It rains and {0} liters are added.", "{p} pours in {0} liters."),
        "loss": ("{p} takes out {0} liters.", "The garden needs {0} liters from it."),
        "many_gain": ("{p} pours in {0} buckets of {1} liters each.", "{0} pipes add {1} liters each."),
        "many_loss": ("{p} fills {0} cans with {1} liters each from it.", "{0} cows drink {1} liters each."),
        "double": ("A storm doubles the water in the tank.", "Then the amount of water doubles."),
        "half": ("Half of the water leaks out.", "{p} uses half of the water."),
        "ask": ("How many liters are in the tank now?", "How many liters are left?"),
        "price": ("The water in the tank costs {0} dollars per liter.",),
        "ask_price": ("How many dollars is it worth?",),
    },
)

DOMAINS = (
    *(_collection(*pair) for pair in (
        ("apples", "bags"), ("marbles", "bags"), ("stickers", "packs"), ("cards", "packs"), ("coins", "jars"),
        ("shells", "boxes"), ("stamps", "albums"), ("cookies", "boxes"), ("pencils", "cases"), ("books", "boxes"),
    )),
    *(_stock(*triple) for triple in (
        ("bakery", "cakes", "customers"), ("farm", "eggs", "neighbors"), ("shop", "lamps", "customers"),
        ("library", "chairs", "schools"), ("florist", "roses", "customers"), ("market", "melons", "families"),
    )),
    _vehicle("bus", "stop"),
    _vehicle("train", "station"),
    _vehicle("ferry", "port"),
    _SAVINGS,
    _SAVINGS,
    _WATER,
    _WATER,
)  # fmt: skip
