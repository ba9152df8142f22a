"""Splits and roles: a hash assigns a text to a split; roles are for training, selection (dev) or reporting (test)."""

import hashlib
from collections.abc import Mapping
from typing import Literal, get_args

Role = Literal["train", "dev", "test"]
ROLES: tuple[Role, ...] = get_args(Role)

# Ids with these prefixes are only for testing, whatever role a file gives them: published numbers are compared on them.
RESERVED_PREFIXES = (
    *("humaneval/", "humanevalplus/", "mbppplus/", "codecontests/test/", "apps/test/", "taco/test/"),
    *("spider/validation/", "grapharena/"),
)


def is_reserved(task_id: str) -> bool:
    """Whether a problem of this id, or the one it was derived from, must not be used for training or selection."""
    return task_id.casefold().removeprefix("bugs/").startswith(RESERVED_PREFIXES)


def may_train(task_id: str, role: str | None) -> bool:
    """Whether a row may be in a training file; for rows without a role (the micro suite's) only the id decides."""
    return role in (None, "train") and not is_reserved(task_id)


def split_by_hash(text: str, shares: Mapping[str, int]) -> str:
    """One of the names in `shares`, which are percentages that add up to 100."""
    bucket = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % 100
    for name, share in shares.items():
        bucket -= share
        if bucket < 0:
            return name
    raise AssertionError("the shares add up to 100")
