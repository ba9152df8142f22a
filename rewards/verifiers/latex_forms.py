"""Comparison of answers in LaTeX as far as it is exact: spelling, words, numbers and lists of these. Pure, linear.

What is left needs a computer algebra system (rewards/verifiers/latex.py).
"""

import re
from fractions import Fraction

_SPACING = re.compile(r"\\[,!;: ]|\\left|\\right|[\s$]")
# Of `3 1/4` and `4 2`, but not of `1 000` and of `\\frac 1 2`.
_GAP = re.compile(r"(?<!frac[ ][0-9])(?<!frac[0-9])(?<=[0-9])(?:\s|\\[,;: ])++(?=[0-9])(?![0-9]{3}(?![0-9/]))")
_RELATION = re.compile(r"\\(ge|le|ne)q(?![a-zA-Z])")
_FRACTION = re.compile(r"\\[dt]frac")
_EXPONENT = re.compile(r"([\^_])\{(.)\}")
_ROOT = re.compile(r"\\sqrt([0-9a-z])")
_DOT = re.compile(r"\\cdot(?=[a-zA-Z]|\\(?![dt]?frac))")  # `2\\cdot\\frac12` is no `2\\frac12`
_NAME = re.compile(r"([a-zA-Z](?:\([a-z]\))?)[ ]?(?:=|\\in)[ ]?(?=[^=])")
_UNIT = re.compile(r"\\(?:text|mbox|mathrm)\{([^{}0-9]*+)\}(\^[23]|\^\{[23]\})?")
_UNIT_SIGNS = ("^\\circ", "^{\\circ}", "\\%", "%")
_WORD = re.compile(r"\\text(?:bf|rm)?\{[(]?([A-Za-z ]++)[)]?\}|[(]?([A-Za-z ]++)[)]?")
_RATIONAL = re.compile(
    r"([+-]?)(?:\\frac\{(-?[0-9]++)\}\{([0-9]++)\}|\\frac([0-9])([0-9])|([0-9]++)/([0-9]++)|"
    r"([0-9]{1,3}(?:,[0-9]{3})++(?:\.[0-9]++)?+)|([0-9]++(?:\.[0-9]++)?+|\.[0-9]++))"
)
_IN_BASE = re.compile(r"(-?)0*+([0-9][0-9A-Fa-f.]*+)_(?:([0-9])|\{([0-9]{2})\}|\{(?:\\text\{)?([a-z]++)\}*+)")
_BASES = {
    "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10,
    "eleven": 11, "twelve": 12, "thirteen": 13, "fourteen": 14, "fifteen": 15, "sixteen": 16,
}  # fmt: skip
# What stands like a unit after a number, and changes its value.
_ALTERS = re.compile(
    r"(?<![a-z])(?:hundred|thousand|million|billion|trillion|lakh|crore|mil|squared|cubed|factorial|half|third|"
    r"quarter|minus|plus|alternatively|not|never|wrong|false|incorrect|at[ ](?:least|most)|approximately|roughly|"
    r"almost|nearly|bound|negative|doubled|tripled|halved|"
    r"zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|"
    r"[a-z]+teen|(?:twen|thir|for|fif|six|seven|eigh|nine)ty)(?![a-z])",
    re.IGNORECASE,
)
_SUFFIX = re.compile(r"\{[ ]*+[kMB][ ]*+\}")
_NAMES = re.compile(r"\\[A-Za-z]++|(?<![A-Za-z])[A-Za-z](?![A-Za-z])")
_TEXT = re.compile(r"\\(?:text[a-z]*|[mh]box|mathrm|operatorname)\{[^{}]*+\}")
_WORDS = re.compile(r"(?<![A-Za-z\\])[A-Za-z]{3}")
_CHOICE = re.compile("[A-E]")
_TIME = re.compile(r"[0-9]{1,2}:[0-5][0-9]")
_OPPOSITES = ({"am", "pm"}, {"north", "south", "east", "west"}, {"left", "right"})
_MOST_CHARACTERS = 200
# What an answer may not have unless the expected one has it, too. math-verify passes over most of it.
_CHOICES = re.compile(r"(?<![A-Za-z])(?:or|and|either|\\lor|\\vee|\\boxed|\\fbox)(?![A-Za-z])|[;?|]|\n")
# Text that ends or continues a number: `42\text{ (43)}`, `42\mathbf{3}`, `4\text{ }2`; a text after a text.
_NUMBER_IN_TEXT = re.compile(
    r".\\(?:text|mbox|mathrm)\{[^{}0-9]*+[0-9]|[0-9]\\(?:text|math)[a-z]++\{[^{}0-9]*+[0-9]|"
    r"[0-9]\\(?:text|[mh]box|math)[a-z]*+\{[^{}]*+\}[ ]*+[0-9]|\\text[a-z]*+\{[^{}]*+\}[ ]*+\\text[a-z]*+\{"
)
_VECTOR = re.compile(r"[0-9]\\math(?:bf|bb|cal|it)\{|[0-9]\\mathrm\{[ij]\}")
_UNSEEN = re.compile(r"\\[hv]?phantom|\\not(?![a-z])|(?<!\\)%[ ]*+[^ .$]")
_COMPUTATION = re.compile(
    r"\\(?:i++nt|oint|sum|prod|lim|max|min|gcd|lcm|det|b?mod|lfloor|lceil|sup|inf)(?![A-Za-z])|\{[vV]matrix\}|"
    r"frac\{(?:d|\\mathrm\{d\}|\\partial)\}\{(?:d|\\mathrm\{d\}|\\partial)[ ]*+[a-z]"
)
_BOUND = re.compile(r"^[ ]*+(?:\\(?:geq?|leq?|gt|lt|neq?|sim)(?![a-z])|[<>≥≤≠~])")
_DOTS = re.compile(r"(?:^|[ ,])(?:\\[lc]?dots|\.\.\.|…)")
_PRIME = re.compile(r"'$")
_DOUBTS = (_CHOICES, _NUMBER_IN_TEXT, _VECTOR, _UNSEEN, _COMPUTATION, _BOUND, _DOTS, _PRIME)
# Units by the names that texts give them, without a plural's `s`.
_UNITS = {
    name: unit
    for unit, names in {
        "mm": "millimeter millimetre", "cm": "centimeter centimetre", "m": "meter metre", "km": "kilometer kilometre",
        "in": "inch inche", "ft": "foot feet", "yd": "yard", "mi": "mile", "mg": "milligram", "g": "gram",
        "kg": "kilogram", "lb": "pound", "oz": "ounce", "ml": "milliliter millilitre", "l": "liter litre",
        "second": "sec", "minute": "min", "hour": "hr h", "day": "", "week": "", "month": "", "year": "yr",
        "cent": "", "$": "dollar", "%": "\\% percent", "^\\circ": "^{\\circ} degree", "rad": "radian",
        "mph": "", "km/h": "kph", "dm": "", "nm": "", "ton": "",
    }.items()
    for name in (unit, *names.split())
}  # fmt: skip


def is_open(answer: str, truth: str) -> bool:
    """Whether an answer leaves open what it claims, as the expected one does not: by a choice, a bound, words after it,
    signs that are not shown, or a computation left to the reader.
    """
    return any(doubt.search(answer) and not doubt.search(truth) for doubt in _DOUBTS)


def spelling(answer: str) -> str:
    """An answer without what LaTeX shows no difference for: blanks, `$`, the size of brackets, `\\geq` or `\\ge`."""
    text = _SPACING.sub("", _GAP.sub("~", _RELATION.sub(r"\\\1", _blanks(answer))))
    text = _FRACTION.sub(r"\\frac", text).replace("−", "-")
    return _EXPONENT.sub(r"\1\2", _ROOT.sub(r"\\sqrt{\1}", _DOT.sub("", text)))


def _blanks(text: str) -> str:
    """A text with plain blanks for LaTeX's unbreakable ones: `5~\\text{cm}`."""
    return text.replace("~", " ")


def equal(answer: str, truth: str) -> bool | None:
    """Whether an answer equals the expected one; None if that is not decided here.

    A unit on one side, and a name before `=` or `\\in` on one side, do not count.
    """
    (given, unit, name), (wanted, wanted_unit, wanted_name) = _bare(answer), _bare(truth)
    if name and wanted_name and name != wanted_name and "(" not in name + wanted_name:
        return None if name in wanted or wanted_name in given else False
    if spelling(unit) != spelling(wanted_unit) and any(map(_alters, (unit, wanted_unit))):
        return False
    if _CHOICE.fullmatch(name) and _CHOICE.fullmatch(wanted):
        return False  # `A = B` names two choices
    if _TIME.fullmatch(wanted) and ":" not in given:
        return False
    if unit and wanted_unit and spelling(unit) != spelling(wanted_unit):
        units = _unit(unit), _unit(wanted_unit)
        if None in units:
            return False if _are_opposites(unit, wanted_unit) else None
        if units[0] != units[1]:
            return False
    if spelling(given) == spelling(wanted):
        return True
    if "~" in spelling(given):
        return False
    if _in_base(given) or _in_base(wanted):
        return _based(given) == _based(wanted)
    if truth.startswith("\\text"):
        return _same_word(answer, truth)
    if len(given) == len(wanted) == 1 and given.isalpha() and wanted.isalpha():
        return False  # a name, whose case counts
    if _differ_in_case(given, wanted):
        return False
    left, right = _values(given), _values(wanted)
    if left is None or right is None:
        return False if _is_bare_list(given) and "," not in wanted else None
    if left[0] != right[0]:
        return _other_kind(left, right)
    if left[0] in ("", "\\{\\}"):
        left[1].sort()
        right[1].sort()
    if left == right:
        return True
    # A percentage or a rounded decimal may still be right.
    pairs = list(zip(left[1], right[1], strict=False))
    is_near = len(left[1]) == len(right[1]) and all(abs(one - other) * 100 <= abs(other) for one, other in pairs)
    return None if "%" in answer + truth or ("." in answer + truth and is_near) else False


