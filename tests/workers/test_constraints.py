"""Constraint gradients of a small language model in one process: a table of bigram logits replaces verl's engine."""

import math
from collections.abc import Iterator

import pytest
import torch
from tensordict import NonTensorData, NonTensorStack, TensorDict
from torch.distributed.device_mesh import init_device_mesh
from verl.utils import tensordict_utils as tu

from workers.constraints import (
    HALF,
    IMAGES,
    MEMORY,
    SKILL,
    GradientAverages,
    constraint_gradients,
    diagonal_fisher,
    filled_rows,
    no_gradients,
    passed_rows,
    rollout_source,
    solution_batch,
    solution_source,
    without_memory,
)
from workers.solution_store import StoredSolution

WORDS = 5
MICRO_BATCH = {"micro_batch_size_per_gpu": 2, "use_dynamic_bsz": False}
SOLUTIONS = [
    StoredSolution([1, 2], [3, 4], [1, 1]),
    StoredSolution([2], [0, 1, 3], [1, 0, 1]),
    StoredSolution([4, 1], [2], [1]),
]


@pytest.fixture(scope="module", autouse=True)
def one_rank() -> Iterator[None]:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


class Bigrams:
    """The part of verl's FSDP engine that constraint gradients use."""

    def __init__(self) -> None:
        self.module = torch.nn.ParameterList([torch.randn(WORDS, WORDS, generator=torch.manual_seed(0))])
        self.device_mesh = init_device_mesh("cpu", (1,))

    def log_probs(self, tokens: torch.Tensor) -> torch.Tensor:
        """Log-probability of each next token (the last position wraps around and belongs to no response)."""
        return self.module[0][tokens].log_softmax(-1)[range(len(tokens)), tokens.roll(-1)]

    def forward_backward_batch(self, data: TensorDict, loss_function, forward_only: bool) -> None:
        size = tu.get(data, "micro_batch_size_per_gpu")
        assert len(data) % size == 0
        for part in tu.chunk_tensordict(data, len(data) // size):
            values = torch.cat([self.log_probs(row) for row in part["input_ids"].unbind()])
            loss, _ = loss_function({"log_probs": values}, part)
            loss.backward()

    def optimizer_zero_grad(self) -> None:
        self.module.zero_grad()

    def get_data_parallel_group(self) -> None:
        return None

    def get_data_parallel_size(self) -> int:
        return 1


def likelihood(engine: Bigrams, solution: StoredSolution) -> torch.Tensor:
    """Mean log-likelihood of the tokens that the model wrote."""
    tokens = torch.tensor([*solution.prompt, *solution.response])
    chosen = engine.log_probs(tokens)[len(solution.prompt) - 1 : -1]
    mask = torch.tensor(solution.mask)
    return (chosen * mask).sum() / mask.sum()


def answer(engine: Bigrams, solution: StoredSolution) -> torch.Tensor:
    """Log-likelihood of the tokens that the model wrote, their sum."""
    return likelihood(engine, solution) * sum(solution.mask)


def gradient(engine: Bigrams, value: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad(value, engine.module[0])[0]


def rollouts(advantages: list[float], skills: list[int], halves: list[int]) -> TensorDict:
    """The solutions as samples of a step, at the parameters that generated them."""
    engine, batch = Bigrams(), solution_batch(SOLUTIONS, 1.0)
    old, rows = [], []
    for solution, advantage in zip(SOLUTIONS, advantages, strict=True):
        tokens = torch.tensor([*solution.prompt, *solution.response])
        old.append(engine.log_probs(tokens).detach()[len(solution.prompt) - 1 : -1])
        rows.append(torch.full((len(solution.response),), advantage))
    batch["old_log_probs"] = torch.nested.as_nested_tensor(old, layout=torch.jagged)
    batch["advantages"] = torch.nested.as_nested_tensor(rows, layout=torch.jagged)
    batch[SKILL], batch[HALF] = torch.tensor(skills), torch.tensor(halves)
    return batch


def gradients_of(engine: Bigrams, sources: list) -> tuple[torch.Tensor, list[float]]:
    """Ascent gradients (S, WORDS, WORDS) and the cosines of their halves."""
    (found,) = no_gradients(list(engine.module), len(sources))
    return found, constraint_gradients(engine, sources, [found], MICRO_BATCH)


@pytest.mark.parametrize(("per_token", "value"), [(False, answer), (True, likelihood)])
def test_the_gradient_of_solutions_is_that_of_their_mean_log_likelihood(per_token: bool, value):
    engine = Bigrams()
    found, (agreement,) = gradients_of(engine, [solution_source(SOLUTIONS, 1.0, 0, 1, per_token=per_token)])
    each = [gradient(engine, value(engine, solution)) for solution in SOLUTIONS]
    assert torch.allclose(found[0], sum(each, torch.zeros(())) / 3, atol=1e-6)
    even, odd = (each[0] + each[2]).flatten(), each[1].flatten()
    assert agreement == pytest.approx(float(torch.cosine_similarity(even, odd, dim=0)), abs=1e-5)
    assert engine.module[0].grad is None


def test_gradient_and_level_are_in_nats_per_answer_so_that_slack_is_right_to_first_order():
    """At uniform logits of 5 words a token costs ln 5: answers of 2, 2 and 1 trained tokens, on average 5/3 of them."""
    engine = Bigrams()
    engine.module[0].data.zero_()
    (found,), levels = no_gradients(list(engine.module), 1), list[float]()
    constraint_gradients(engine, [solution_source(SOLUTIONS, 1.0, 0, 1, anchored=3)], [found], MICRO_BATCH, levels)
    assert levels == [pytest.approx(-5 / 3 * math.log(5))]
    engine.module[0].data += 1e-3 * found[0]
    after = sum(float(answer(engine, solution).detach()) for solution in SOLUTIONS) / 3
    assert after - levels[0] == pytest.approx(1e-3 * float(found.square().sum()), rel=2e-3)


def test_a_held_out_anchor_set_has_a_level_and_no_part_in_the_gradient():
    engine = Bigrams()
    (found,), levels = no_gradients(list(engine.module), 1), list[float]()
    source = solution_source(SOLUTIONS, 1.0, 0, 1, anchored=1, held_out=True)
    constraint_gradients(engine, [source], [found], MICRO_BATCH, levels)
    each = [gradient(engine, answer(engine, solution)) for solution in SOLUTIONS]
    assert torch.allclose(found[0], (each[1] + each[2]) / 2, atol=1e-6)
    assert levels == [pytest.approx(float(answer(engine, SOLUTIONS[0]).detach()))]


def test_where_all_solutions_are_anchors_none_is_held_out():
    engine = Bigrams()
    sources = [solution_source(SOLUTIONS, 1.0, 0, 1, anchored=3, held_out=held) for held in (True, False)]
    found, _ = gradients_of(engine, sources)
    assert found[0].any()
    assert torch.equal(found[0], found[1])


def test_the_ranks_of_a_held_out_source_count_their_own_share():
    sources = [solution_source(SOLUTIONS, 1.0, rank, 2, anchored=1, held_out=True) for rank in (0, 1)]
    assert [source.total for source in sources if source is not None] == [1, 1]  # rows 0 and 1, and row 2


def test_the_gradient_of_rollouts_weighs_samples_of_the_skill_by_their_advantages():
    engine, data = Bigrams(), rollouts([1.0, -2.0, 5.0], [0, 0, 1], [0, 1, 0])
    found, agreements = gradients_of(engine, [rollout_source(data, skill) for skill in (0, 1, 2)])
    each = [gradient(engine, likelihood(engine, solution)) for solution in SOLUTIONS]
    assert torch.allclose(found[0], (each[0] - 2 * each[1]) / 2, atol=1e-6)
    assert torch.allclose(found[1], 5 * each[2], atol=1e-6)
    assert not found[2].any()
    assert agreements[0] == pytest.approx(
        float(-torch.cosine_similarity(each[0].flatten(), each[1].flatten(), dim=0)), abs=1e-5
    )
    assert math.isnan(agreements[1])
    assert math.isnan(agreements[2])


def test_rollouts_weigh_as_in_the_policys_loss_where_verl_corrects_for_the_engine_that_sampled_them():
    engine, data = Bigrams(), rollouts([1.0, -2.0, 5.0], [0, 0, 1], [0, 1, 0])
    each = [gradient(engine, likelihood(engine, solution)) for solution in SOLUTIONS]
    pairs = zip((2.0, 0.5, 3.0), SOLUTIONS, strict=True)
    weights = [torch.full((len(solution.response),), weight) for weight, solution in pairs]
    data["rollout_is_weights"] = torch.nested.as_nested_tensor(weights, layout=torch.jagged)
    found, _ = gradients_of(engine, [rollout_source(data, skill) for skill in (0, 1)])
    assert torch.allclose(found[0], (2 * each[0] - 0.5 * 2 * each[1]) / 2, atol=1e-6)
    assert torch.allclose(found[1], 3 * 5 * each[2], atol=1e-6)


@pytest.mark.slow
def test_with_a_loss_that_is_a_mean_over_tokens_samples_weigh_as_much_as_they_have_tokens():
    engine, data = Bigrams(), rollouts([1.0, 5.0, -2.0], [0, 1, 0], [0, 0, 1])
    found, _ = gradients_of(engine, [rollout_source(data, skill, token_mean=True) for skill in (0, 1)])
    each = [gradient(engine, likelihood(engine, solution)) for solution in SOLUTIONS]
    assert torch.allclose(found[0], (2 * each[0] - 1 * 2 * each[2]) / (2 + 1), atol=1e-6)
    assert torch.allclose(found[1], 5 * each[1], atol=1e-6)


def test_samples_without_advantage_count_in_the_mean_and_are_not_passed_through_the_model():
    engine, data = Bigrams(), rollouts([3.0, 0.0, 0.0], [0, 0, 1], [0, 1, 0])
    sources = [rollout_source(data, skill) for skill in (0, 1)]
    assert [(source.halves, source.total) for source in sources] == [(([0], []), 2), (([], []), 1)]
    found, agreements = gradients_of(engine, sources)
    assert torch.allclose(found[0], 3 / 2 * gradient(engine, likelihood(engine, SOLUTIONS[0])), atol=1e-6)
    assert not found[1].any()
    assert all(math.isnan(agreement) for agreement in agreements)


def test_texts_stay_behind_and_images_do_not():
    data = rollouts([1.0, 0.0, 2.0], [0, 0, 0], [0, 1, 0])
    texts = [f"answer {number}" for number in range(3)]
    without = [NonTensorData({}) for _ in range(3)]
    data["text"] = NonTensorStack(*map(NonTensorData, texts))
    data[IMAGES] = NonTensorStack(*without)
    assert not {"text", IMAGES} & set(passed_rows(data).keys())
    data[IMAGES] = NonTensorStack(NonTensorData({"pixels": torch.ones(2)}), *without[1:])
    passed = passed_rows(data)
    assert tu.get(passed, "temperature") == 1.0
    assert [set(each) for each in tu.get(tu.index_select_tensor_dict(passed, [1, 0]), IMAGES)] == [set(), {"pixels"}]


def test_padding_is_the_shortest_row():
    batch = solution_batch(SOLUTIONS, 1.0)
    filled = filled_rows(batch, [1], 3, None)
    assert [len(row) for row in filled["input_ids"].unbind()] == [4, 3, 3]
    assert [row.tolist() for row in filled["input_ids"].unbind()[1:]] == [[4, 1, 2]] * 2


def test_a_source_that_is_not_there_yet_has_a_gradient_of_zero():
    assert solution_source([], 1.0, 0, 1) is None
    found, (agreement,) = gradients_of(Bigrams(), [None])
    assert not found.any()
    assert math.isnan(agreement)


def test_the_ranks_share_the_solutions_of_each_half():
    sources = [solution_source(SOLUTIONS, 1.0, rank, 2) for rank in (0, 1)]
    assert [source.halves for source in sources if source is not None] == [([0], [1]), ([2], [])]


def test_fisher_information_is_the_mean_of_squared_gradients():
    engine = Bigrams()
    (found,) = diagonal_fisher(engine, SOLUTIONS, 1.0, MICRO_BATCH)
    each = [gradient(engine, likelihood(engine, solution)).square() for solution in SOLUTIONS]
    assert torch.allclose(found, sum(each, torch.zeros(())) / 3, atol=1e-7)
    assert not diagonal_fisher(engine, [], 1.0, MICRO_BATCH)[0].any()


def test_averages_forget_at_their_rate_and_pass_over_what_has_no_signal():
    averages = GradientAverages()
    averages.kept["a.b"] = [torch.ones(1)]  # a name that starts with another one
    first, second = torch.tensor([[4.0], [0.0]]), torch.tensor([[0.0], [6.0]])
    averages.smooth(["a", "b"], [first], [True, False], decay=0.75)
    assert first.tolist() == [[4.0], [0.0]]
    averages.smooth(["a", "b"], [second], [True, True], decay=0.75)
    assert second.tolist() == [[3.0], [6.0]]
    third, restored = torch.tensor([[0.0], [2.0]]), GradientAverages()
    restored.restore(averages.state() | {"anchor.0": torch.zeros(1)})
    restored.smooth(["a", "b"], [third], [False, True], decay=0.75)
    assert third.tolist() == [[3.0], [5.0]]
    assert restored.kept["a.b"][0].tolist() == [1.0]


def sized(memory: list[bool], mini_batch: int) -> TensorDict:
    data = TensorDict({"x": torch.arange(len(memory)), MEMORY: torch.tensor(memory)}, batch_size=len(memory))
    tu.assign_non_tensor(data, mini_batch_size=mini_batch, global_batch_size=mini_batch, temperature=0.5)
    return data


def test_memory_is_taken_out_and_the_batch_sizes_follow():
    part = without_memory(sized([False, True, False, False, True, False], 6), ranks=2, micro_batch_size=3)
    assert part["x"].tolist() == [0, 2, 3, 5]
    sizes = [tu.get(part, key) for key in ("mini_batch_size", "global_batch_size", "micro_batch_size_per_gpu")]
    assert sizes == [4, 4, 1]  # two optimiser steps of two samples on each of two ranks
    assert tu.get(part, "temperature") == 0.5


def test_a_batch_without_memory_stays_the_same_object():
    data = sized([False, False], 2)
    assert without_memory(data, ranks=1, micro_batch_size=2) is data
    assert without_memory(TensorDict({"x": torch.arange(2)}, batch_size=2), ranks=1, micro_batch_size=2)[
        "x"
    ].tolist() == [0, 1]


def test_samples_that_fill_no_whole_mini_batches_are_refused():
    with pytest.raises(ValueError, match="3 of this rank's 4 samples are trained on: not divisible into 2 mini"):
        without_memory(sized([False, True, False, False], 2), ranks=1, micro_batch_size=None)
