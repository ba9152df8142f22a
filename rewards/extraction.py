"""Find the answer in a response: the last fenced block, the last line, or what follows the thinking part."""

import re
from typing import Literal

MAX_ANSWER_CHARACTERS = 65_536

# Possessive, because backtracking over a long run of blanks after a fence takes quadratic time.
_FENCE = re.compile(r"```[ \t]*+([\w+-]*+)[ \t]*+\r?\n(.*?)(?:\r?\n)?```", re.DOTALL)


def find_block(response: str, language: str | None = None) -> tuple[int, int] | None:
    """Where the code of a response stands, as characters [start, end); None when there is none.

    With fences, the last block in `language` (or in no named language) counts, as models often draft before they
    answer; a response whose blocks are all in other languages holds no answer. Without a fence the whole text does.
    A response longer than MAX_ANSWER_CHARACTERS is no answer.
    """
    if len(response) > MAX_ANSWER_CHARACTERS:
        return None
    start, end = 0, len(response)
    blocks = list(_FENCE.finditer(response))
    if blocks:
        wanted = [block for block in blocks if not block[1] or language is None or block[1].lower() == language]
        if not wanted:
            return None
        start, end = wanted[-1].span(2)
    answer = response[start:end]
    if not answer.strip():
        return None
    start += len(answer) - len(answer.lstrip("\r\n"))
    return start, start + len(answer.strip("\r\n"))


def extract_block(response: str, language: str | None = None) -> str | None:
    """The code in a response (`find_block`), or None when there is none."""
    span = find_block(response, language)
    return None if span is None else response[slice(*span)]


def extract_last_line(response: str) -> str | None:
    """The last line of a response that is not empty, stripped; None when there is none."""
    if len(response) > MAX_ANSWER_CHARACTERS:
        return None
    lines = [line.strip() for line in response.splitlines() if line.strip()]
    return lines[-1] if lines else None


# Who writes `<think>`: the response itself, or the chat template before it, so that the response does not hold it.
ThinkOpener = Literal["response", "template", "either"]

_OPEN, _CLOSE = "<think>", "</think>"

REQUEST = f"Begin with a line {_OPEN}, reason, close it with {_CLOSE}, then answer."
"""How a prompt asks for the thinking part."""


def is_well_formed(response: str, opener: ThinkOpener = "response") -> bool:
    """Whether a response is one thinking part, opened by `<think>` and a newline (unless the template did that) and
    closed, and an answer after it; neither is blank, and no further tag of the two occurs.
    """
    thinking, closed, answer = response.partition(_CLOSE)
    opened = thinking.startswith(f"{_OPEN}\n")
    if opened:
        thinking = thinking.removeprefix(_OPEN)
    by_the_right_one = opener == "either" or opened == (opener == "response")
    tags_left = _OPEN in thinking or _OPEN in answer or _CLOSE in answer
    return bool(closed and by_the_right_one and not tags_left and thinking.strip() and answer.strip())


def after_thinking(response: str, opener: ThinkOpener = "response") -> str | None:
    """What stands after the thinking part; without one, the whole response. None where the thinking does not end, the
    answer is blank, or the response is longer than MAX_ANSWER_CHARACTERS.
    """
    if len(response) > MAX_ANSWER_CHARACTERS:
        return None
    _, closed, answer = response.rpartition(_CLOSE)
    if _OPEN in answer or (opener == "template" and not closed):
        return None
    return answer if answer.strip() else None
