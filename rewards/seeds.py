"""Seeds for random draws in concurrent code: derived from what is drawn, not from the order of the draws."""

import hashlib
from collections.abc import Mapping
from typing import Any

OPENAI, SGLANG = SEED_KEYS = "seed", "sampling_seed"


def seed_of(*names: object) -> int:
    """A seed in [0, 2^31) that depends on these names only: the same in every process and run."""
    digest = hashlib.sha256("/".join(map(str, names)).encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def seed_key(engine: str) -> str:
    """The request field in which an inference engine expects a seed: SGLang's own, else OpenAI's."""
    return SGLANG if engine == "sglang" else OPENAI


def reseeded(sampling: Mapping[str, Any], *names: object) -> dict[str, Any]:
    """Sampling parameters whose seed, if there is one, is derived from it and these names."""
    seeds = {key: seed for key in SEED_KEYS if (seed := sampling.get(key)) is not None}
    return dict(sampling) | {key: seed_of(seed, *names) for key, seed in seeds.items()}
