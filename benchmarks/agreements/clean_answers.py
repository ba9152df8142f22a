"""Answers without tricks for verl's data sources of mathematics, right and wrong, in the forms that models write.

Equal seeds give equal answers.
"""

import random
import re
from dataclasses import dataclass
from math import gcd

_NUMBER = "<n>: <n>; <n>; <t>; $<n>; <n> apples; <n>.00; <n>%; <n>.; **<n>**; $<t> | <m>; -<n>; <n>0; <n>.5; <m> apples"
# Expected value: equal forms | other values. Kinds are about as often as in MATH.
_INTEGER = r"<n>: <n>; <n>; <n>; <t>; <T>; x = <n>; <n>\text{ cm}; <n>^\circ; <n>.0; \frac{<2n>}{2}" + (
    r" | <m>; -<n>; <m>\text{ cm}; x = <m>"
)
_FRACTION = r"\frac{<p>}{<q>}: \frac{<p>}{<q>}; \dfrac{<p>}{<q>}; <p>/<q>; \frac{<3p>}{<3q>}; p = \frac{<p>}{<q>}" + (
    r" | \frac{<q>}{<p>}; \frac{<p1>}{<q>}; <p1>/<q>; -\frac{<p>}{<q>}"
)
_FORMS = [_INTEGER] * 4 + [_FRACTION] * 3 + [
    r"<a>\sqrt{<b>}: <a>\sqrt{<b>}; <a> \cdot \sqrt{<b>}; \sqrt{<aab>}; \frac{<ab>}{\sqrt{<b>}}"
    r"; <a>\sqrt{<b>}\text{ cm} | <a1>\sqrt{<b>}; \sqrt{<ab>}; -<a>\sqrt{<b>}",
    r"[<d>, <e>): [<d>, <e>); [<d>,<e>); \left[<d>, <e>\right); x \in [<d>, <e>)"
    r" | [<d>, <e1>); (<d>, <e>); [<d>, \infty)",
    r"(<d>, <e>, 5): (<d>, <e>, 5); (<d>,<e>,5); \left(<d>, <e>, 5\right) | (<d>, <e1>, 5); (<e>, <d>, 5); (<d>, <e>)",
    r"<d>, <e>: <d>, <e>; <d>,<e>; <e>, <d>; \{<d>, <e>\} | <d>, <e1>; <d>; <d>, <e>, <e1>",
    r"x^2+<s>x+<ab>: x^2+<s>x+<ab>; x^2 + <s>x + <ab>; x^{2}+<s>x+<ab>; <ab>+<s>x+x^2; (x+<a>)(x+<b>)"
    r"; f(x) = x^2+<s>x+<ab> | x^2+<s1>x+<ab>; x^2-<s>x+<ab>; (x-<a>)(x-<b>)",
    r"<a>\pi: <a>\pi; <a> \pi; <a> \cdot \pi; <a>\pi\text{ cm}^2; \pi \cdot <a> | <a1>\pi; <a>; -<a>\pi; <a>\pi^2",
    r"\text{(<C>)}: \text{(<C>)}; (<C>); \textbf{(<C>)}; <C> | \text{(<D>)}; (<D>)",
    r"\text{Tuesday}: \text{Tuesday}; Tuesday; \textbf{Tuesday} | \text{Friday}; Friday",
    r"\begin{pmatrix} <d> & <e> \\ <a> & 0 \end{pmatrix}: \begin{pmatrix} <d> & <e> \\ <a> & 0 \end{pmatrix}"
    r"; \begin{pmatrix}<d>&<e>\\<a>&0\end{pmatrix}; \begin{bmatrix} <d> & <e> \\ <a> & 0 \end{bmatrix}"
    r" | \begin{pmatrix} <d> & <e1> \\ <a> & 0 \end{pmatrix}; \begin{pmatrix} <e> & <d> \\ <a> & 0 \end{pmatrix}",
    r"<u>_2: <u>_2; <u>_{2}; <u>_{\text{two}} | <v>_2; <u>_3",
    r"<a>.<f>: <a>.<f>; \$<a>.<f>; <a>.<f>\%; <a>.<f>0; \frac{<af>}{100} | <a1>.<f>; <a1>; <af>",
]  # fmt: skip
_PLACE = re.compile("<([0-9A-Za-z]+)>")


@dataclass(frozen=True)
class CleanAnswer:
    """An answer to a row of verl's. kind: its form; right: the share of the reward that it deserves."""

    source: str
    kind: str
    truth: str
    text: str
    right: float


def _values(rng: random.Random) -> dict[str, object]:
    """Values for the names in the forms."""
    n = rng.choice((rng.randint(2, 99), rng.randint(100, 9_999), rng.randint(10_000, 2_000_000)))
    p, q = rng.randint(1, 40), rng.randint(2, 24)
    while gcd(p, q) > 1 or p == q:
        p, q = rng.randint(1, 40), rng.randint(2, 24)
    a, b, f, u = rng.randint(2, 9), rng.choice((2, 3, 5, 7, 11)), rng.randint(11, 99), rng.randint(8, 200)
    d, e = sorted(rng.sample(range(-9, 10), 2))
    first, second = rng.sample("ABCDE", 2)
    return {
        "n": n, "m": n + rng.choice((-1, 1)), "t": f"{n:,}", "T": f"{n:,}".replace(",", "{,}"), "2n": 2 * n,
        "p": p, "q": q, "p1": p + 1, "3p": 3 * p, "3q": 3 * q, "a": a, "b": b, "a1": a + 1, "ab": a * b, "s": a + b,
        "s1": a + b + 1, "aab": a * a * b, "d": d, "e": e, "e1": e + 1, "C": first, "D": second, "u": f"{u:b}",
        "v": f"{u + 1:b}", "f": f, "af": 100 * a + f,
    }  # fmt: skip


def _drawn(form: str, rng: random.Random) -> tuple[str, str, str, bool]:
    """The kind of an answer, the expected value, the answer, and whether they are equal."""
    truth, _, rest = form.partition(": ")
    equal, other = ([one.strip() for one in part.split(";")] for part in rest.split(" | "))
    right = rng.random() < 0.5
    # Half of the right answers have the usual form.
    written = rng.choice(other) if not right else rng.choice((equal[0], rng.choice(equal)))
    values = _values(rng)
    shown = [_PLACE.sub(lambda place: str(values[place[1]]), one) for one in (truth, written)]
    return f"{truth} <- {written}", shown[0], shown[1], right


def gsm8k(rng: random.Random) -> CleanAnswer:
    """An answer to a row of `openai/gsm8k`, whose expected number has no commas."""
    kind, truth, written, right = _drawn(_NUMBER, rng)
    work = f"She has {truth} and gives none away: {truth} - 0 = <<{truth}-0={truth}>>{truth}."
    return CleanAnswer("openai/gsm8k", kind, truth, f"{work}\n#### {written}", float(right))


def mathematics(source: str, rng: random.Random) -> CleanAnswer:
    """An answer in a box, or after `Answer:` for math_dapo, whose data expect whole numbers."""
    kind, truth, written, right = _drawn(_INTEGER if source == "math_dapo" else rng.choice(_FORMS), rng)
    end = f"Answer: ${written}$" if source == "math_dapo" else f"So the answer is $\\boxed{{{written}}}$."
    return CleanAnswer(source, kind, truth, f"Both cases lead to the same value.\n\n{end}", float(right))
