"""Splits and roles: a text belongs to a split by hash; roles are for training, choosing (dev) or reporting (test)."""

import hashlib
from collections.abc import Mapping
from typing import Literal

Role = Literal["train", "dev", "test"]

# Ids that begin so are for testing only, whatever a file says: published numbers are compared on them.
RESERVED_PREFIXES = ("humaneval/", "codecontests/test/")


def is_reserved(task_id: str) -> bool:
    """Whether a problem of this id, or the one that it was made of, may never be trained on nor chosen by."""
    return task_id.casefold().removeprefix("bugs/").startswith(RESERVED_PREFIXES)


def may_train(task_id: str, role: str | None) -> bool:
    """Whether a row may be in a training file; rows without a role (the micro suite's) are judged by their id."""
    return role in (None, "train") and not is_reserved(task_id)


def split_by_hash(text: str, shares: Mapping[str, int]) -> str:
    """One of the names in `shares`, which are percentages that add up to 100."""
    bucket = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % 100
    for name, share in shares.items():
        bucket -= share
        if bucket < 0:
            return name
    raise AssertionError("the shares add up to 100")
