"""Memory plans against bytes worked out by hand, and refusals with their mends."""

import io
import re
from dataclasses import replace
from functools import cache

import pytest
from rich.console import Console

from recipe.training.memory_plan import MemoryPlan, plan_memory, plan_sizes
from recipe.training.memory_sizes import RunSizes, read_sizes
from recipe.training.model_shape import KNOWN_SHAPES, ModelShape
from tests.composing import composed

pytestmark = pytest.mark.slow  # composes a dozen configurations

GIB = 2**30
SEVEN = KNOWN_SHAPES["Qwen/Qwen2.5-7B-Instruct"]
THIRTY_TWO = KNOWN_SHAPES["Qwen/Qwen2.5-32B-Instruct"]
MICRO = ModelShape(128, 512, 4, 4, 2, 32, 512, 512, tie_word_embeddings=True, attention_bias=True)
GRPO = (
    "run.experiment=test",
    "algorithm.adv_estimator=grpo",
    "data.train_batch_size=256",
    "data.max_prompt_length=1024",
    "data.max_response_length=3072",
    "actor_rollout_ref.actor.ppo_mini_batch_size=64",
    "actor_rollout_ref.rollout.n=8",
)


@cache
def sizes_of(*overrides: str) -> RunSizes:
    return read_sizes(composed(*GRPO, *overrides))


def seven(**changes: object) -> RunSizes:
    return replace(sizes_of("platform=gpu_1x8", "model_preset=qwen2_5_7b", "adaptation=lora"), **changes)  # type: ignore[arg-type]


def thirty_two_full(**changes: object) -> RunSizes:
    return replace(sizes_of("platform=gpu_1x8", "model_preset=qwen2_5_32b", "adaptation=full"), **changes)  # type: ignore[arg-type]


def text(plan: MemoryPlan) -> str:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(plan.render())
    return console.export_text()


def test_7b_with_lora_on_eight_gpus_byte_for_byte() -> None:
    plan = plan_sizes(seven(), SEVEN, 80)
    assert plan.refusals == []
    # fp32, over 8 ranks: 7,615,616,512 frozen and 80,740,352 trained parameters.
    assert plan.layout.training["weights"] == (7_615_616_512 + 80_740_352) * 4 // 8 == 3_848_178_432
    assert plan.layout.training["gradients"] == 80_740_352 * 4 // 8 == 40_370_176
    assert plan.layout.training["optimiser"] == 80_740_352 * 2 * 4 // 8 == 80_740_352
    # bf16: two blocks of 233,057,792 and the output layer of 152,064 x 3,584.
    assert plan.layout.training["gathered layers"] == (2 * 233_057_792 + 544_997_376) * 2 == 2_022_225_920
    # 16,384 tokens in bf16: 28 block inputs, one whole block (9 H + 3 Q + 3 K + 4 I), three MLP gradients.
    assert plan.layout.training["activations"] == 16_384 * 2 * (28 * 3_584 + 120_320 + 3 * 18_944) == 9_093_251_072
    # The log-probability pass: logits, softmax and product in bf16.
    assert plan.layout.training["logits"] == 16_384 * 152_064 * 2 * 3 == 14_948_499_456
    # vLLM in bf16 over two GPUs.
    assert plan.layout.rollout["vLLM weights"] == 7_696_356_864
    assert sum(plan.layout.rollout[name] for name in ("vLLM weights", "vLLM workspace", "KV cache")) == 48 * GIB
    assert plan.layout.rollout_bytes == 48 * GIB + 3 * GIB + 3_848_178_432 + 80_740_352


def test_the_cache_of_7b_serves_as_many_sequences_as_its_bytes_allow() -> None:
    plan = plan_sizes(seven(), SEVEN, 80)
    # 2 (key, value) x 28 blocks x 2 heads x 128 x 2 bytes = 28,672 a token and GPU; 4,096 tokens a sequence.
    assert plan.layout.cache // (28_672 * 4_096) > 256
    assert plan.concurrent_sequences == 256  # max_num_seqs
    many = plan_sizes(seven(max_num_seqs=1000), SEVEN, 80)
    assert many.concurrent_sequences == many.layout.cache // (28_672 * 4_096) == 348


def test_batches_of_7b() -> None:
    sizes = seven()
    # 64 prompts x 8 answers over 8 ranks; 64 samples x 4,096 tokens in micro-batches of 16,384.
    assert (sizes.samples_per_rank, sizes.micro_batches, sizes.replicas) == (64, 16, 4)
    assert replace(sizes, sequence_parallel=2).micro_batches == 16
    assert replace(sizes, micro_batch=4, dynamic=False).micro_batches == 16


def test_full_fine_tuning_has_sixteen_bytes_a_parameter() -> None:
    plan = plan_sizes(thirty_two_full(), THIRTY_TWO, 80)
    state = sum(plan.layout.training[name] for name in ("weights", "gradients", "optimiser"))
    assert state == 16 * 32_763_876_352 // 8 == 65_527_752_704


def test_32b_in_full_without_offload_on_one_node_is_refused_in_both_phases() -> None:
    sizes = thirty_two_full()
    kept = replace(sizes, actor=replace(sizes.actor, param_offload=False, optimizer_offload=False))
    training, generating = plan_sizes(kept, THIRTY_TWO, 80).refusals
    assert "training needs 87.5 of 80.0 GiB (actor_rollout_ref.actor)" in training
    assert "adaptation=lora" in training
    assert "trainer.nnodes=2" in training
    assert "offload_policy=true" in training
    # 45.8 GiB of weights and moments, 40 for vLLM, 3 in reserve.
    assert "generating needs 88.8 of 80.0 GiB" in generating
    assert "param_offload=true" in generating
    assert "gpu_memory_utilization=0.39" in generating


