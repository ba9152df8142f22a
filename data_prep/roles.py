"""What a problem may be used for: to train on, to choose by (dev), or to report once at the end (test)."""

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
