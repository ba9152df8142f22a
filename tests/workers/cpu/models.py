"""Tiny models with random weights."""

from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

VOCABULARY = 97
KINDS: dict[str, tuple[Any, Any]] = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
}


def tiny_model(kind: str = "llama", dtype: torch.dtype = torch.float32, **settings: Any) -> PreTrainedModel:
    """Two layers of width 64 with four heads, two of keys; the same weights at each call."""
    torch.manual_seed(0)
    config, model = KINDS[kind]
    shape = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": VOCABULARY,
        "initializer_range": 0.2,
    }
    built: PreTrainedModel = model(config(**shape | settings)).eval()
    nn.Module.to(built, dtype)  # transformers' own method has no types
    return built


def saved_model(folder: Path, tokenizer: Path) -> Path:
    """Save a tiny model with untied embeddings and the tokenizer of another folder."""
    words = AutoTokenizer.from_pretrained(tokenizer)
    tiny_model(vocab_size=len(words), eos_token_id=words.eos_token_id).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder
