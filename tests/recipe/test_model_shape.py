"""Parameter counts match the model cards; adapters and folders are read as in PEFT and transformers."""

import json
from pathlib import Path

import pytest

from recipe.capacity.model_shape import KNOWN_SHAPES, ModelShape, UnknownShapeError, shape_of


@pytest.mark.parametrize(
    ("path", "parameters"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", 7_615_616_512),
        ("Qwen/Qwen2.5-Coder-7B-Instruct", 7_615_616_512),
        ("Qwen/Qwen2.5-14B-Instruct", 14_770_033_664),
        ("Qwen/Qwen2.5-32B-Instruct", 32_763_876_352),
        ("Qwen/Qwen3-4B", 4_022_468_096),
        ("Qwen/Qwen2.5-3B-Instruct", 3_085_938_688),
        ("Qwen/Qwen3-8B", 8_190_735_360),
    ],
)
def test_the_presets_models_have_the_parameters_that_their_cards_state(path: str, parameters: int) -> None:
    assert shape_of(path).parameters == parameters


def test_rank_32_on_all_linear_layers_of_a_7b_has_81_million_parameters() -> None:
    # A block: q 7168, k 4096, v 4096, o 7168, gate, up and down 22528 each = 90112; x 28 blocks x rank 32.
    assert KNOWN_SHAPES["Qwen/Qwen2.5-7B-Instruct"].lora_parameters(32) == 28 * 32 * 90112 == 80_740_352


def test_target_modules_may_be_a_list_or_one_name() -> None:
    shape = KNOWN_SHAPES["Qwen/Qwen2.5-7B-Instruct"]
    assert shape.lora_parameters(16, ["q_proj", "v_proj"]) == 28 * 16 * (7168 + 4096)
    assert shape.lora_parameters(16, "q_proj") == 28 * 16 * 7168


@pytest.mark.slow
@pytest.mark.parametrize("tied", [False, True])
def test_a_folder_is_read_from_its_config_and_agrees_with_transformers(tmp_path: Path, tied: bool) -> None:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=64,
        max_position_embeddings=128,
        tie_word_embeddings=tied,
    )
    config.save_pretrained(tmp_path)
    shape = shape_of(str(tmp_path))
    assert shape.parameters == sum(parameter.numel() for parameter in Qwen2ForCausalLM(config).parameters())
    assert (shape.head_dim, shape.query_size, shape.key_value_size) == (8, 32, 16)


DENSE = {
    "model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "vocab_size": 64, "max_position_embeddings": 128,
}  # fmt: skip


def test_an_unknown_model_is_refused_with_the_known_ones_named() -> None:
    with pytest.raises(UnknownShapeError, match=r"model\.path=nobody/none.*Qwen/Qwen3-8B.*name its folder"):
        shape_of("nobody/none")


@pytest.mark.parametrize("key", ["num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"])
def test_a_mixture_of_experts_is_refused(tmp_path: Path, key: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(DENSE | {"model_type": "deepseek_v2", key: 64}))
    with pytest.raises(UnknownShapeError, match="mixture of experts"):
        shape_of(str(tmp_path))


def test_a_model_of_images_is_refused() -> None:
    """Qwen2.5-VL's config.json has the sizes of its text model on top, and a tower beside them."""
    assert ModelShape.from_config(DENSE).parameters > 0
    with pytest.raises(UnknownShapeError, match="reads images"):
        ModelShape.from_config(DENSE | {"vision_config": {"depth": 32}})


def test_a_config_without_a_size_is_refused_by_its_name() -> None:
    with pytest.raises(UnknownShapeError, match="hidden_size"):
        ModelShape.from_config({"model_type": "llama", "num_attention_heads": 4})
