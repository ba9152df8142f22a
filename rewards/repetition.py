"""Finds text that repeats itself: a piece of 20 or more characters that stands 5 or more times in a row.

A response that does so is a string with a run of some minimal period q (a shorter piece counts too: "ab" fifty times is
"ab" * 10 five times). Periods are looked for by scale: those in [m, 2m) leave, in every run of five periods, a block of
2m characters that begins at a multiple of 2m, lies inside the run, and stands there again first after exactly q
characters, because a block as long as the period can fall into step with the run at its multiples only. So one search
in a window of 4m characters names the only candidate, and the run around it is measured. Each scale reads the text
twice, inside `str.find`; Python itself takes n/20 steps in all.
"""

from functools import lru_cache

SHORTEST = 20
TIMES = 5


# The guardrails and the reward's shape ask about the same response.
@lru_cache(maxsize=8)
def repeats_itself(text: str) -> bool:
    """Whether some substring of SHORTEST or more characters stands TIMES or more times in a row, anywhere."""
    scale = SHORTEST
    while TIMES * scale <= len(text):
        if any(_is_in_repeat(text, start, scale) for start in range(0, len(text) - 2 * scale, 2 * scale)):
            return True
        scale *= 2
    return False


def _is_in_repeat(text: str, start: int, scale: int) -> bool:
    """Whether the block at `start` lies in a repeat of a piece shorter than 2 * scale."""
    again = text.find(text[start : start + 2 * scale], start + 1, start + 4 * scale)
    if again < 0:
        return False
    period = again - start
    piece = period * -(-SHORTEST // period)
    needed = TIMES * piece - period
    # The first block of a run begins less than 2 * scale after it, so most of the run must follow.
    least = needed - 2 * scale
    if text[start : start + least] != text[again : again + least]:
        return False
    before = _common_end(text, start, again, needed)
    return before + _common_beginning(text, start, again, needed) >= needed


def _common_beginning(text: str, left: int, right: int, limit: int) -> int:
    """How many characters from `left` on equal those from `right` on, up to `limit`, by bisection."""
    known, unknown = 0, min(limit, len(text) - right) + 1
    while unknown - known > 1:
        middle = (known + unknown) // 2
        if text[left + known : left + middle] == text[right + known : right + middle]:
            known = middle
        else:
            unknown = middle
    return known


def _common_end(text: str, left: int, right: int, limit: int) -> int:
    """How many characters before `left` equal those before `right`, up to `limit`, by bisection."""
    known, unknown = 0, min(limit, left) + 1
    while unknown - known > 1:
        middle = (known + unknown) // 2
        if text[left - middle : left - known] == text[right - middle : right - known]:
            known = middle
        else:
            unknown = middle
    return known
