"""Finds the answer in a response: the last fenced block, or the whole text where there is no fence."""

import re

MAX_ANSWER_CHARACTERS = 65_536

_FENCE = re.compile(r"```[ \t]*([\w+-]*)[ \t]*\r?\n(.*?)(?:\r?\n)?```", re.DOTALL)


def extract_block(response: str, language: str | None = None) -> str | None:
    """The code in a response, or None when there is none.

    With fences, the last block in `language` (or in no named language) counts, as models often draft before they
    answer; a response whose blocks are all in other languages holds no answer. Without a fence the whole text does.
    A response longer than MAX_ANSWER_CHARACTERS is no answer.
    """
    if len(response) > MAX_ANSWER_CHARACTERS:
        return None
    blocks = _FENCE.findall(response)
    if blocks:
        wanted = [body for tag, body in blocks if not tag or language is None or tag.lower() == language]
        answer = wanted[-1] if wanted else ""
    else:
        answer = response
    return answer.strip("\r\n") if answer.strip() else None


def extract_last_line(response: str) -> str | None:
    """The last line of a response that is not empty, stripped; None when there is none."""
    if len(response) > MAX_ANSWER_CHARACTERS:
        return None
    lines = [line.strip() for line in response.splitlines() if line.strip()]
    return lines[-1] if lines else None
