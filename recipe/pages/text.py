"""Text of models and users on a page: shortened, and carried to scripts as data.

A model writes what it likes: tags, ``</script>``, terminal codes, characters that reverse the reading direction.
"""

import json
import math
from typing import Any

from markupsafe import Markup


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
