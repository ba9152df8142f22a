"""What verl reads of an engine's answer: its tokens, once. vLLM would also make their text and partial answers."""

from collections.abc import Mapping
from typing import Any

SYNCHRONOUS = ("skillcredit", "sync")
"""Modes of a trainer that interrupts no answer: ours, verl's."""


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
