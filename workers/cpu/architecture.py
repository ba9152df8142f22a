"""Which parts of a model the fast head and the packed attention do not compute.

They would train on wrong log-probabilities without an error, so such models are refused.
"""

from collections.abc import Iterator

from transformers import PreTrainedModel

# Keys of a model's configuration that change logits, and 1 or None where they do not.
LOGITS = ("final_logit_softcapping", "logits_soft_cap", "logits_scaling", "logit_scale", "lm_head_multiplier")
ATTENTION = ("attn_logit_softcapping",)


def beyond_fast_head(model: PreTrainedModel) -> list[str]:
    """What workers.cpu.head lacks for this model, which may be without weights (on torch's device meta)."""
    head = getattr(model, "lm_head", None)
    if head is None or not hasattr(model, "model"):
        return ["no lm_head on a body named model"]
    return [*_set(model, LOGITS), *(["a bias of lm_head"] if getattr(head, "bias", None) is not None else [])]


def beyond_packed_attention(model: PreTrainedModel) -> list[str]:
    """What workers.cpu.attention lacks for this model."""
    sinks = any(name.endswith(".sinks") for name, _ in model.named_parameters())
    return [*_set(model, ATTENTION), *(["attention sinks"] if sinks else [])]


def _set(model: PreTrainedModel, keys: tuple[str, ...]) -> Iterator[str]:
    config = model.config.get_text_config()
    values = ((key, getattr(config, key, None)) for key in keys)
    return (f"{key}={value}" for key, value in values if value not in (None, 1))
