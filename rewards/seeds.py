"""Seeds for whatever is drawn at random in many places at once: by what is drawn, not by the order in which it is."""

import hashlib


def seed_of(*names: object) -> int:
    """A seed in [0, 2^31) for what these names tell apart, the same in every process and run."""
    digest = hashlib.sha256("/".join(map(str, names)).encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1
