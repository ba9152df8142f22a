"""What pages are made with: templates that escape, their scripts, and the policy under which only these scripts run.

And text of models and users: shortened, and carried to scripts as data. A model writes what it likes: tags,
``</script>``, terminal codes, characters that reverse the reading direction.
"""

import base64
import hashlib
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from recipe.runtime.visible import visible


def environment() -> Environment:
    """Jinja's environment of the templates: it escapes every text, and shows its hidden characters."""
    return Environment(
        loader=PackageLoader("recipe.pages"), undefined=StrictUndefined, autoescape=True, trim_blocks=True,
        lstrip_blocks=True, finalize=_visible,
    )  # fmt: skip


def policy(scripts: Sequence[str], *more: str) -> str:
    """The content security policy: these scripts, styles, pictures within the page, and nothing else but `more`."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    fixed = f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; font-src data:"
    return "; ".join([fixed, *more])


def source(name: str) -> str:
    """The text of a style or script beside the templates."""
    return (Path(__file__).parent / "templates" / name).read_text(encoding="utf-8")


def _visible(value: Any) -> Any:
    """A value as the template prints it."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


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
