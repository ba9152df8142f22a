"""VinePPO, segment policy optimisation and GiGPO give the advantages that their equations give by hand."""

import math

import pytest
import torch

from workers.credit import state_advantages, value_advantages

NAN = math.nan


def test_vineppo_whitens_the_gains_of_value_over_all_tokens_in_place_of_the_advantage():
    # V(prompt) = 1/3, then 2/3, and the reward 1: gains 1/3 and 1/3; a failure from 1/3 over 1 to 0: 2/3 and -1.
    credits = torch.tensor([[1 / 3, 1 / 3], [2 / 3, -1.0]])
    step_ids = torch.tensor([[0, 0, 1, -1], [0, 1, -1, -1]])  # the end of an answer belongs to its last step
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
    advantages = torch.tensor([[0.5] * 4, [-0.5] * 4])
    shaped, stats = value_advantages(advantages, credits, step_ids, mask)
    # Tokens: four of 1/3, one of 2/3, two of -1. Mean 0; sum of squares 4/9 + 4/9 + 2 = 26/9; variance 26/54 = 0.48148.
    std = math.sqrt(26 / 54)
    assert shaped[0].tolist() == pytest.approx([1 / 3 / std] * 4, abs=1e-6)
    assert shaped[1].tolist() == pytest.approx([2 / 3 / std, -1 / std, -1 / std, -0.5], abs=1e-6)
    assert stats["credit/advantage_shift"] == pytest.approx(
        (4 * abs(1 / 3 / std - 0.5) + (2 / 3 / std + 0.5) + 2 * (1 / std - 0.5)) / 7, abs=1e-6
    )


def test_the_mean_of_the_gains_is_taken_off():
    shaped, _ = value_advantages(
        torch.zeros(1, 3), torch.tensor([[0.0, 0.3, 0.6]]), torch.tensor([[0, 1, 2]]), torch.ones(1, 3)
    )
    assert shaped[0].tolist() == pytest.approx([-1.0, 0.0, 1.0], abs=1e-6)  # mean 0.3, std 0.3


def test_tokens_without_a_value_keep_their_advantage_bit_for_bit():
    credits = torch.tensor([[1.0, NAN, 0.0], [NAN] * 3])
    step_ids = torch.tensor([[-1, 0, 1, 2], [-1] * 4])
    shaped, stats = value_advantages(torch.full((2, 4), 0.25), credits, step_ids, torch.ones(2, 4))
    root = math.sqrt(0.5)  # values 1 and 0: deviations 0.5, unbiased variance 0.5
    assert shaped[0].tolist() == pytest.approx([0.25, 0.5 / root, 0.25, -0.5 / root], abs=1e-6)
    assert shaped[1].tolist() == [0.25] * 4
    assert (stats["credit/fallback/no_steps"], stats["credit/fallback_rate"]) == (0.5, 0.5)


def test_a_batch_without_steps_or_with_equal_values_is_no_error():
    advantages = torch.full((1, 2), 0.25)
    none, _ = value_advantages(advantages, torch.zeros(1, 0), torch.tensor([[-1, -1]]), torch.ones(1, 2))
    assert torch.equal(none, advantages)
    equal, _ = value_advantages(advantages, torch.tensor([[0.5, 0.5]]), torch.tensor([[0, 1]]), torch.ones(1, 2))
    assert equal.tolist() == [[0.0, 0.0]]


def test_spo_whitens_over_the_tokens_that_could_have_been_others_and_the_rest_has_no_advantage():
    # Two segments of three tokens, each token with the whole gain of its segment: 0.5 and -0.25. Of the tokens that are
    # not masked two have 0.5, one -0.25: mean 0.25, squares 0.0625 * 2 + 0.25, variance 0.1875. Of all six: mean 0.125.
    arguments = (
        torch.ones(1, 6), torch.tensor([[0.5] * 3 + [-0.25] * 3]), torch.arange(6)[None], torch.ones(1, 6),
    )  # fmt: skip
    probabilities = torch.tensor([[0.2, 0.95, 0.5, 0.9, 0.99, 1.0]], dtype=torch.float64)
    shaped, _ = value_advantages(*arguments, probabilities=probabilities, max_probability=0.9)
    std = math.sqrt(0.1875)
    assert shaped[0].tolist() == pytest.approx([0.25 / std, 0.0, 0.25 / std, -0.5 / std, 0.0, 0.0], abs=1e-6)
    sure, _ = value_advantages(*arguments, probabilities=torch.ones(1, 6), max_probability=0.9)
    assert sure.tolist() == [[0.0] * 6]
    with pytest.raises(ValueError, match=r"max_probability=0\.9 needs the probabilities"):
        value_advantages(*arguments, max_probability=0.9)


