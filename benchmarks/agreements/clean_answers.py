"""Answers without tricks for verl's data sources of mathematics, right and wrong, in the forms that models write.

Equal seeds give equal answers. Each has a `kind`: the form of the expected value, and what was done to it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class CleanAnswer:
    """An answer to a row of verl's. right: the share of the reward that it deserves."""

    source: str
    kind: str
    truth: str
    text: str
    right: float


@dataclass(frozen=True)
class Value:
    """An expected value as the data write it, and spellings by name: equal ones and others."""

    kind: str
    truth: str
    equal: dict[str, str]
    other: dict[str, str]


def gsm8k(rng: random.Random) -> CleanAnswer:
    """An answer to a row of `openai/gsm8k`, whose expected number has no commas."""
    number = rng.choice((rng.randint(2, 99), rng.randint(100, 9_999), rng.randint(10_000, 2_000_000)))
    equal = {
        "plain": f"{number}", "thousands": f"{number:,}", "currency": f"${number}", "unit": f"{number} apples",
        "decimal": f"{number}.00", "percent": f"{number}%", "full stop": f"{number}.", "bold": f"**{number}**",
        "currency and thousands": f"${number:,}", "two blanks": f" {number}",
    }  # fmt: skip
    other = {
        "near": f"{number + rng.choice((-1, 1))}", "sign": f"-{number}", "tenfold": f"{number * 10}",
        "half more": f"{number}.5", "near, with unit": f"{number + 1} apples",
    }  # fmt: skip
    name, written, right = _drawn(rng, equal, other, "plain", "thousands")
    work = f"She has {number - 1} and gets one more, so {number - 1} + 1 = <<{number - 1}+1={number}>>{number}."
    return CleanAnswer("openai/gsm8k", name, str(number), f"{work}\n#### {written}", float(right))


def mathematics(source: str, rng: random.Random) -> CleanAnswer:
    """An answer in a box, or after `Answer:` for math_dapo, whose data expect whole numbers."""
    value = (whole if source == "math_dapo" else rng.choice(VALUES))(rng)
    name, written, right = _drawn(rng, value.equal, value.other, "as it is")
    work = "We solve it step by step. Both cases lead to the same value."
    end = f"Answer: ${written}$" if source == "math_dapo" else f"So the answer is $\\boxed{{{written}}}$."
    return CleanAnswer(source, f"{value.kind}: {name}", value.truth, f"{work}\n\n{end}", float(right))


def _drawn(rng: random.Random, equal: dict[str, str], other: dict[str, str], *usual: str) -> tuple[str, str, bool]:
    """A form by name; half of the right answers have a usual one."""
    if rng.random() < 0.5:
        name = rng.choice(sorted(other))
        return f"wrong, {name}", other[name], False
    name = rng.choice(usual if rng.random() < 0.5 else sorted(equal))
    return name, equal[name], True


def _other(rng: random.Random, number: int) -> int:
    return number + rng.choice((-2, -1, 1, 2))


def whole(rng: random.Random) -> Value:
    """A whole number."""
    n = rng.choice((1, 1, -1)) * rng.choice((rng.randint(2, 99), rng.randint(100, 99_999)))
    return Value("integer", f"{n}", {
        "as it is": f"{n}", "thousands": f"{n:,}", "thousands in LaTeX": f"{n:,}".replace(",", "{,}"),
        "equation": f"x = {n}", "unit": f"{n}\\text{{ cm}}", "degrees": f"{n}^\\circ", "decimal": f"{n}.0",
        "fraction": f"\\frac{{{n * 2}}}{{2}}",
    }, {"near": f"{_other(rng, n)}", "sign": f"{-n}", "near, unit": f"{_other(rng, n)}\\text{{ cm}}",
        "near, equation": f"x = {_other(rng, n)}"})  # fmt: skip


