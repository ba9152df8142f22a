"""Extraction of the answer from a response: the last fenced block, the last line, or the text after the thinking."""

import re
from textwrap import dedent
from typing import Literal

MAX_ANSWER_CHARACTERS = 65_536
"""Of the text after the thinking part, which may have any length."""

_OPEN, _CLOSE = "<think>", "</think>"

# Possessive quantifiers: backtracking over a long run of blanks after a fence would take quadratic time.
_FENCE = re.compile(r"```[ \t]*+([\w+-]*+)[^`\n]*+\n(.*?)(?:\r?\n[ \t]*+)?```", re.DOTALL)
_TAGS = {
    "python": ("python", "python3", "py", "py3"),
    "sql": ("sql", "sqlite", "sqlite3", "postgresql", "postgres", "mysql"),
}


def answer_part(response: str, limit: int = MAX_ANSWER_CHARACTERS) -> str | None:
    """The text in which the answer is looked for, at most `limit` characters; None if there is no such text.

    It is the response, or of a longer one the part after its last `</think>`.
    """
    part = response if len(response) <= limit else response.rpartition(_CLOSE)[2]
    return part if len(part) <= limit else None


def find_block(response: str, language: str | None = None) -> tuple[int, int] | None:
    """The span of the code in a response, as characters [start, end); None if there is no code.

    With fences, the last block in `language` counts, as models often draft before they answer. Without one, it is the
    last block without a language; a response whose blocks are all in other languages has no answer. Without a fence the
    whole text after the thinking part counts.
    More than MAX_ANSWER_CHARACTERS after the thinking part are no answer.
    """
    part = answer_part(response)
    if part is None:
        return None
    start, end = response.rfind(_CLOSE) + len(_CLOSE) if _CLOSE in response else 0, len(response)
    blocks = list(_FENCE.finditer(response, len(response) - len(part)))
    if blocks:
        tags = _TAGS.get(language or "", (language,))
        tagged = [block for block in blocks if language is None or block[1].lower() in tags]
        # An untagged block after the program is its output, or a remark.
        wanted = tagged or [block for block in blocks if not block[1]]
        if not wanted:
            return None
        start, end = wanted[-1].span(2)
    answer = response[start:end]
    if not answer.strip():
        return None
    start += len(answer) - len(answer.lstrip("\r\n"))
    return start, start + len(answer.strip("\r\n"))


def extract_block(response: str, language: str | None = None) -> str | None:
    """The code in a response (`find_block`), in a list without its indentation; None if there is none."""
    span = find_block(response, language)
    if span is None:
        return None
    answer = response[slice(*span)]
    return dedent(answer) if _FENCE.search(response) else answer


def extract_last_line(response: str) -> str | None:
    """The last non-blank line of a response, stripped; None if there is none."""
    lines = [line.strip() for line in (answer_part(response) or "").splitlines() if line.strip()]
    return lines[-1] if lines else None


# Who writes `<think>`: the response, or the chat template before it, so that the response starts without it.
ThinkOpener = Literal["response", "template", "either"]

REQUEST = f"Begin with a line {_OPEN}, reason, close it with {_CLOSE}, then answer."
"""The sentence of a prompt that asks for the thinking part."""

REQUEST_OPENED = f"Reason, close it with {_CLOSE}, then answer."
"""The same for a model whose chat template opens the thinking part."""


def is_well_formed(response: str, opener: ThinkOpener = "response") -> bool:
    """Whether a response is one thinking part and an answer after it, neither of them blank.

    `<think>` and a newline open the thinking (unless the template wrote them), `</think>` closes it, and neither tag
    occurs again.
    """
    thinking, closed, answer = response.partition(_CLOSE)
    opened = thinking.startswith(f"{_OPEN}\n")
    if opened:
        thinking = thinking.removeprefix(_OPEN)
    opened_as_expected = opener == "either" or opened == (opener == "response")
    has_more_tags = _OPEN in thinking or _OPEN in answer or _CLOSE in answer
    if not closed or not opened_as_expected or has_more_tags:
        return False
    return bool(thinking.strip() and answer.strip())


def after_thinking(response: str, opener: ThinkOpener = "response") -> str | None:
    """The text after the thinking part, or the whole response without one.

    None if the thinking is not closed, or the answer is blank or longer than MAX_ANSWER_CHARACTERS.
    """
    if answer_part(response) is None:
        return None
    _, closed, answer = response.rpartition(_CLOSE)
    if _OPEN in answer or (opener == "template" and not closed):
        return None
    return answer if answer.strip() else None
