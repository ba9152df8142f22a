"""Seeds for whatever is drawn at random in many places at once: by what is drawn, not by the order in which it is."""

import hashlib

OPENAI, SGLANG = SEED_KEYS = "seed", "sampling_seed"


def seed_of(*names: object) -> int:
    """A seed in [0, 2^31) for what these names tell apart, the same in every process and run."""
    digest = hashlib.sha256("/".join(map(str, names)).encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def seed_key(engine: str) -> str:
    """The name by which an inference engine takes the seed of one request: SGLang's own, else OpenAI's."""
    return SGLANG if engine == "sglang" else OPENAI