def fraction(rng: random.Random) -> Value:
    """A proper or improper fraction in lowest terms."""
    ratio = Fraction(1)
    while ratio.denominator == 1:
        ratio = Fraction(rng.randint(1, 40), rng.randint(2, 24))
    a, b = ratio.numerator, ratio.denominator
    equal = {
        "as it is": f"\\frac{{{a}}}{{{b}}}", "display": f"\\dfrac{{{a}}}{{{b}}}", "slash": f"{a}/{b}",
        "not in lowest terms": f"\\frac{{{3 * a}}}{{{3 * b}}}", "equation": f"p = \\frac{{{a}}}{{{b}}}",
    }  # fmt: skip
    if a < 10 and b < 10:
        equal["without braces"] = f"\\frac{a}{b}"
    if not 1000 % b:
        equal["decimal"] = f"{a / b:.3f}".rstrip("0")
    return Value("fraction", f"\\frac{{{a}}}{{{b}}}", equal, {
        "upside down": f"\\frac{{{b}}}{{{a}}}", "near": f"\\frac{{{a + 1}}}{{{b}}}", "near, slash": f"{a + 1}/{b}",
        "sign": f"-\\frac{{{a}}}{{{b}}}",
    })  # fmt: skip


def radical(rng: random.Random) -> Value:
    """A whole number times the root of a prime."""
    a, b = rng.randint(2, 9), rng.choice((2, 3, 5, 7, 11))
    return Value("radical", f"{a}\\sqrt{{{b}}}", {
        "as it is": f"{a}\\sqrt{{{b}}}", "blank": f"{a} \\sqrt{{{b}}}", "dot": f"{a} \\cdot \\sqrt{{{b}}}",
        "under the root": f"\\sqrt{{{a * a * b}}}", "quotient": f"\\frac{{{a * b}}}{{\\sqrt{{{b}}}}}",
        "unit": f"{a}\\sqrt{{{b}}}\\text{{ cm}}",
    } | ({"without braces": f"{a}\\sqrt{b}"} if b < 10 else {}), {
        "near": f"{a + 1}\\sqrt{{{b}}}", "all under the root": f"\\sqrt{{{a * b}}}", "sign": f"-{a}\\sqrt{{{b}}}",
        "rounded": f"{round(a * b**0.5, 1)}",
    })  # fmt: skip


def interval(rng: random.Random) -> Value:
    """An interval, open or closed at each end."""
    a, b = sorted(rng.sample(range(-9, 10), 2))
    left, right = rng.choice("(["), rng.choice(")]")
    turned = {"(": "[", "[": "("}[left]
    return Value("interval", f"{left}{a}, {b}{right}", {
        "as it is": f"{left}{a}, {b}{right}", "no blank": f"{left}{a},{b}{right}",
        "tall": f"\\left{left}{a}, {b}\\right{right}", "equation": f"x \\in {left}{a}, {b}{right}",
    }, {"near": f"{left}{a}, {b + 1}{right}", "other bracket": f"{turned}{a}, {b}{right}",
        "half of it": f"{left}{a}, \\infty)"})  # fmt: skip


def point(rng: random.Random) -> Value:
    """A point of three coordinates."""
    a, b, c = rng.sample(range(-9, 10), 3)
    return Value("point", f"({a}, {b}, {c})", {
        "as it is": f"({a}, {b}, {c})", "no blanks": f"({a},{b},{c})", "tall": f"\\left({a}, {b}, {c}\\right)",
    }, {"near": f"({a}, {b}, {_other(rng, c)})", "order": f"({b}, {a}, {c})", "short": f"({a}, {b})"})  # fmt: skip


def roots(rng: random.Random) -> Value:
    """Two or three values in no order."""
    numbers = sorted(rng.sample(range(-9, 20), rng.choice((2, 3))))
    shown = ", ".join(map(str, numbers))
    turned = ", ".join(map(str, reversed(numbers)))
    return Value("several values", shown, {
        "as it is": shown, "no blanks": shown.replace(" ", ""), "order": turned, "as a set": f"\\{{{shown}\\}}",
    }, {"near": ", ".join(map(str, [*numbers[:-1], numbers[-1] + 1])), "one of them": str(numbers[0]),
        "one more": f"{shown}, {numbers[-1] + 1}"})  # fmt: skip


