"""Shape of a decoder-only transformer, which determines memory and parallelism.

Covered: dense models of the Qwen2, Qwen3, Llama and Mistral families. Not covered: mixture of experts, vision towers.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class UnknownShapeError(ValueError):
    """The model's architecture cannot be known without a download."""


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a dense decoder with grouped-query attention and a gated MLP, as a Hugging Face config names them."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    max_position_embeddings: int
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    qk_norm: bool = False

    @property
    def query_size(self) -> int:
        return self.num_attention_heads * self.head_dim

    @property
    def key_value_size(self) -> int:
        return self.num_key_value_heads * self.head_dim

    def linears(self) -> dict[str, tuple[int, int]]:
        """(inputs, outputs) of each linear layer of a block."""
        hidden, query, key_value = self.hidden_size, self.query_size, self.key_value_size
        return {
            "q_proj": (hidden, query),
            "k_proj": (hidden, key_value),
            "v_proj": (hidden, key_value),
            "o_proj": (query, hidden),
            "gate_proj": (hidden, self.intermediate_size),
            "up_proj": (hidden, self.intermediate_size),
            "down_proj": (self.intermediate_size, hidden),
        }

    @property
    def layer_parameters(self) -> int:
        """Parameters of one block: linear layers, biases of q, k and v, and the norms."""
        weights = sum(inputs * outputs for inputs, outputs in self.linears().values())
        biases = self.query_size + 2 * self.key_value_size if self.attention_bias else 0
        norms = 2 * self.hidden_size + (2 * self.head_dim if self.qk_norm else 0)
        return weights + biases + norms

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the input embedding; an untied output layer has as many."""
        return self.vocab_size * self.hidden_size

    @property
    def parameters(self) -> int:
        """Total number of parameters; agrees with the model cards of the preset models."""
        embeddings = self.embedding_parameters * (1 if self.tie_word_embeddings else 2)
        return self.num_hidden_layers * self.layer_parameters + embeddings + self.hidden_size

    @property
    def tensors(self) -> list[tuple[int, int]]:
        """(parameters, count) of each kind of weight tensor; they add up to `parameters`."""
        found = [(inputs * outputs, self.num_hidden_layers) for inputs, outputs in self.linears().values()]
        if self.attention_bias:
            found += [(size, self.num_hidden_layers) for size in (self.query_size, *2 * (self.key_value_size,))]
        if self.qk_norm:
            found.append((self.head_dim, 2 * self.num_hidden_layers))
        embeddings = (self.embedding_parameters, 1 if self.tie_word_embeddings else 2)
        return [*found, (self.hidden_size, 2 * self.num_hidden_layers + 1), embeddings]

    def lora_parameters(self, rank: int, target_modules: Any = "all-linear") -> int:
        """Parameters of LoRA adapters: rank x (inputs + outputs) for each adapted layer (Hu et al. 2021, section 4.1).

        Args:
            target_modules: ``all-linear`` (every linear layer of the blocks), one name, or a list of names.
        """
        names = [target_modules] if isinstance(target_modules, str) else list(target_modules)
        adapted = [size for name, size in self.linears().items() if names == ["all-linear"] or name in names]
        return self.num_hidden_layers * rank * sum(inputs + outputs for inputs, outputs in adapted)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "ModelShape":
        """The shape that a Hugging Face ``config.json`` describes.

        Raises:
            UnknownShapeError: a size is missing, or the model is not a dense decoder.
        """
        kind = config.get("model_type", "unknown")
        # num_experts, num_local_experts, n_routed_experts, moe_num_experts
        if any("experts" in key and value for key, value in config.items()):
            raise UnknownShapeError(
                f"model_type {kind} is a mixture of experts: no plan covers it, no run here trained one"
            )
        if "vision_config" in config:
            raise UnknownShapeError(f"model_type {kind} reads images, which the memory plan does not cover")
        try:
            heads = config["num_attention_heads"]
            return cls(
                hidden_size=config["hidden_size"],
                intermediate_size=config["intermediate_size"],
                num_hidden_layers=config["num_hidden_layers"],
                num_attention_heads=heads,
                num_key_value_heads=config.get("num_key_value_heads") or heads,
                head_dim=config.get("head_dim") or config["hidden_size"] // heads,
                vocab_size=config["vocab_size"],
                max_position_embeddings=config["max_position_embeddings"],
                tie_word_embeddings=config.get("tie_word_embeddings", False),
                attention_bias=config.get("attention_bias", kind == "qwen2"),
                qk_norm=kind == "qwen3",
            )
        except KeyError as error:
            raise UnknownShapeError(f"config.json of model_type {kind} has no {error}") from None


_QWEN2_5_7B = ModelShape(3584, 18944, 28, 28, 4, 128, 152064, 32768, attention_bias=True)

# The presets' models, so that a plan needs no download. Sizes from the config.json of each model on the hub.
KNOWN_SHAPES = {
    "Qwen/Qwen2.5-3B-Instruct": ModelShape(
        2048, 11008, 36, 16, 2, 128, 151936, 32768, tie_word_embeddings=True, attention_bias=True
    ),
    "Qwen/Qwen2.5-7B-Instruct": _QWEN2_5_7B,
    "Qwen/Qwen2.5-Coder-7B-Instruct": _QWEN2_5_7B,
    "Qwen/Qwen2.5-14B-Instruct": ModelShape(5120, 13824, 48, 40, 8, 128, 152064, 32768, attention_bias=True),
    "Qwen/Qwen2.5-32B-Instruct": ModelShape(5120, 27648, 64, 40, 8, 128, 152064, 32768, attention_bias=True),
    "Qwen/Qwen3-4B": ModelShape(2560, 9728, 36, 32, 8, 128, 151936, 40960, tie_word_embeddings=True, qk_norm=True),
    "Qwen/Qwen3-8B": ModelShape(4096, 12288, 36, 32, 8, 128, 151936, 40960, qk_norm=True),
}


def shape_of(path: str) -> ModelShape:
    """The shape of a model folder (its config.json) or of a preset's hub id; never downloads.

    Raises:
        UnknownShapeError: the path is neither; the message names the fix.
    """
    config = Path(path).expanduser() / "config.json"
    if config.is_file():
        return ModelShape.from_config(json.loads(config.read_text()))
    if path in KNOWN_SHAPES:
        return KNOWN_SHAPES[path]
    raise UnknownShapeError(
        f"actor_rollout_ref.model.path={path}: no config.json there, and not one of {', '.join(sorted(KNOWN_SHAPES))}. "
        "Download the model and name its folder."
    )
