"""Driver of math-verify: a program that runs inside the sandbox, where the package `math-verify` must be installed.

Reads {"response": text, "expected": text} from standard input and writes one JSON line: null if no answer was found,
else whether it equals the expected number. It sets no time limit: only a kill stops `10**10**10`.
"""

import json
import logging
import sys

# Characters of an expression without LaTeX.
_ARITHMETIC = "-0123456789+*/×÷^().,$% ="
_MORE = ("or", "and", "to", ",", ";", "&", "|", "/", "-", "+", "*", "×", "÷", "^", "<", ">", "≠", "≈", "±", "->", "→")
_ARROWS = ("\\to", "arrow", "\\implies", "\\mapsto", "\\mid", "→", "⇒", "\\approx", "\\pm", "\\mp")


def is_equal(response, expected):
    """Whether the answer of a response equals the expected number by math-verify; None if it finds no answer."""
    try:
        from math_verify import parse, verify
    except ImportError:
        sys.exit("math-verify is not installed where the sandbox runs; fix: pip install math-verify there")
    # Without its own timeout it warns at each call. That timeout uses signals, which a long multiplication ignores.
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    answers = parse(response, parsing_timeout=None)
    if not answers:
        return None
    gold = parse(expected, parsing_timeout=None)

    def equals(value):
        parsed = parse(value, parsing_timeout=None) if isinstance(value, str) else [value]
        return bool(parsed) and verify(gold, parsed, timeout_seconds=None)

    wanted, given = (relations(one[0]) for one in (gold or [None], answers))
    if wanted and given:
        return same_claims(given, wanted) and not any(arrow in str(answers[-1]) for arrow in _ARROWS)
    accepted = verify(gold, answers, timeout_seconds=None)
    return accepted and one_value(answers[0], answers[-1], equals) and alone(response, answers[-1], equals)


def relations(answer):
    """The relations of an answer, such as `x = 2`, or the two of `1 < x < 2`; none for any other answer."""
    from sympy import And
    from sympy.core.relational import Relational

    parts = answer.args if isinstance(answer, And) else (answer,)
    return [part for part in parts if isinstance(part, Relational)]


def same_claims(given, wanted):
    """Whether each relation has an equivalent: of its kind, with differences of their sides in a constant ratio."""
    from sympy import Eq, Ne, simplify

    def like(one, other):
        one, other = (part.reversed if part.rel_op in (">", ">=") else part for part in (one, other))
        difference = other.lhs - other.rhs
        if one.rel_op != other.rel_op or one.free_symbols != other.free_symbols or difference == 0:
            return False
        ratio = simplify((one.lhs - one.rhs) / difference)
        return bool(ratio.is_number and ratio.is_finite and (ratio.is_nonzero if type(one) in (Eq, Ne) else ratio > 0))

    return len(given) == len(wanted) and all(any(like(one, other) for one in given) for other in wanted)


def one_value(answer, text, equals):
    """Whether the answer claims one value.

    The library takes the right side of any equation, true or false, as the answer. So each side of an equation must be
    the expected number or a plain symbol.
    """
    from sympy import Eq, Symbol

    if any(arrow in str(text) for arrow in (*_ARROWS, "\\ne")):
        return False
    parts = relations(answer)
    if not all(isinstance(part, Eq) for part in parts):
        return False
    sides = [side for part in parts for side in (part.lhs, part.rhs)]
    return all(isinstance(side, Symbol) or equals(side) for side in sides)


def alone(response, text, equals):
    """Whether a number in prose is the only answer: no other one next to it (`41 or 42`), no false equation before."""
    text = str(text)
    place = response.rfind(text)
    if place < 0 or not text or not all(one in _ARITHMETIC for one in text):
        return True
    before, after = response[:place], response[place + len(text) :]
    run = before[len(before.rstrip(_ARITHMETIC)) :]
    *claims, rest = run.split("=")
    if any(claim.strip(" $.,") and not equals(f"${claim.strip(' $.,')}$") for claim in claims):
        return False
    return not _is_joined(before if not claims else rest, after)


def _is_joined(before, after):
    """Whether a word or sign joins the number to another one."""
    left, right = before[-64:].rstrip(" $("), after[:64].lstrip(" $)")
    for sign in _MORE:
        if left.endswith(sign) and _ends_number(left[: -len(sign)]):
            return True
        if right.startswith(sign) and right[len(sign) :].lstrip(" $(+-")[:1].isdigit():
            return True
    return right.startswith("=") and right[1:].lstrip(" $(+-")[:1].isdigit()


def _ends_number(text):
    text = text.rstrip(" $)")
    return text[-1:].isdigit()


if __name__ == "__main__":
    job = json.load(sys.stdin)
    json.dump(is_equal(job["response"], job["expected"]), sys.stdout)
