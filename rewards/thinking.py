"""The thinking part of a response, `<think>` ... `</think>`: what asks for it, its form, what follows it."""

from typing import Literal

from rewards.extraction import MAX_ANSWER_CHARACTERS

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
