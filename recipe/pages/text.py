"""Text of models and users on a page: made visible, and carried to scripts as data.

A model writes what it likes: tags, ``</script>``, terminal codes, characters that reverse the reading direction.
"""

import json
import math
import re
from typing import Any

from markupsafe import Markup

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


def shortened(text: str, limit: int) -> str:
    """The first `limit` characters, and how many follow them."""
    return text if len(text) <= limit else f"{text[:limit]}\n[{len(text) - limit:,} more characters]"


def island(data: Any) -> Markup:
    """JSON for ``<script type="application/json">`` that cannot end the element; NaN and infinity are null."""
    text = json.dumps(_finite(data), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)


def _finite(data: Any) -> Any:
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    return [_finite(value) for value in data] if isinstance(data, list | tuple) else data
