"""Models whose logits or scores the fast passes would compute wrongly are refused, with what they have."""

from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    CohereConfig,
    Gemma2Config,
    GPTNeoXConfig,
    GptOssConfig,
    GraniteConfig,
    Lfm2Config,
    LlamaConfig,
    MiniMaxConfig,
    PhiConfig,
    PreTrainedModel,
    Qwen3Config,
    StableLmConfig,
)

from workers.cpu.architecture import beyond_fast_head, beyond_packed_attention
from workers.cpu.attention import NAME, register_packed_attention
from workers.cpu.head import require_plain_head, use_fast_head

TINY = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 97, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
TOKENS = torch.arange(3, 9)[None]


def built(config: Any, **options: Any) -> PreTrainedModel:
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config(**TINY | options))
    return model


@pytest.mark.parametrize(
    ("config", "head", "attention"),
    [
        (LlamaConfig, [], []),
        (Qwen3Config, [], []),
        (Gemma2Config, ["final_logit_softcapping=30.0"], ["attn_logit_softcapping=50.0"]),
        (CohereConfig, ["logit_scale=0.0625"], []),
        (GraniteConfig, [], []),
        (PhiConfig, ["a bias of lm_head"], []),
        (GPTNeoXConfig, ["no lm_head on a body named model"], []),
        (StableLmConfig, [], ["2 of 2 layers, which attend in another way"]),
        (MiniMaxConfig, [], ["layers of type linear_attention"]),
    ],
)
def test_what_the_fast_passes_lack_for_an_architecture(config: Any, head: list[str], attention: list[str]):
    model = built(config)
    assert (beyond_fast_head(model), beyond_packed_attention(model)) == (head, attention)


def test_layers_that_mix_tokens_outside_attention_are_found_without_weights():
    with torch.device("meta"):
        mixed = built(Lfm2Config, layer_types=["conv", "full_attention"])
    assert beyond_packed_attention(mixed) == ["layers of type conv", "convolutions over tokens"]
    assert mixed.config._attn_implementation != "packed_probe"


def test_scaled_logits_and_attention_sinks_are_found_without_weights():
    with torch.device("meta"):
        granite, oss = built(GraniteConfig, logits_scaling=8.0), built(GptOssConfig, num_local_experts=2)
    assert beyond_fast_head(granite) == ["logits_scaling=8.0"]
    assert beyond_packed_attention(oss) == ["attention sinks"]


def test_the_engine_refuses_soft_caps_of_logits_and_of_scores():
    register_packed_attention()
    capped = built(Gemma2Config, attn_implementation=NAME)
    with pytest.raises(ValueError, match=r"do not compute final_logit_softcapping=30.0 of Gemma2.*use_fused_kernels="):
        require_plain_head(capped)
    with pytest.raises(ValueError, match=r"packed does not compute a soft cap of scores \(50.0\): set attn_impl"):
        capped(input_ids=TOKENS, position_ids=TOKENS - 3, use_cache=False)


def test_the_engine_refuses_attention_sinks():
    register_packed_attention()
    model = built(GptOssConfig, num_local_experts=2, num_experts_per_tok=1, attn_implementation=NAME)
    with pytest.raises(ValueError, match=r"packed does not compute attention sinks"):
        model(input_ids=TOKENS, position_ids=TOKENS - 3, use_cache=False)


def test_a_gemma2_without_caps_has_the_log_probabilities_of_transformers():
    register_packed_attention()
    plain = {"final_logit_softcapping": None, "attn_logit_softcapping": None}
    theirs, ours = (built(Gemma2Config, **plain, attn_implementation=name) for name in ("eager", NAME))
    ours.load_state_dict(theirs.state_dict())
    expected = theirs(input_ids=TOKENS).logits[0, :-1].log_softmax(dim=1).gather(1, TOKENS[0, 1:, None])[:, 0]
    use_fast_head(ours)
    found = ours(
        input_ids=TOKENS, position_ids=TOKENS - 3, positions=torch.arange(5), shift_labels=TOKENS.roll(-1),
        temperature=1.0, use_cache=False,
    )  # fmt: skip
    torch.testing.assert_close(found.log_probs[0, :5], expected, rtol=1e-5, atol=1e-5)