def _alters(unit: str) -> bool:
    return bool(_ALTERS.search(unit) or _SUFFIX.search(unit))


def _differ_in_case(given: str, wanted: str) -> bool:
    """Whether a name is written in another case, as in `X + 1`; words have none, and are not read as names."""
    texts = [_TEXT.sub("", one) for one in (given, wanted)]
    if any(map(_WORDS.search, texts)):
        return False
    names, others = (set(_NAMES.findall(text)) for text in texts)
    return not {name.lower() for name in names - others}.isdisjoint(name.lower() for name in others - names)


def _are_opposites(unit: str, other: str) -> bool:
    """Whether two texts after a number differ as `AM` and `PM` do."""
    words = [(match[1] if (match := _UNIT.fullmatch(text)) else text).strip().lower().replace(".", "")
             for text in (unit, other)]  # fmt: skip
    return any(set(words) <= opposites for opposites in _OPPOSITES)


def _is_bare_list(answer: str) -> bool:
    """Whether an answer is several values without brackets: `41\\%, 42`."""
    parts = answer.split(",")
    return not set("([{") & set(answer) and sum(any(map(str.isdigit, part)) for part in parts) > 1


def _other_kind(left: tuple[str, list[Fraction]], right: tuple[str, list[Fraction]]) -> bool | None:
    """Of lists in other brackets, sets are no points, and a list in another order is none; the rest is not decided."""
    kinds = {left[0], right[0]}
    is_set = "\\{\\}" in kinds and "" not in kinds
    return False if is_set or ("()" in kinds and "" in kinds and left[1] != right[1]) else None