def test_every_change_that_a_refusal_proposes_does_fit() -> None:
    sizes = thirty_two_full()
    assert plan_sizes(replace(sizes, nodes=2), THIRTY_TWO, 80).refusals == []
    assert plan_sizes(replace(sizes, actor=replace(sizes.actor, offload_policy=True)), THIRTY_TWO, 80).refusals == []
    lora = replace(sizes.actor, lora_rank=32, target_modules="all-linear")
    assert plan_sizes(replace(sizes, actor=lora), THIRTY_TWO, 80).refusals == []


def test_offload_moves_state_to_the_host_and_frees_the_gpu_while_generating() -> None:
    sizes = seven()
    offloaded = replace(sizes, actor=replace(sizes.actor, param_offload=True, optimizer_offload=True))
    plan = plan_sizes(offloaded, SEVEN, 80)
    assert plan.layout.rollout["weights"] == plan.layout.rollout["optimiser"] == 0
    assert plan.layout.training["weights"] == 3_848_178_432
    # A node's 8 ranks: weights and moments, and vLLM's sleeping base weights.
    assert plan.layout.host == 8 * (3_848_178_432 + 80_740_352 + 7_696_356_864)


def test_a_reference_model_waits_on_the_host_and_is_not_there_with_lora() -> None:
    full = sizes_of(
        "platform=gpu_1x8", "model_preset=qwen2_5_7b", "adaptation=full", "actor_rollout_ref.actor.use_kl_loss=true"
    )
    assert full.reference_bytes == 2
    plain = replace(full, reference_bytes=0)
    difference = plan_sizes(full, SEVEN, 80).layout.host - plan_sizes(plain, SEVEN, 80).layout.host
    assert difference == 7_615_616_512 * 2
    assert sizes_of("platform=gpu_1x8", "actor_rollout_ref.actor.use_kl_loss=true").reference_bytes == 0


def test_ppo_counts_the_critic_too() -> None:
    ppo = sizes_of("platform=gpu_1x8", "model_preset=qwen2_5_7b", "algorithm.adv_estimator=gae")
    # All of its weights and moments in fp32, over 8 ranks: nothing of it is offloaded or adapted.
    assert plan_sizes(ppo, SEVEN, 80).layout.training["critic"] == 7_615_616_512 * 12 // 8


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ({"tensor_parallel": 8}, "tensor_model_parallel_size=8 does not split the model's 28 heads.*Valid: 1, 2, 4"),
        ({"tensor_parallel": 3}, "tensor_model_parallel_size=3 does not divide the 8 GPUs. Valid: 1, 2, 4"),
        ({"mini_batch_prompts": 100}, "train_batch_size=256 is no multiple of .*=100.*Valid .*: 1, 2, 4, 8"),
        ({"mini_batch_prompts": 1, "answers": 5}, "ppo_mini_batch_size=1 x rollout.n=5 .* over 8 data-parallel ranks"),
        ({"update_tokens": 2048}, "ppo_max_token_len_per_gpu=2048 is less than one full sequence of 4096 tokens"),
        ({"sequence_parallel": 8}, "ulysses_sequence_parallel_size=8 must divide 8 GPUs and 28 heads. Valid: 1, 2, 4"),
        ({"fsdp_size": 3}, "fsdp_size=3 does not divide the 8 GPUs"),
        ({"max_model_len": 2048}, "= 4096 is more than actor_rollout_ref.rollout.max_model_len=2048"),
        ({"dynamic": False, "micro_batch": 5, "log_prob_micro_batch": 64}, "=5 does not divide a rank's 64 samples"),
        ({"dynamic": False, "micro_batch": 4}, "log_prob_micro_batch_size_per_gpu is not set"),
    ],
)
def test_what_does_not_divide_is_refused_with_what_would(change: dict, refusal: str) -> None:
    found = plan_sizes(seven(**change), SEVEN, 80).refusals
    assert re.search(refusal, "\n".join(found)), found


def test_a_cache_that_cannot_hold_the_longest_sequence_is_refused() -> None:
    (refusal,) = plan_sizes(seven(rollout_share=0.12), SEVEN, 80).refusals
    assert "vLLM would not start: 0." in refusal
    assert "one sequence of 32768 tokens takes 0.9" in refusal
    assert "max_model_len=4096" in refusal


def test_the_micro_model_fits_a_24_gib_machine_and_not_a_4_gib_one() -> None:
    sizes = read_sizes(composed("experiment=quickstart"))
    plan = plan_sizes(sizes, MICRO, 24)
    assert plan.refusals == []
    assert plan.layout.cache == 1 * GIB  # VLLM_CPU_KVCACHE_SPACE
    assert 6 * GIB < plan.layout.training_bytes < 8 * GIB
    assert any("training needs" in refusal for refusal in plan_sizes(sizes, MICRO, 4).refusals)


def test_ranks_of_the_cpu_platform_share_the_machine() -> None:
    one = plan_sizes(read_sizes(composed("experiment=quickstart")), MICRO, 24).layout
    two = plan_sizes(read_sizes(composed("experiment=quickstart", "trainer.n_gpus_per_node=2")), MICRO, 24).layout
    assert two.training["KV cache"] == 2 * one.training["KV cache"]
    assert two.training["logits"] == 2 * one.training["logits"]


def test_a_plan_is_read_from_a_composed_configuration_and_renders() -> None:
    config = composed(*GRPO, "platform=gpu_1x8", "model_preset=qwen2_5_7b")
    shown = text(plan_memory(config, SEVEN, 80))
    assert "GiB on each of 8 GPUs, of 80" in shown
    assert "256 prompts x 8 answers of up to 4096 tokens" in shown
    assert "64 samples in 16 micro-batches, at most 16384 tokens each" in shown
