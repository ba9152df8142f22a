"""What is left of a text or of a program when its wording is taken away, as a list of tokens to compare."""

import builtins
import keyword
import re
import unicodedata

# Operators count: "a - b" and "a + b" are two problems. Other punctuation is layout.
_CONTENT = re.compile(r"\w+|[-+*/%<>=&|^~]")

# A lexer and not a parser: ten times faster, and it reads programs that do not parse or are in another language.
_LEXEME = re.compile(
    r"""
      (?P<comment> \#[^\n]* )
    | (?P<string> [rbfuRBFU]{0,2} (?: '{3}.*?'{3} | "{3}.*?"{3} | '(?:\\.|[^'\\\n])*' | "(?:\\.|[^"\\\n])*" ) )
    | (?P<name> [^\W\d]\w* )
    | (?P<other> \d[\w.]* | \*\* | // | [=!<>]= | [^\w\s] )
    """,
    re.VERBOSE | re.DOTALL,
)
_KEPT_NAMES = frozenset(dir(builtins)) | frozenset(keyword.kwlist)


def prompt_tokens(text: str) -> list[str]:
    """Words, numbers and operators of a prompt, without case, other punctuation, layout and compatibility forms."""
    return _CONTENT.findall(unicodedata.normalize("NFKC", text).casefold())


def solution_tokens(text: str) -> list[str]:
    """Tokens of a program in normal form: comments, docstrings, layout and the names it chooses do not count.

    Names are numbered in order of appearance; keywords, builtins, attributes and constants stay.
    """
    tokens: list[str] = []
    numbers: dict[str, str] = {}
    for match in _LEXEME.finditer(text):
        lexeme = match[0]
        if match.lastgroup == "comment" or (match.lastgroup == "string" and _is_statement(text, match.start(), tokens)):
            continue
        if match.lastgroup == "name" and lexeme not in _KEPT_NAMES and tokens[-1:] != ["."]:
            lexeme = numbers.setdefault(lexeme, f"v{len(numbers)}")
        tokens.append(lexeme)
    return tokens


def _is_statement(text: str, start: int, before: list[str]) -> bool:
    """Whether a string begins a line and continues no expression: then it is documentation."""
    return not text[text.rfind("\n", 0, start) + 1 : start].strip() and (not before or before[-1] not in "([{,=+%|\\")