def _unit(text: str) -> tuple[str, str] | None:
    """A unit's usual name and its power, if it is a known one."""
    match = _UNIT.fullmatch(text)
    name, power = (match[1].strip(), (match[2] or "").strip("^{}")) if match else (text, "")
    if name.startswith("square "):
        name, power = name.removeprefix("square "), "2"
    unit = _UNITS.get(name) or _UNITS.get(name.lower().removesuffix("s"))
    return None if unit is None else (unit, power)


def _based(answer: str) -> tuple[str, int] | None:
    """The number and its base, which is ten if none is given."""
    return _in_base(answer) or _in_base(f"{answer}_{{10}}")


def _in_base(answer: str) -> tuple[str, int] | None:
    """Digits and base of a number such as `101_2`, `1A_{12}`, `101_{\\text{two}}`; None for all else."""
    match = _IN_BASE.fullmatch(spelling(answer)) if len(answer) <= _MOST_CHARACTERS else None
    if match is None:
        return None
    sign, digits, one, two, word = match.groups()
    base = _BASES.get(word) if word else int(one or two)
    return None if base is None else (sign + digits.upper(), base)


def _bare(answer: str) -> tuple[str, str, str]:
    """An answer without its unit, which is the second part, and without a name before it, the third."""
    text = _blanks(answer).strip(" $")
    match = _NAME.match(text)
    name = match[1] if match else ""
    text = text[match.end() :] if match else text
    if text.startswith("\\$"):
        return text[2:], "$", name
    for sign in _UNIT_SIGNS:
        if text.endswith(sign):
            return text.removesuffix(sign), sign, name
    place = max(text.rfind("\\text{"), text.rfind("\\mbox{"), text.rfind("\\mathrm{"))
    has_unit = place > 0 and _UNIT.fullmatch(text, place)
    return (text[:place], text[place:], name) if has_unit else (text, "", name)


def _same_word(answer: str, truth: str) -> bool | None:
    given, wanted = _WORD.fullmatch(answer), _WORD.fullmatch(truth)
    if given is None or wanted is None:
        return None
    words = [(one[1] or one[2]).strip() for one in (given, wanted)]
    # A letter is a choice or a name, whose case counts.
    return words[0] == words[1] if len(words[1]) == 1 else words[0].lower() == words[1].lower()


def _values(answer: str) -> tuple[str, list[Fraction]] | None:
    """The brackets and the numbers of a list, in its order."""
    if len(answer) > _MOST_CHARACTERS:
        return None
    if (number := rational(answer)) is not None:
        return "", [number]
    text = answer.replace("\\left", "").replace("\\right", "").strip()
    left, right = next(((a, b) for a in ("(", "[", "\\{") for b in (")", "]", "\\}")
                        if text.startswith(a) and text.endswith(b)), ("", ""))  # fmt: skip
    inner = text[len(left) : len(text) - len(right)]
    numbers = [rational(one) for one in inner.split("," if left or ", " not in inner else ", ")]
    known = [one for one in numbers if one is not None]
    if len(known) < len(numbers):
        return None
    return left + right, known


def rational(answer: str) -> Fraction | None:
    """The value of a number or of a fraction of whole numbers; None for all else: `3 1/4`, `1, 234`."""
    if len(answer) > _MOST_CHARACTERS:
        return None
    text = answer.strip(" $").replace(",\\!", ",").replace("{,}", ",").replace("−", "-")
    match = _RATIONAL.fullmatch(_FRACTION.sub(r"\\frac", text))
    if match is None:
        return None
    sign, *parts = match.groups()
    above, *below = [Fraction(part.replace(",", "")) for part in parts if part]
    if below and not below[0]:
        return None
    return (-above if sign == "-" else above) / (below[0] if below else 1)