def polynomial(rng: random.Random) -> Value:
    """A quadratic with two roots."""
    p, q = rng.sample(range(1, 9), 2)
    return Value("polynomial", f"x^2+{p + q}x+{p * q}", {
        "as it is": f"x^2+{p + q}x+{p * q}", "blanks": f"x^2 + {p + q}x + {p * q}",
        "braces": f"x^{{2}}+{p + q}x+{p * q}",
        "order": f"{p * q}+{p + q}x+x^2", "factors": f"(x+{p})(x+{q})", "equation": f"f(x) = x^2+{p + q}x+{p * q}",
    }, {"near": f"x^2+{p + q}x+{p * q + 1}", "sign": f"x^2-{p + q}x+{p * q}",
        "factors": f"(x-{p})(x-{q})"})  # fmt: skip


def multiple_of_pi(rng: random.Random) -> Value:
    """A multiple of pi."""
    a = rng.randint(2, 60)
    return Value("multiple of pi", f"{a}\\pi", {
        "as it is": f"{a}\\pi", "blank": f"{a} \\pi", "dot": f"{a} \\cdot \\pi", "unit": f"{a}\\pi\\text{{ cm}}^2",
        "order": f"\\pi \\cdot {a}",
    }, {"near": f"{_other(rng, a)}\\pi", "without pi": f"{a}", "sign": f"-{a}\\pi", "square": f"{a}\\pi^2",
    })  # fmt: skip


def words(rng: random.Random) -> Value:
    """A word, or the letter of a choice."""
    choice, wrong = rng.sample(("Tuesday", "Friday", "even", "odd", "Maria", "ellipse"), 2)
    if rng.random() < 0.5:
        choice, wrong = rng.sample(("(A)", "(B)", "(C)", "(D)", "(E)"), 2)
    plain = choice.strip("()")
    return Value("words", f"\\text{{{choice}}}", {
        "as it is": f"\\text{{{choice}}}", "no text": choice, "bold": f"\\textbf{{{choice}}}", "plain": plain,
    }, {"another": f"\\text{{{wrong}}}", "another, no text": wrong})  # fmt: skip


def matrix(rng: random.Random) -> Value:
    """A matrix of two rows and columns."""
    a, b, c, d = (rng.randint(-9, 9) for _ in range(4))

    def shown(kind: str, *cells: int, blank: str = " ") -> str:
        rows = [f"{x}{blank}&{blank}{y}" for x, y in zip(cells[::2], cells[1::2], strict=True)]
        return f"\\begin{{{kind}}}{blank}" + f"{blank}\\\\{blank}".join(rows) + f"{blank}\\end{{{kind}}}"

    return Value("matrix", shown("pmatrix", a, b, c, d), {
        "as it is": shown("pmatrix", a, b, c, d), "no blanks": shown("pmatrix", a, b, c, d, blank=""),
        "brackets": shown("bmatrix", a, b, c, d),
    }, {"near": shown("pmatrix", a, b, c, d + 1), "turned": shown("pmatrix", a, c, b + (b == c), d)})  # fmt: skip


def base(rng: random.Random) -> Value:
    """A number in base two."""
    n = rng.randint(8, 200)
    return Value("number in a base", f"{n:b}_2", {
        "as it is": f"{n:b}_2", "braces": f"{n:b}_{{2}}", "in words": f"{n:b}_{{\\text{{two}}}}",
    }, {"near": f"{n + 1:b}_2", "another base": f"{n:b}_3"})  # fmt: skip


def decimal(rng: random.Random) -> Value:
    """A decimal with two places, of money or of a share."""
    n = rng.randint(101, 9_999)
    shown = f"{n // 100}.{n % 100:02d}"
    ratio = Fraction(n, 100)
    return Value("decimal", shown, {
        "as it is": shown, "currency": f"\\${shown}", "percent": f"{shown}\\%", "one more zero": f"{shown}0",
        "fraction": f"\\frac{{{ratio.numerator}}}{{{ratio.denominator}}}",
    }, {"near": f"{n / 100 + 0.01:.2f}", "rounded": f"{n // 100 + 1}", "point": f"{n}"})  # fmt: skip


VALUES: tuple[Callable[[random.Random], Value], ...] = (
    whole, whole, whole, whole, fraction, fraction, fraction, radical, interval, point, roots, polynomial,
    multiple_of_pi, words, matrix, base, decimal,
)  # fmt: skip
"""Kinds of values, about as often as in MATH."""
