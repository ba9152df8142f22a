"""Memory plans against bytes computed by hand, and refusals with their fixes."""

import io
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from typing import Any
from weakref import WeakKeyDictionary

import pytest
import torch
from peft import LoraConfig, get_peft_model
from rich.console import Console
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from verl.utils import torch_functional as verl_F

from recipe.capacity import memory_parts
from recipe.capacity.memory_parts import pinned
from recipe.capacity.memory_plan import MemoryPlan, plan_memory, plan_sizes
from recipe.capacity.model_shape import KNOWN_SHAPES, ModelShape
from recipe.capacity.sizes import RunSizes, read_sizes
from tests.composing import composed
from tests.workers.cpu.models import tiny_model
from workers.constraints import GradientAverages, no_gradients
from workers.cpu.adapter import use_lora_products
from workers.cpu.attention import NAME, register_packed_attention
from workers.cpu.head import use_fast_head
from workers.displacement import snapshot
from workers.penalties import Penalty
from workers.safe_update import SafeUpdate
from workers.safety.controls import random_signs
from workers.safety.metric import adam_inverse_metric
from workers.safety.verification import Verification
from workers.update_request import Constraint, Protection

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
    sizes = sizes_of("platform=gpu_1x8", "model_preset=qwen2_5_7b", "adaptation=lora")
    engine = {name: changes.pop(name) for name in [*changes] if hasattr(sizes.engine, name)}
    return replace(sizes, engine=replace(sizes.engine, **engine), **changes)  # type: ignore[arg-type]


def seven_full(**changes: object) -> RunSizes:
    return replace(sizes_of("platform=gpu_1x8", "model_preset=qwen2_5_7b", "adaptation=full"), **changes)  # type: ignore[arg-type]


def thirty_two_full(**changes: object) -> RunSizes:
    return replace(sizes_of("platform=gpu_1x8", "model_preset=qwen2_5_32b", "adaptation=full"), **changes)  # type: ignore[arg-type]


def text(plan: MemoryPlan) -> str:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(plan.render())
    return console.export_text()