def test_gigpo_adds_the_advantage_of_an_action_among_those_of_its_state():
    # Discount 0.5. Success in two turns: returns 0.5, 1. Success in three: 0.25, 0.5, 1. Failure: 0, 0.
    returns = torch.tensor([[0.5, 1.0, NAN], [0.25, 0.5, 1.0], [0.0, 0.0, NAN]])
    states = torch.tensor([[0, 1, -1], [0, 2, 1], [0, 2, -1]])
    step_ids = torch.tensor([[0, -1, 1, -1], [0, 1, 1, 2], [0, 0, 1, -1]])
    advantages = torch.tensor([[0.5] * 4, [0.5] * 4, [-1.0] * 4])
    mask = (step_ids >= 0).long()
    shaped, stats = state_advantages(advantages, returns, step_ids, mask, states, weight=2.0)
    # State 0: returns 0.5, 0.25, 0: mean 0.25, std 0.25: +1, 0, -1. State 1: 1 and 1: 0.
    # State 2: 0.5 and 0: mean 0.25, std 0.25 * sqrt(2): +-0.70711.
    root = math.sqrt(0.5)
    assert shaped[0].tolist() == pytest.approx([2.5, 0.5, 0.5, 0.5], abs=1e-4)
    assert shaped[1].tolist() == pytest.approx([0.5, 0.5 + 2 * root, 0.5 + 2 * root, 0.5], abs=1e-4)
    assert shaped[2].tolist() == pytest.approx([-3.0, -3.0, -1.0 - 2 * root, -1.0], abs=1e-4)
    assert stats["credit/shared_share"] == 1.0
    plain, _ = state_advantages(advantages, returns, step_ids, mask, states, weight=0.0)
    assert torch.equal(plain.view(torch.int32), advantages.view(torch.int32))


def test_gigpo_counts_each_visit_of_a_state_and_leaves_a_turn_alone_in_its_state():
    # One response is in state 0 twice, with returns 1 and 3 (std sqrt(2)), and alone in state 1.
    shaped, stats = state_advantages(
        torch.zeros(1, 3), torch.tensor([[1.0, 3.0, 9.0]]), torch.tensor([[0, 1, 2]]), torch.ones(1, 3),
        torch.tensor([[0, 0, 1]]), weight=1.0,
    )  # fmt: skip
    assert shaped[0].tolist() == pytest.approx([-math.sqrt(0.5), math.sqrt(0.5), 0.0], abs=1e-5)
    assert stats["credit/shared_share"] == pytest.approx(2 / 3)
    without, _ = state_advantages(
        torch.ones(2, 2), torch.zeros(2, 0), torch.full((2, 2), -1), torch.ones(2, 2),
        torch.zeros(2, 0, dtype=torch.int64), weight=1.0,
    )  # fmt: skip
    assert without.tolist() == [[1.0, 1.0]] * 2


@pytest.mark.parametrize("rival", ["values", "segments", "states"])
def test_hostile_numbers_stay_finite(rival: str):
    steps = 3000
    generator = torch.Generator().manual_seed(0)
    credits = torch.randn(4, steps, generator=generator)
    credits[:, 7], credits[3] = NAN, NAN
    advantages = torch.tensor([0.0, 1e6, -1e6, 1.0])[:, None].repeat(1, steps)
    arguments = advantages, credits, torch.arange(steps).repeat(4, 1), torch.ones(4, steps)
    if rival == "states":
        shaped, stats = state_advantages(*arguments, torch.arange(4 * steps).view(4, steps) // 2, weight=1.0)
    else:
        probabilities = torch.rand(4, steps, generator=generator) if rival == "segments" else None
        shaped, stats = value_advantages(
            *arguments, probabilities=probabilities, max_probability=0.9 if probabilities is not None else 1.0
        )
    assert shaped.isfinite().all()
    assert all(math.isfinite(value) for value in stats.values())
    assert torch.equal(shaped[3], advantages[3])
