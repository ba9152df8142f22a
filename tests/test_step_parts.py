"""The benchmark of a step's parts, with operations worked out by hand."""

import pytest
from omegaconf import OmegaConf

from benchmarks import step_parts
from recipe.capacity.model_shape import ModelShape
from workers.cpu.verl_platform import CpuDeviceModule

SHAPE = ModelShape(
    hidden_size=4, intermediate_size=8, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1, head_dim=2,
    vocab_size=10, max_position_embeddings=64, tie_word_embeddings=True,
)  # fmt: skip
# q 4x4, k and v 4x2, o 4x4, gate, up and down 4x8: 16 + 8 + 8 + 16 + 3 * 32 = 144 a layer.


def test_a_forward_pass_has_two_operations_per_weight_and_token():
    assert step_parts.forward_operations(SHAPE, tokens=5, outputs=2) == 2 * (3 * 144 * 5 + 10 * 4 * 2)


def test_memory_is_the_largest_of_all_steps():
    rows = [
        {"actor/perf/max_memory_allocated_gb": 5.5, "actor/perf/cpu_memory_used_gb": 15.0},
        {"actor/perf/max_memory_allocated_gb": 5.0, "actor/perf/cpu_memory_used_gb": 15.5},
    ]
    assert step_parts.memory(rows) == "  memory trainer 5.5 GiB, machine 15.5 GiB"


@pytest.mark.parametrize(("rank", "passes"), [(16, 2), (0, 3)])
def test_operations_of_a_step(rank: int, passes: int):
    config = OmegaConf.create(
        {
            "data": {"train_batch_size": 2},
            "actor_rollout_ref": {"model": {"path": "m", "lora_rank": rank}, "rollout": {"n": 4}},
        }
    )
    work = step_parts.operations(config, SHAPE, {"response_length/mean": 10.0, "prompt_length/mean": 5.0})
    forward = 2 * (3 * 144 * 90 + 10 * 4 * 80)  # 8 answers, and 2 prompts that engine and trainer compute once
    assert work["generation and verification"] == (80, forward)
    assert work["old log-probabilities"] == (90, forward)
    assert work["update"] == (90, passes * forward)


@pytest.mark.slow
def test_the_trainers_memory_is_its_peak():
    device = CpuDeviceModule("cpu")
    block = b"x" * (300 << 20)
    held = device.memory_allocated()
    del block
    assert device.memory_allocated() < held - (200 << 20)
    assert device.max_memory_allocated() > held - (16 << 20)  # the kernel's counters lag by some pages
