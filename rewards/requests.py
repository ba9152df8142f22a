"""What requests ask of an engine: random draws from per-request seeds, and an answer's tokens, once.

Seeds, of any concurrent code, are derived from what is drawn, not from the order of the draws. verl reads tokens; vLLM
would also make their text and partial answers.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

SYNCHRONOUS = ("skillcredit", "sync")
"""Modes of a trainer that interrupts no answer: ours, verl's."""

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


def tokens_once(sampling_params: Mapping[str, Any], engine: str, trainer_mode: str) -> dict[str, Any]:
    """Sampling parameters that ask vLLM for an answer's tokens without their text, when the last one has come.

    It would decode each token and its log-probability, and make an output of all tokens so far after each one. Stop
    strings are looked for in the text. An asynchronous trainer needs the first output, too: verl waits for it, up to a
    minute, before it interrupts an answer.
    """
    asked = dict(sampling_params)
    if engine != "vllm":
        return asked
    if not asked.get("stop"):
        asked["detokenize"] = False
    if trainer_mode in SYNCHRONOUS:
        from vllm.sampling_params import RequestOutputKind

        asked["output_kind"] = RequestOutputKind.FINAL_ONLY
    return asked
