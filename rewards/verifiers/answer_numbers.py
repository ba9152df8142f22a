"""Numbers in an answer, by value in any notation, without expressions. Takes time linear in the text.

42, 42.0, 42., +42, $42, 4.2e1 and 1,042 for 1042 are numbers; commas must group thousands. `42 - 21`, `42/7`,
`42 = 42` and `41 or 42` are not; units, a percent sign, a full stop and prose may follow a number.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

# Every run of digits is one token, so that no character is searched twice.
_TOKEN = re.compile(r"(?:[0-9][0-9,]*+(?:\.[0-9]++)?+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?+")
_THOUSANDS = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})++")
_MAX_EXPONENT = 400
_MINUS = "-−"
_BLANKS = " \t"
# Operators and words that combine two numbers into an expression or a list of answers.
_JOINT = re.compile(
    r"(?:[*/^=×÷·⋅∙<>≤≥≠≈±|&,;:~]|[-+−–—]|%|//|\*\*|==|\\[a-zA-Z]++|"
    r"(?:or|and|to|mod|times|plus|minus|over|x|X|divided[ ]by|multiplied[ ]by)(?![A-Za-z]))"
)
_OPENING = "$([{\\€£"
_DASHES = ("-", "−", "–", "—")
_WITH_WORDS = (*_DASHES, *"*/^×÷·⋅∙", "**", "//")  # a number in words is an operand, too: `42 × ten`
_CURRENCY = "$€£"
_POWERS = tuple("⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
# Factors without an operator: 42√2, 42π, 42½. `42!` is not among them: in prose it is an exclamation, not a factorial.
_FACTORS = tuple("√∛∜π½⅓⅔¼¾⅕⅛")
_NUMBER_WORD = re.compile(
    r"(?:(?:a|one)[ ])?(?:zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|"
    r"fifteen|sixteen|seventeen|eighteen|nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand|"
    r"million|half|third|quarter|dozen|pi)(?![A-Za-z])",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Found:
    """A number in a text: characters [start, end), including its sign, and its value in canonical form."""

    start: int
    end: int
    value: str


def numbers(text: str, start: int = 0) -> Iterator[Found]:
    """The numbers of a text from `start` on, in order; a run that is not a number (`1,23`) is split at its commas."""
    for token in _TOKEN.finditer(text, start):
        yield from _of_token(text, token)


def _of_token(text: str, token: re.Match[str]) -> Iterator[Found]:
    written = token[0]
    whole = written.partition(".")[0].lower().partition("e")[0].rstrip(",")
    if "," not in whole or _THOUSANDS.fullmatch(whole):
        end = token.start() + len(whole) if written[len(whole) :].startswith(",") else token.end()
        if end < token.end():
            # `42,.5` and the like: digits after the commas are another number.
            written = whole
        start, negative = _signed(text, token.start())
        value = canonical(written.rstrip(",").replace(",", ""), negative)
        if value is not None:
            yield Found(start, end, value)
        return
    place = token.start()
    *pieces, last = written.split(",")
    for piece in (*pieces, last):
        if piece:
            start, negative = _signed(text, place)
            value = canonical(piece, negative)
            if value is not None:
                yield Found(start, place + len(piece), value)
        place += len(piece) + 1


def _signed(text: str, start: int) -> tuple[int, bool]:
    """The start of a number, including its sign and currency, and whether it is negative.

    A minus after an operand is a subtraction, not a sign: `3-5` ends in 5.
    """
    negative = False
    for _ in range(2):
        if start and text[start - 1] in _MINUS and not _is_operand(text, start - 1):
            start, negative = start - 1, not negative
        if start and text[start - 1] in _CURRENCY:
            start -= 1
    return start, negative


def _is_operand(text: str, end: int) -> bool:
    return end > 0 and (text[end - 1].isascii() and (text[end - 1].isalnum() or text[end - 1] == ")"))


def canonical(written: str, negative: bool = False) -> str | None:
    """The canonical form of a value: no sign but a minus, no commas, no exponent, no leading or trailing zeros.

    None for an exponent beyond 400: no answer is that large, and writing out that many digits costs too much.
    """
    mantissa, _, power = written.lower().partition("e")
    whole, _, fraction = mantissa.partition(".")
    exponent = 0
    if power:
        digits = power.lstrip("+-").lstrip("0")
        if len(digits) > 3 or int(digits or "0") > _MAX_EXPONENT:
            return None
        exponent = -int(digits or "0") if power.startswith("-") else int(digits or "0")
    if exponent >= 0:
        moved = fraction[:exponent].ljust(exponent, "0")
        whole, fraction = whole + moved, fraction[exponent:]
    else:
        padded = whole.rjust(-exponent, "0")
        whole, fraction = padded[:exponent], padded[exponent:] + fraction
    whole, fraction = whole.lstrip("0") or "0", fraction.rstrip("0")
    shown = f"{whole}.{fraction}" if fraction else whole
    return f"-{shown}" if negative and shown != "0" else shown


def is_joined(text: str, end: int) -> bool:
    """Whether the text after a number makes it part of an expression or of a list of answers."""
    place = _after_blanks(text, end)
    if _begins_number(text, place) or text.startswith(_POWERS, end) or text.startswith(_FACTORS, place):
        return True
    if place == end and text[place : place + 1] == "(":
        return _begins_number(text, _after_opening(text, place))
    joint = _JOINT.match(text, place)
    if joint is None:
        return False
    if joint[0].startswith("\\"):
        # LaTeX: `\times 2` and `\frac12` join; a space (`\ `) or a unit (`\text{cm}`, `\%`) does not.
        return joint[0] not in ("\\text", "\\mathrm", "\\textbf", "\\quad", "\\qquad")
    after = _after_opening(text, joint.end())
    if joint[0] in _WITH_WORDS or (joint[0][0].isalpha() and joint[0] not in ("and", "to", "x", "X")):
        return begins_operand(text, after)
    return _begins_number(text, after)


def begins_operand(text: str, place: int) -> bool:
    """Whether a number is here, in digits or in words: `42 minus two`, but not `42 times a day`."""
    return _begins_number(text, place) or _NUMBER_WORD.match(text, place) is not None


def _after_blanks(text: str, place: int) -> int:
    while text[place : place + 1] and text[place] in _BLANKS:
        place += 1
    return place


def _after_opening(text: str, place: int) -> int:
    while text[place : place + 1] and (text[place] in _BLANKS or text[place] in _OPENING or text[place] in "-+−*=/"):
        place += 1
    return place


def _begins_number(text: str, place: int) -> bool:
    head = text[place : place + 2]
    return head[:1].isdecimal() or (head[:1] == "." and head[1:].isdecimal())


def joins(text: str, start: int) -> bool:
    """Whether a number that begins here is the right side of an operator: `84/2`, `10-5`, `√42`."""
    place = start
    while place and text[place - 1] in _BLANKS:
        place -= 1
    if place and text[place - 1] in "√∛∜":
        return True
    if not place or text[place - 1] not in "*/^×÷·+-−":
        return False
    place -= 1
    while place and text[place - 1] in _BLANKS + "*$":
        place -= 1
    return place > 0 and (text[place - 1].isdecimal() or text[place - 1] == ")")
