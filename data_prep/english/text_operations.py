"""Operations on a text and on a list of words."""

from data_prep.english.operation import Operation

_COUNTS = range(2, 5)
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
