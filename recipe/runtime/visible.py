"""What models and users wrote, with its hidden characters shown: safe on a terminal, escaped on a page."""

import re

from rich.console import Console

# Control characters except tab and newline, marks of the reading direction, joiners of no width, halves of a surrogate.
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
_PICTURES = 0x2400
"""First of Unicode's pictures of control characters, in the order of the characters."""


def visible(text: str) -> str:
    """The text with its hidden characters shown: ``␛`` for escape, ``⟨U+202E⟩`` for a mark of direction."""
    return _HIDDEN.sub(_shown, text.replace("\r\n", "\n"))


def _shown(match: re.Match[str]) -> str:
    code = ord(match.group())
    return chr(_PICTURES + code) if code < 0x20 else f"⟨U+{code:04X}⟩"


def say(console: Console, text: str) -> None:
    """Print text with parts by models and users: as it is, in lines as long as they are."""
    console.print(visible(text), markup=False, highlight=False, soft_wrap=True)
