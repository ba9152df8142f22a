"""Which parts of a model the fast head and the packed attention do not compute.

They would train on wrong log-probabilities without an error, so such models are refused.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel

# Keys of a model's configuration that change logits, and 1 or None where they do not.
LOGITS = ("final_logit_softcapping", "logits_soft_cap", "logits_scaling", "logit_scale", "lm_head_multiplier")
ATTENTION = ("attn_logit_softcapping",)
LAYERS = {"full_attention", "sliding_attention"}
_PROBE = "packed_probe"


def beyond_fast_head(model: PreTrainedModel) -> list[str]:
    """What workers.cpu.head lacks for this model, which may be without weights (on torch's device meta)."""
    head = getattr(model, "lm_head", None)
    if head is None or not hasattr(model, "model"):
        return ["no lm_head on a body named model"]
    return [*_set(model, LOGITS), *(["a bias of lm_head"] if getattr(head, "bias", None) is not None else [])]


def beyond_packed_attention(model: PreTrainedModel) -> list[str]:
    """What workers.cpu.attention lacks for this model, which may be without weights (on torch's device meta)."""
    sinks = any(name.endswith(".sinks") for name, _ in model.named_parameters())
    found = [*_set(model, ATTENTION), *(["attention sinks"] if sinks else []), *_other_mixing(model)]
    return found or _layers_beyond_reach(model)


def _other_mixing(model: PreTrainedModel) -> Iterator[str]:
    """What mixes tokens outside attention, across the sequences that one row holds."""
    others = set(getattr(model.config.get_text_config(), "layer_types", None) or ()) - LAYERS
    yield from (f"layers of type {name}" for name in sorted(others))
    if any(isinstance(module, nn.Conv1d) for module in model.modules()):
        yield "convolutions over tokens"


def _layers_beyond_reach(model: PreTrainedModel) -> list[str]:
    """Layers that do not call the attention, or call it without the positions or the shared prefixes."""
    config = model.config.get_text_config()
    reached: list[bool] = []

    def probe(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **given: Any
    ) -> tuple[Tensor, None]:
        reached.append(given.get("position_ids") is not None and given.get("prefixes") is not None)
        heads, tokens = query.shape[1:3]
        return value.new_zeros(1, tokens, heads, value.shape[-1]), None

    AttentionInterface.register(_PROBE, probe)
    before = config._attn_implementation
    model.set_attn_implementation(_PROBE)
    tokens = torch.zeros(1, 2, dtype=torch.long, device=model.device)
    try:
        with torch.no_grad():
            model.base_model(tokens, position_ids=tokens.cumsum(1), prefixes=object(), use_cache=False)
    except Exception:  # routing of experts, for instance, needs values, which meta tensors lack
        return []
    finally:
        model.set_attn_implementation(before)
    layers = config.num_hidden_layers
    return (
        []
        if reached == [True] * layers
        else [f"{layers - sum(reached)} of {layers} layers, which attend in another way"]
    )


def _set(model: PreTrainedModel, keys: tuple[str, ...]) -> Iterator[str]:
    config = model.config.get_text_config()
    values = ((key, getattr(config, key, None)) for key in keys)
    return (f"{key}={value}" for key, value in values if value not in (None, 1))
