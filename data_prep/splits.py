"""To which split a text belongs: by its hash, whatever the seed, so that no two splits ever share a text."""

import hashlib
from collections.abc import Mapping


def split_by_hash(text: str, shares: Mapping[str, int]) -> str:
    """One of the names in `shares`, which are percentages that add up to 100."""
    bucket = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % 100
    for name, share in shares.items():
        bucket -= share
        if bucket < 0:
            return name
    raise AssertionError("the shares add up to 100")