def bytes_of(tensors: Iterable[torch.Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)


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
    # 2 (key, value) x 28 blocks x 2 heads x 128 x 2 bytes = 28,672 per token and GPU; 4,096 tokens per sequence.
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
    # A node's 8 ranks: weights and moments, and vLLM's sleeping base weights, in pinned blocks.
    kept = 3_848_178_432 + 80_740_352
    assert plan.layout.host == 8 * (pinned(kept, SEVEN, 4, 8) + pinned(7_696_356_864, SEVEN, 2, 2))
    assert 1.90 < plan.layout.host / (8 * (kept + 7_696_356_864)) < 1.91


def test_a_pinned_block_is_a_power_of_two() -> None:
    """One layer of 3 x 3 and a vocabulary of 5, in fp32 on one rank: 7 matrices of 36 bytes take 64 each, three norms
    of 12 take 16, and two embeddings of 60 take 64.
    """
    tiny = ModelShape(3, 3, 1, 1, 1, 3, 5, 8)
    assert tiny.tensors == [(9, 1)] * 7 + [(3, 3), (15, 2)]
    own, blocks = 7 * 36 + 3 * 12 + 2 * 60, 7 * 64 + 3 * 16 + 2 * 64
    assert tiny.parameters * 4 == own
    assert pinned(own, tiny, 4, 1) == blocks
    assert pinned(10 * own, tiny, 4, 1) == 10 * blocks
    assert pinned(0, tiny, 4, 1) == 0
    even = ModelShape(4, 4, 2, 1, 1, 4, 8, 8)  # nothing to round up
    assert pinned(1000, even, 4, 2) == 1000


def test_tensors_are_all_parameters() -> None:
    for shape in KNOWN_SHAPES.values():
        assert sum(size * count for size, count in shape.tensors) == shape.parameters


# One copy of 7,615,616,512 parameters in fp32, over 8 ranks.
COPY = 7_615_616_512 * 4 // 8


def test_projection_holds_the_start_the_constraints_and_a_step_while_it_trains() -> None:
    off, on = (plan_sizes(seven_full(constraints=count), SEVEN, 80).layout for count in (0, 4))
    assert COPY == 3_807_808_256
    assert on.training["projection"] == 6 * COPY == 22_846_849_536
    assert on.training_bytes - off.training_bytes == 6 * COPY
    assert (on.rollout_bytes, on.host) == (off.rollout_bytes, off.host)


def test_averages_of_constraints_stay_on_the_gpu_while_vllm_generates() -> None:
    plain, averaged = (plan_sizes(seven_full(constraints=2, averages=count), SEVEN, 80).layout for count in (0, 3))
    assert averaged.training["projection"] - plain.training["projection"] == 3 * COPY
    assert averaged.rollout["projection"] == averaged.rollout_bytes - plain.rollout_bytes == 3 * COPY


def test_the_plan_announces_what_averages_and_a_penalty_add_to_each_checkpoint() -> None:
    """Four averages of 7B parameters in fp32 are 122 GB, more than the weights and Adam's moments (91 GB)."""
    row = "averages and penalty in each checkpoint"
    plan = plan_sizes(seven_full(constraints=4, averages=4), SEVEN, 80)
    assert plan.kept_in_checkpoint == 4 * 4 * 7_615_616_512 == 121_849_864_192
    assert plan.facts()[row] == "113.5 GiB"
    assert plan_sizes(seven_full(averages=1, penalty="ewc"), SEVEN, 80).kept_in_checkpoint == 3 * 8 * COPY
    assert row not in plan_sizes(seven_full(constraints=4), SEVEN, 80).facts()


@pytest.mark.parametrize(
    ("changes", "copies"), [({"averages": 4}, 4), ({"penalty": "ewc"}, 2), ({"averages": 4, "penalty": "l2"}, 5)]
)
def test_a_checkpoint_is_written_from_copies_of_averages_and_penalty_on_the_host(
    changes: dict[str, object], copies: int
) -> None:
    guarded, plain = (plan_sizes(seven_full(**more), SEVEN, 80).layout for more in (changes, {}))
    assert guarded.host - plain.host == 8 * copies * COPY


@pytest.mark.parametrize(
    ("kind", "training", "generating"), [("off", 0, 0), ("l2", 1, 1), ("ewc", 3, 2), ("rehearsal", 2, 0)]
)
def test_a_penalty_keeps_its_anchor_and_ewc_the_importance_and_once_a_stage_a_fisher(
    kind: str, training: int, generating: int
) -> None:
    layout, off = (plan_sizes(seven_full(penalty=name), SEVEN, 80).layout for name in (kind, "off"))
    assert layout.training["penalty"] == layout.training_bytes - off.training_bytes == training * COPY
    assert layout.rollout["penalty"] == layout.rollout_bytes - off.rollout_bytes == generating * COPY
    plan = plan_sizes(seven_full(penalty=kind), SEVEN, 80)
    assert plan.kept_in_checkpoint == 8 * generating * COPY
    assert layout.host - off.host == 8 * generating * COPY


def test_constraints_and_importance_are_fp32_whatever_the_weights_are() -> None:
    sizes = seven_full(constraints=4, averages=4, penalty="ewc")
    halved = plan_sizes(replace(sizes, actor=replace(sizes.actor, weight_bytes=2)), SEVEN, 80).layout
    assert halved.training["projection"] == 4 * COPY + COPY // 2 * 2 + 4 * COPY
    assert halved.training["penalty"] == COPY // 2 + 2 * COPY


def test_with_offload_policy_projection_and_penalty_lie_on_the_host() -> None:
    actor = replace(seven_full().actor, offload_policy=True)
    guarded, plain = (
        plan_sizes(replace(seven_full(**changes), actor=actor), SEVEN, 80).layout
        for changes in ({"constraints": 4, "averages": 4, "penalty": "ewc"}, {})
    )
    assert (guarded.training_bytes, guarded.rollout_bytes) == (plain.training_bytes, plain.rollout_bytes)
    assert guarded.host - plain.host == 8 * (4 + 2 + 4 + 3) * COPY


def test_the_plan_counts_the_tensors_that_the_worker_keeps() -> None:
    words = "arm=qp_both", "penalty=ewc", "penalty.strength=1", "projection.average=0.5"
    sizes = read_sizes(composed("experiment=paper_b", *words))
    shards = [torch.zeros(memory_parts.trainable_parameters(MICRO, sizes.actor))]
    constraints, start, step = no_gradients(shards, 6), snapshot(shards), snapshot(shards)
    assert bytes_of(constraints + start + step) == memory_parts.projection(MICRO, sizes)
    averages, penalty = GradientAverages(), Penalty()
    averages.smooth("abcdef", constraints, [True] * 6, 0.5)
    assert bytes_of(averages.state().values()) == memory_parts.averages(MICRO, sizes)
    fisher = [part.float() for part in shards]
    penalty.begin_stage(1, shards, fisher)
    assert bytes_of(penalty.anchor + penalty.importance) == memory_parts.penalty(MICRO, sizes)
    assert bytes_of(fisher) == memory_parts.fisher(MICRO, sizes)


def test_a_loop_that_asks_for_gain_has_two_constraints_a_skill() -> None:
    words = "experiment=paper_b", "arm=closed_loop"
    one, two = (read_sizes(composed(*words, f"projection.gain={gain}")) for gain in (0, 1))
    assert two.constraints == 2 * one.constraints == 6


class LiveBytes(TorchDispatchMode):
    """The most bytes of tensors that were made in this context and lived at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = self.live = 0
        self._live = WeakKeyDictionary[torch.UntypedStorage, int]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        given = {each.untyped_storage() for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)}
        for each in tree_leaves(made):
            if isinstance(each, torch.Tensor) and each.untyped_storage() not in given:
                self._live.setdefault(each.untyped_storage(), each.untyped_storage().nbytes())
        self.live = sum(self._live.values())
        self.peak = max(self.peak, self.live)
        return made


@pytest.mark.parametrize(
    ("arm", "added"), [("qp_solutions", 0), ("closed_loop", 4), ("closed_loop_adam", 8), ("random_gradients", 5)]
)
def test_the_plan_is_what_an_update_allocates(arm: str, added: int) -> None:
    """Forty tensors of 50,000 numbers, so that one more of them at a time is little; the step is refused and undone."""
    sizes = read_sizes(composed("experiment=paper_b", f"arm={arm}"))
    parameters = [torch.nn.Parameter(torch.ones(50_000)) for _ in range(40)]
    optimizer = torch.optim.AdamW(parameters, lr=0.1)
    for parameter in parameters:
        parameter.grad = torch.ones(50_000)
    optimizer.step()
    shards = [parameter.detach() for parameter in parameters]
    constraints = [Constraint(f"{number}", number, []) for number in range(sizes.constraints)]
    with LiveBytes() as live:
        corrections = 2 * sizes.corrections
        protection = Protection(
            constraints, "qp", 0.0, "absolute", closed_loop=corrections > 0, corrections=corrections
        )
        update = SafeUpdate(protection, no_gradients(shards, sizes.constraints), snapshot(shards))
        update.signs = random_signs(parameters, 0) if sizes.random_signs else None
        for block in update.constraints:
            block.fill_(1.0)
        for shard in shards:
            shard.sub_(0.1)  # in place of an optimiser, whose own memory is another part
        update.inverse_metric = adam_inverse_metric(optimizer, parameters) if sizes.adam_metric else None
        update.verification = Verification([0.0], [0.0], tries=1, corrections=protection.corrections)
        update.after_step(shards)
        correct = None if not sizes.corrections else lambda missing: update.correct(shards, missing * sizes.constraints)
        update.verification.after_step(update.start, shards, lambda: [-1.0], correct)
    assert update.projected == 1
    planned = 2_000_000 * (4 * sizes.constraints + 8 + added)
    assert planned <= live.peak <= 1.06 * planned
    assert memory_parts.projection(MICRO, sizes) * 2_000_000 == planned * memory_parts.trainable_parameters(
        MICRO, sizes.actor
    )


@pytest.mark.parametrize("answers", [1, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rank", [0, 4])
def test_the_planned_activations_are_those_of_a_pass_on_a_cpu(rank: int, dtype: torch.dtype, answers: int) -> None:
    """Eight blocks, so that what one of them needs in the backward pass is little; four prompts of 24 tokens."""
    model, shape = packed_model(rank, dtype)
    prompts = [[1 + prompt] * 24 for prompt in range(4)]
    rows = [prompt + [9 + answer] * 12 for prompt in prompts for answer in range(answers)]
    sizes = replace(
        read_sizes(composed("experiment=pretrained", "data.max_prompt_length=24", "data.max_response_length=12")),
        answers=answers,
    ).with_micro_batches(len(rows), len(rows))
    sizes = replace(sizes, actor=replace(sizes.actor, lora_rank=rank, compute_bytes=dtype.itemsize))
    assert sizes.update_tokens == 4 * 24 + 12 * len(rows)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
    with LiveBytes() as live:
        found = model(**packed_rows(rows, 12))
        kept = live.live
        found.log_probs.sum().backward()
    planned = memory_parts.activations(shape, sizes)
    assert kept == pytest.approx(planned, rel=0.15)
    assert planned <= 1.15 * live.peak


def packed_model(rank: int, dtype: torch.dtype) -> tuple[Any, ModelShape]:
    """A model as the trainer runs it on a CPU, with adapters of this rank, and its shape."""
    register_packed_attention()
    wide: dict[str, Any] = {"hidden_size": 128, "intermediate_size": 320, "num_hidden_layers": 8}
    model: Any = tiny_model(dtype=dtype, attn_implementation=NAME, **wide)
    use_fast_head(model)
    if rank:
        model = get_peft_model(model, LoraConfig(r=rank, target_modules="all-linear"), autocast_adapter_dtype=False)
        use_lora_products(model)
    return model, ModelShape.from_config(model.config.to_dict())


def packed_rows(rows: list[list[int]], responses: int) -> dict[str, Any]:
    """A micro-batch whose rows end with so many generated tokens, as verl's engine passes it on."""
    tokens = torch.tensor(rows).flatten()
    places = torch.arange(len(tokens)).view(len(rows), -1)[:, -responses - 1 : -1].flatten()
    return {
        "input_ids": tokens[None],
        "position_ids": torch.arange(len(rows[0])).repeat(len(rows))[None],
        "positions": places,
        "shift_labels": tokens.roll(-1)[None],
        "temperature": 1.0,
        "use_cache": False,
    }


@pytest.mark.parametrize("tokens", [32, 128])
@pytest.mark.parametrize(("chunked", "bonus"), [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_planned_logits_are_what_verls_functions_allocate(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, chunked: bool, bonus: bool, tokens: int
) -> None:
    """A vocabulary of 512, with more and with fewer tokens than a chunk of the entropy has, here 64."""
    monkeypatch.setattr(memory_parts, "ENTROPY_ROWS", 64)
    shape = replace(MICRO, vocab_size=512)
    sizes = replace(
        seven(), fused_logits=False, chunked_entropy=chunked, entropy_in_loss=bonus, compiled_entropy=False,
        update_tokens=tokens, log_prob_tokens=tokens,
    )  # fmt: skip
    sizes = replace(sizes, actor=replace(sizes.actor, compute_bytes=dtype.itemsize))
    hidden, labels = torch.randn(tokens, 4, dtype=dtype), torch.arange(tokens) % 512
    output = torch.randn(512, 4, dtype=dtype, requires_grad=True)
    output.grad = torch.zeros_like(output)
    entropy = (
        partial(verl_F.entropy_from_logits_with_chunking, chunk_size=64) if chunked else verl_F.entropy_from_logits
    )

    def values(with_entropy: bool) -> torch.Tensor:
        logits = torch.nn.functional.linear(hidden, output).div_(1.0)
        log_probs = verl_F.logprobs_from_logits(logits, labels).sum()
        return log_probs + entropy(logits).sum() if with_entropy else log_probs

    with torch.no_grad():
        before = peak_bytes(lambda: values(with_entropy=True))
    update = peak_bytes(lambda: values(with_entropy=bonus).backward())
    assert memory_parts.logits(shape, sizes) == pytest.approx(max(before, update), rel=0.02)


def peak_bytes(work: Callable[[], Any]) -> int:
    """The most bytes that torch holds at once of those that it allocates in this work, inside its operators, too."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        work()
    live = most = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            live += event.nbytes()
            most = max(most, live)
    return most


@pytest.mark.parametrize(
    ("samples", "answers", "prompts"), [(32, 8, 4), (12, 8, 2), (5, 8, 2), (4, 8, 1), (1, 8, 1), (6, 1, 6), (16, 12, 2)]
)
def test_the_prompts_of_a_micro_batch_are_those_of_consecutive_samples(samples: int, answers: int, prompts: int):
    sizes = replace(sizes_of("platform=cpu"), answers=answers, sequence=300, shared_prompt=200)
    starts = range(0, samples * answers, samples)
    most = max(len({row // answers for row in range(start, start + samples)}) for start in starts)
    assert prompts == most
    assert sizes.computed_tokens(samples) == 200 * prompts + 100 * samples
    assert replace(sizes, gpus_per_node=2, mini_batch_prompts=3).computed_tokens(samples) == (
        200 * min(samples, 3) + 100 * samples
    )


@pytest.mark.parametrize(
    "words",
    [
        "actor_rollout_ref.model.use_fused_kernels=false",
        "actor_rollout_ref.model.use_remove_padding=false",
        "projection=qp projection.constraint_source=solutions projection.protected=[trace]",
        "protocol=sequential penalty=l2 penalty.strength=1",
    ],
)
def test_prompts_count_once_a_sample_where_a_pass_shares_none(words: str) -> None:
    sizes = read_sizes(composed("experiment=pretrained", *words.split()))
    assert sizes.update_tokens == sizes.log_prob_tokens == 32 * 384


def test_a_measured_outer_product_holds_a_gradient_a_part_and_is_named_where_it_is_too_much() -> None:
    words = ("platform=gpu_1x8", "model_preset=qwen2_5_7b", "adaptation=full", "agop.every=10")
    assert sizes_of("agop.parts=8").agop_parts == 0
    measured, plain = (plan_memory(composed(*GRPO, *words, f"agop.parts={parts}"), SEVEN, 79) for parts in (16, 8))
    assert measured.layout.training["agop"] == 16 * COPY
    assert measured.layout.training_bytes - plain.layout.training_bytes == 8 * COPY
    assert "agop" not in measured.layout.rollout
    (refusal,) = measured.refusals
    assert "agop.every=0;" in refusal


@pytest.mark.parametrize(("sizes", "trained"), [(seven, 80_740_352), (seven_full, 7_615_616_512)])
def test_the_plan_grows_linearly_in_the_constraints(sizes: Callable[..., RunSizes], trained: int) -> None:
    sums = [plan_sizes(sizes(constraints=count), SEVEN, 80).layout.training_bytes for count in range(1, 9)]
    assert {after - before for before, after in pairwise(sums)} == {4 * trained // 8}


def test_without_projection_and_penalty_only_an_adapter_is_copied_and_only_in_an_update() -> None:
    for sizes, copied in ((seven(), 80_740_352 * 4 // 8), (seven_full(), 0)):
        layout = plan_sizes(sizes, SEVEN, 80).layout
        parts = {name: layout.training[name] for name in ("adapter snapshot", "projection", "penalty")}
        assert parts == {"adapter snapshot": copied, "projection": 0, "penalty": 0}
        assert not layout.rollout.keys() & {"adapter snapshot"}
    # With projection, it uses the copy as its start.
    layout = plan_sizes(seven(constraints=4), SEVEN, 80).layout
    assert layout.training["projection"] == 6 * 80_740_352 * 4 // 8
    assert layout.training["adapter snapshot"] == 0


@pytest.mark.parametrize(
    ("words", "constraints", "averages"),
    [
        ("", 0, 0),
        ("projection=qp", 4, 0),
        ("projection=qp projection.when=forgetting projection.average=0.9", 4, 4),
        ("projection=qp projection.constraint_source=both projection.protected=[trace,write]", 4, 0),
        ("protocol=sequential projection=qp", 3, 0),
        ("protocol=sequential projection=qp projection.constraint_source=both projection.average=0.5", 6, 6),
        # One constraint at a time, but both skills have an average by the end.
        ("protocol=sequential protocol.skill_sequence=[write,trace,write] projection=qp projection.average=0.5", 1, 2),
    ],
)
def test_constraints_are_those_of_the_stage_that_protects_most_skills(
    words: str, constraints: int, averages: int
) -> None:
    sizes = read_sizes(composed("experiment=quickstart", "data.train_batch_size=64", *words.split()))
    assert (sizes.constraints, sizes.averages) == (constraints, averages)


def test_full_fine_tuning_that_only_projection_makes_too_large_is_refused() -> None:
    words = ("platform=gpu_1x8", "model_preset=qwen2_5_7b", "adaptation=full", "skills.names=[a,b,c,d]")
    guarded = plan_memory(composed(*GRPO, *words, "projection=qp", "projection.average=0.9"), SEVEN, 79)
    assert re.search(r"projection +│ 35\.5 +│ 14\.2 ", text(guarded))
    (refusal,) = guarded.refusals
    assert "training needs 80.0 of 79.0 GiB" in refusal
    assert "projection.average=0;" in refusal
    plain = plan_memory(composed(*GRPO, *words), SEVEN, 79)
    assert plain.refusals == []
    assert "projection" not in text(plain)
    assert "penalty" not in text(plain)


def test_a_reference_model_waits_on_the_host_and_is_not_there_with_lora() -> None:
    full = sizes_of(
        "platform=gpu_1x8", "model_preset=qwen2_5_7b", "adaptation=full", "actor_rollout_ref.actor.use_kl_loss=true"
    )
    assert full.reference_bytes == 2
    plain = replace(full, reference_bytes=0)
    difference = plan_sizes(full, SEVEN, 80).layout.host - plan_sizes(plain, SEVEN, 80).layout.host
    # FSDP pins it in blocks of a power of two each, of every tensor.
    assert difference == 8 * sum(count << (-(-size // 8) * 2 - 1).bit_length() for size, count in SEVEN.tensors)
    assert 7_615_616_512 * 2 < difference < 2 * 7_615_616_512 * 2
    assert sizes_of("platform=gpu_1x8", "actor_rollout_ref.actor.use_kl_loss=true").reference_bytes == 0


def test_ppo_counts_the_critic_too() -> None:
    words, share = ("platform=gpu_1x8", "model_preset=qwen2_5_7b", "algorithm.adv_estimator=gae"), 7_615_616_512 // 8
    # All of its weights and moments in fp32, over 8 ranks, without offloading or adapters.
    assert plan_sizes(sizes_of(*words, "adaptation=full"), SEVEN, 80).layout.training["critic"] == 12 * share
    # Beside an actor that trains adapters and keeps no logits the critic's update is the larger one: gradients, too.
    small = sizes_of(*words, "adaptation=lora", "actor_rollout_ref.model.use_fused_kernels=true")
    layout = plan_sizes(small, SEVEN, 80).layout
    assert layout.rollout["critic"] == 12 * share
    assert layout.training["critic"] == 16 * share
    assert "logits" not in layout.training
    assert layout.training["activations"] > 0


OFFLOADED = ("critic.fsdp.param_offload=true", "critic.fsdp.optimizer_offload=true")


def test_the_update_of_an_offloaded_critic_is_planned_and_refused_where_it_does_not_fit() -> None:
    words = ("platform=gpu_1x8", "model_preset=qwen2_5_32b", "algorithm.adv_estimator=gae", *OFFLOADED)
    (refusal,) = plan_memory(composed(*GRPO, *words), THIRTY_TWO, 79).refusals
    each = THIRTY_TWO.parameters * 16 / 8 / GIB
    assert f"{each:.1f} critic" in refusal


def test_the_critics_micro_batches_count_and_its_rules_hold() -> None:
    words = ("platform=gpu_1x8", "model_preset=qwen2_5_7b", "algorithm.adv_estimator=gae")

    def refusals(*more: str) -> str:
        return "\n".join(plan_memory(composed(*GRPO, *words, *more), SEVEN, 80).refusals)

    few, many = (sizes_of(*words, f"critic.ppo_max_token_len_per_gpu={tokens}") for tokens in (4096, 32768))
    activations = [plan_sizes(sizes, SEVEN, 800).layout.training["activations"] for sizes in (few, many)]
    assert activations[1] > activations[0]
    assert "critic.ppo_max_token_len_per_gpu=10 is less than one full" in refusals(
        "critic.ppo_max_token_len_per_gpu=10"
    )
    assert "critic.ulysses_sequence_parallel_size=3 must" in refusals("critic.ulysses_sequence_parallel_size=3")
    assert "critic.fsdp.fsdp_size=3 does not" in refusals("critic.fsdp.fsdp_size=3")
    assert "multiple of critic.ppo_mini_batch_size=7" in refusals("critic.ppo_mini_batch_size=7")


def test_engines_that_are_parallel_over_data_have_whole_weights() -> None:
    words = ("platform=gpu_1x8", "model_preset=qwen2_5_32b")
    parallel = "actor_rollout_ref.rollout.{}".format
    tensor, data = (
        sizes_of(*words, f"{parallel('tensor_model_parallel_size')}={tp}", f"{parallel('data_parallel_size')}={dp}")
        for tp, dp in ((8, 1), (1, 8))
    )
    assert tensor.replicas == data.replicas == 1
    assert memory_parts.rollout_weights(THIRTY_TWO, data) == 8 * memory_parts.rollout_weights(THIRTY_TWO, tensor)
    assert memory_parts.cache_bytes_per_token(THIRTY_TWO, data) == 8 * memory_parts.cache_bytes_per_token(
        THIRTY_TWO, tensor
    )
    refusals = plan_sizes(replace(tensor, engine=replace(tensor.engine, data_parallel=3)), THIRTY_TWO, 80).refusals
    assert any(
        "times actor_rollout_ref.rollout.data_parallel_size=3 does not divide the 8 GPUs" in one for one in refusals
    )


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ({"tensor_parallel": 8}, "tensor_model_parallel_size=8 does not split the model's 28 heads.*Valid: 1, 2, 4"),
        ({"tensor_parallel": 3}, "tensor_model_parallel_size=3 does not divide the 8 GPUs. Valid: 1, 2, 4"),
        ({"mini_batch_prompts": 100}, "train_batch_size=256 is not a multiple of .*=100.*Valid .*: 1, 2, 4, 8"),
        ({"mini_batch_prompts": 1, "answers": 5}, "ppo_mini_batch_size=1 x rollout.n=5 .* over 8 data-parallel ranks"),
        ({"update_tokens": 2048}, "ppo_max_token_len_per_gpu=2048 is less than one full sequence of 4096 tokens"),
        ({"sequence_parallel": 8}, "ulysses_sequence_parallel_size=8 must divide 8 GPUs and 28 heads.* Valid: 1, 2, 4"),
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
    (refusal,) = plan_sizes(seven(share=0.12), SEVEN, 80).refusals
    assert "vLLM would not start: 0." in refusal
    assert "one sequence of 32768 tokens needs 0.9" in refusal
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


def test_engines_apart_are_counted_as_they_are_and_so_are_copies_between_updates() -> None:
    words = ["experiment=quickstart", "trainer.v1.trainer_mode=skillcredit_separate_async", "adaptation=full"]
    words += ["actor_rollout_ref.hybrid_engine=false", "actor_rollout_ref.rollout.nnodes=1"]
    engines, updates = "actor_rollout_ref.rollout.n_gpus_per_node", "trainer.v1.separate_async.parameter_sync_step"
    one, two = (read_sizes(composed(*words, f"{engines}={count}", f"{updates}={count}")) for count in (1, 2))
    assert (one.world, one.replicas, one.kept_weights) == (1, 1, 1)
    assert (two.world, two.replicas, two.kept_weights) == (1, 2, 2)
    plans = [plan_sizes(sizes, MICRO, 24).layout.training for sizes in (one, two)]
    assert plans[1]["KV cache"] == 2 * plans[0]["KV cache"]
    assert plans[1]["kept weights"] == 2 * plans[0]["kept weights"] == 2 * plans[0]["weights"] > 0
    assert "kept weights" not in plan_sizes(read_sizes(composed("experiment=quickstart")), MICRO, 24).layout.training


def test_a_plan_is_read_from_a_composed_configuration_and_renders() -> None:
    config = composed(*GRPO, "platform=gpu_1x8", "model_preset=qwen2_5_7b")
    shown = text(plan_memory(config, SEVEN, 80))
    assert "GiB on each of 8 GPUs, of 80" in shown
    assert "256 prompts x 8 answers of up to 4096 tokens" in shown
    assert "64 samples in 16 micro-batches, at most 16384 tokens each" in shown


def test_weights_that_stay_gathered_count_whole() -> None:
    sizes = seven()
    plan = plan_sizes(replace(sizes, actor=replace(sizes.actor, resharded=False)), SEVEN, 80)
    assert plan.layout.training["gathered layers"] == 7_615_616_512 * 2
    assert not sizes_of("platform=cpu").actor.resharded
