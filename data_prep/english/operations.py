"""Operations, the kinds of steps of functions, on a number, a list of numbers, a text and a list of words.

Python, English and meaning stand side by side.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

VariableValue = Any  # int, str, list[int] or list[str], by the kind of the function
Constant = int | str


@dataclass(frozen=True)
class Operation:
    """One kind of step. In `code` and `words`, {v} is the variable and {0}, {1}, ... are the constants.

    draws: the values of each constant. others: operations that a reader may confuse with this one.
    """

    code: str
    words: tuple[str, ...]
    apply: Callable[..., VariableValue]
    draws: tuple[Sequence[Constant], ...] = ()
    others: tuple[str, ...] = ()


_SMALL, _FACTORS, _BOUNDS, _COUNTS = range(2, 21), range(2, 7), range(3, 16), range(2, 5)

NUMBER = {
    "add": Operation(
        "{v} = {v} + {0}",
        ("add {0} to it", "increase it by {0}", "add {0}"),
        lambda v, c: v + c, (_SMALL,), ("subtract", "multiply"),
    ),
    "subtract": Operation(
        "{v} = {v} - {0}",
        ("subtract {0} from it", "decrease it by {0}", "subtract {0}"),
        lambda v, c: v - c, (_SMALL,), ("add", "multiply"),
    ),
    "multiply": Operation(
        "{v} = {v} * {0}",
        ("multiply it by {0}", "multiply the result by {0}", "make it {0} times as large"),
        lambda v, c: v * c, (_FACTORS,), ("add", "subtract"),
    ),
    "divide": Operation(
        "{v} = {v} // {0}",
        ("divide it by {0} and round down", "integer-divide it by {0}"),
        lambda v, c: v // c, (_FACTORS,), ("remainder", "multiply"),
    ),
    "remainder": Operation(
        "{v} = {v} % {0}",
        ("take the remainder when it is divided by {0}", "reduce it modulo {0}"),
        lambda v, c: v % c, (range(3, 11),), ("divide",),
    ),
    "square": Operation("{v} = {v} ** 2", ("square it", "multiply it by itself"), lambda v: v**2, (), ("twice",)),
    "twice": Operation("{v} = {v} * 2", ("double it",), lambda v: v * 2, (), ("square",)),
    "cap": Operation(
        "{v} = min({v}, {0})",
        ("limit it to at most {0}", "cap it at {0}"),
        lambda v, c: min(v, c), (range(8, 31),), ("floor",),
    ),
    "floor": Operation(
        "{v} = max({v}, {0})",
        ("raise it to at least {0}", "make sure it is at least {0}"),
        lambda v, c: max(v, c), (_BOUNDS,), ("cap",),
    ),
    "branch": Operation(
        "if {v} > {0}:\n    {v} = {v} - {1}\nelse:\n    {v} = {v} + {2}",
        ("if it is greater than {0}, subtract {1}, otherwise add {2}",
         "subtract {1} if it is greater than {0}, otherwise add {2}"),
        lambda v, c, a, b: v - a if v > c else v + b, (_BOUNDS, _SMALL, _SMALL), ("branch_below",),
    ),
    "branch_below": Operation(
        "if {v} < {0}:\n    {v} = {v} - {1}\nelse:\n    {v} = {v} + {2}",
        ("if it is less than {0}, subtract {1}, otherwise add {2}",
         "subtract {1} if it is less than {0}, otherwise add {2}"),
        lambda v, c, a, b: v - a if v < c else v + b, (_BOUNDS, _SMALL, _SMALL), ("branch",),
    ),
    "return": Operation("return {v}", ("return the result", "return it"), lambda v: v),
}  # fmt: skip

NUMBERS = {
    "above": Operation(
        "{v} = [n for n in {v} if n > {0}]",
        ("keep only the numbers greater than {0}", "drop every number that is {0} or less"),
        lambda v, c: [n for n in v if n > c], (_BOUNDS,), ("below",),
    ),
    "below": Operation(
        "{v} = [n for n in {v} if n < {0}]",
        ("keep only the numbers less than {0}", "drop every number that is {0} or more"),
        lambda v, c: [n for n in v if n < c], (_BOUNDS,), ("above",),
    ),
    "even": Operation(
        "{v} = [n for n in {v} if n % 2 == 0]",
        ("keep only the even numbers", "remove the odd numbers"),
        lambda v: [n for n in v if n % 2 == 0], (), ("odd",),
    ),
    "odd": Operation(
        "{v} = [n for n in {v} if n % 2 == 1]",
        ("keep only the odd numbers", "remove the even numbers"),
        lambda v: [n for n in v if n % 2 == 1], (), ("even",),
    ),
    "multiples": Operation(
        "{v} = [n for n in {v} if n % {0} == 0]",
        ("keep only the multiples of {0}", "keep the numbers that are divisible by {0}"),
        lambda v, c: [n for n in v if n % c == 0], (range(3, 8),), ("above", "even"),
    ),
    "add": Operation(
        "{v} = [n + {0} for n in {v}]",
        ("add {0} to each number", "increase every number by {0}"),
        lambda v, c: [n + c for n in v], (_SMALL,), ("subtract", "multiply"),
    ),
    "subtract": Operation(
        "{v} = [n - {0} for n in {v}]",
        ("subtract {0} from each number", "decrease every number by {0}"),
        lambda v, c: [n - c for n in v], (_SMALL,), ("add",),
    ),
    "multiply": Operation(
        "{v} = [n * {0} for n in {v}]",
        ("multiply each number by {0}", "multiply every number by {0}"),
        lambda v, c: [n * c for n in v], (_FACTORS,), ("add",),
    ),
    "first": Operation(
        "{v} = {v}[:{0}]",
        ("take the first {0} numbers", "keep only the first {0} numbers"),
        lambda v, c: v[:c], (_COUNTS,), ("last", "skip"),
    ),
    "last": Operation(
        "{v} = {v}[-{0}:]",
        ("take the last {0} numbers", "keep only the last {0} numbers"),
        lambda v, c: v[-c:], (_COUNTS,), ("first",),
    ),
    "skip": Operation(
        "{v} = {v}[{0}:]",
        ("skip the first {0} numbers", "leave out the first {0} numbers"),
        lambda v, c: v[c:], (_COUNTS,), ("first",),
    ),
    "sort": Operation(
        "{v} = sorted({v})",
        ("sort the numbers from smallest to largest", "sort them in ascending order"),
        lambda v: sorted(v), (), ("descend", "reverse"),
    ),
    "descend": Operation(
        "{v} = sorted({v}, reverse=True)",
        ("sort the numbers from largest to smallest", "sort them in descending order"),
        lambda v: sorted(v, reverse=True), (), ("sort", "reverse"),
    ),
    "reverse": Operation(
        "{v} = {v}[::-1]",
        ("reverse the list", "put the numbers in reverse order"),
        lambda v: v[::-1], (), ("sort",),
    ),
    "return": Operation("return {v}", ("return the list", "return the resulting list"), lambda v: v, (), ("sum",)),
    "sum": Operation("return sum({v})", ("return the sum", "return their sum"), lambda v: sum(v), (), ("count",)),
    "count": Operation(
        "return len({v})", ("return how many numbers are left", "return the number of values left"),
        lambda v: len(v), (), ("sum",),
    ),
    "largest": Operation(
        "return max({v})", ("return the largest number", "return the maximum"), lambda v: max(v), (), ("smallest",),
    ),
    "smallest": Operation(
        "return min({v})", ("return the smallest number", "return the minimum"), lambda v: min(v), (), ("largest",),
    ),
}  # fmt: skip

_LETTERS = "aeioulrst"
_ENDINGS = ("!", "?", "s", "ed", "ing", "er")
_BEGINNINGS = ("re", "un", "my", "the ", "pre")

TEXT = {
    "upper": Operation(
        "{v} = {v}.upper()", ("make it uppercase", "convert it to upper case"), lambda v: v.upper(), (), ("title",)
    ),
    "title": Operation(
        "{v} = {v}.title()", ("capitalize every word", "put it in title case"), lambda v: v.title(), (), ("upper",)
    ),
    "reverse": Operation("{v} = {v}[::-1]", ("reverse it", "turn it around"), lambda v: v[::-1], (), ("upper",)),
    "first": Operation(
        "{v} = {v}[:{0}]", ("take the first {0} characters", "keep only the first {0} characters"),
        lambda v, c: v[:c], (_COUNTS,), ("last", "skip"),
    ),
    "last": Operation(
        "{v} = {v}[-{0}:]", ("take the last {0} characters", "keep only the last {0} characters"),
        lambda v, c: v[-c:], (_COUNTS,), ("first",),
    ),
    "skip": Operation(
        "{v} = {v}[{0}:]", ("remove the first {0} characters", "skip the first {0} characters"),
        lambda v, c: v[c:], (_COUNTS,), ("first",),
    ),
    "replace": Operation(
        '{v} = {v}.replace("{0}", "{1}")', ('replace every "{0}" with "{1}"', 'change each "{0}" to "{1}"'),
        lambda v, a, b: v.replace(a, b), (_LETTERS, "xyzbdk"), ("exchange",),
    ),
    "exchange": Operation('{v} = {v}.replace("{1}", "{0}")', (), lambda v, a, b: v.replace(b, a)),
    "remove": Operation(
        '{v} = {v}.replace("{0}", "")', ('remove every "{0}"', 'delete each "{0}" from it'),
        lambda v, a: v.replace(a, ""), (_LETTERS,), ("ending",),
    ),
    "repeat": Operation(
        "{v} = {v} * {0}", ("repeat it {0} times", "write it {0} times in a row"),
        lambda v, c: v * c, (_COUNTS,), ("skip",),
    ),
    "ending": Operation(
        '{v} = {v} + "{0}"', ('add "{0}" at the end', 'append "{0}" to it'),
        lambda v, a: v + a, (_ENDINGS,), ("beginning",),
    ),
    "beginning": Operation(
        '{v} = "{0}" + {v}', ('put "{0}" in front of it', 'add "{0}" at the beginning'),
        lambda v, a: a + v, (_BEGINNINGS,), ("ending",),
    ),
    "return": Operation("return {v}", ("return the result", "return the new string"), lambda v: v, (), ("length",)),
    "length": Operation(
        "return len({v})", ("return its length", "return the number of characters"), lambda v: len(v), (), ("return",)
    ),
    "count": Operation(
        'return {v}.count("{0}")', ('return how many times "{0}" occurs in it', 'return how often "{0}" appears'),
        lambda v, a: v.count(a), (_LETTERS,), ("length",),
    ),
}  # fmt: skip

WORDS = {
    "longer": Operation(
        "{v} = [w for w in {v} if len(w) > {0}]",
        ("keep only the words with more than {0} letters", "drop every word of {0} letters or fewer"),
        lambda v, c: [w for w in v if len(w) > c], (range(3, 7),), ("shorter",),
    ),
    "shorter": Operation(
        "{v} = [w for w in {v} if len(w) < {0}]",
        ("keep only the words with fewer than {0} letters", "drop every word of {0} letters or more"),
        lambda v, c: [w for w in v if len(w) < c], (range(4, 8),), ("longer",),
    ),
    "with": Operation(
        '{v} = [w for w in {v} if "{0}" in w]',
        ('keep only the words that contain "{0}"', 'remove the words without an "{0}"'),
        lambda v, a: [w for w in v if a in w], (_LETTERS,), ("without",),
    ),
    "without": Operation(
        '{v} = [w for w in {v} if "{0}" not in w]',
        ('keep only the words that do not contain "{0}"', 'remove the words that contain "{0}"'),
        lambda v, a: [w for w in v if a not in w], (_LETTERS,), ("with",),
    ),
    "upper": Operation(
        "{v} = [w.upper() for w in {v}]", ("make every word uppercase", "convert each word to upper case"),
        lambda v: [w.upper() for w in v], (), ("reversed",),
    ),
    "reversed": Operation(
        "{v} = [w[::-1] for w in {v}]", ("reverse the letters of each word", "spell every word backwards"),
        lambda v: [w[::-1] for w in v], (), ("upper", "backwards"),
    ),
    "ending": Operation(
        '{v} = [w + "{0}" for w in {v}]', ('add "{0}" to the end of each word', 'append "{0}" to every word'),
        lambda v, a: [w + a for w in v], (_ENDINGS,), ("upper",),
    ),
    "first": Operation(
        "{v} = {v}[:{0}]", ("take the first {0} words", "keep only the first {0} words"),
        lambda v, c: v[:c], (_COUNTS,), ("skip",),
    ),
    "skip": Operation(
        "{v} = {v}[{0}:]", ("skip the first {0} words", "leave out the first {0} words"),
        lambda v, c: v[c:], (_COUNTS,), ("first",),
    ),
    "sort": Operation(
        "{v} = sorted({v})", ("sort the words alphabetically", "put them in alphabetical order"),
        lambda v: sorted(v), (), ("backwards",),
    ),
    "backwards": Operation(
        "{v} = {v}[::-1]", ("reverse the list", "put the words in reverse order"), lambda v: v[::-1], (), ("sort",)
    ),
    "return": Operation("return {v}", ("return the list", "return the words that remain"), lambda v: v, (), ("count",)),
    "count": Operation(
        "return len({v})", ("return how many words are left", "return the number of words left"),
        lambda v: len(v), (), ("return",),
    ),
    "join": Operation(
        'return " ".join({v})', ("return them joined with spaces", "return one string with the words joined by spaces"),
        lambda v: " ".join(v), (), ("glue",),
    ),
    "glue": Operation('return "".join({v})', ("return them joined without spaces",),
        lambda v: "".join(v), (), ("join",)),
}  # fmt: skip
