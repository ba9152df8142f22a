"""Laws of the controls: credits reordered or with the opposite sign, silence preserved, determined by the seed."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from workers.credit import ablated, shape_advantages

NAN = math.nan


def drawn(seed: int, responses: int = 40, steps: int = 7) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    credits = torch.randn(responses, steps, generator=generator)
    return credits.masked_fill(torch.rand(responses, steps, generator=generator) < 0.3, NAN)


def sorted_rows(credits: Tensor) -> Tensor:
    return credits.nan_to_num(9.0).sort(1).values


@pytest.mark.parametrize("seed", range(5))
def test_shuffling_keeps_each_responses_credits_and_leaves_its_silent_steps_silent(seed: int) -> None:
    credits = drawn(seed)
    before = credits.clone()
    shuffled = ablated(credits, "shuffled", seed)
    assert torch.equal(shuffled.isnan(), credits.isnan())
    assert torch.equal(sorted_rows(shuffled), sorted_rows(credits))
    assert not torch.equal(shuffled.nan_to_num(), credits.nan_to_num())
    assert torch.equal(credits.nan_to_num(), before.nan_to_num())


def test_the_seed_decides_the_order() -> None:
    credits = drawn(0)
    first, again, other = (ablated(credits, "shuffled", seed).nan_to_num() for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_every_step_gets_every_credit_equally_often() -> None:
    credits = torch.arange(4.0).expand(8000, 4)
    shares = torch.nn.functional.one_hot(ablated(credits, "shuffled", 0).long(), 4).double().mean(0)
    assert shares == pytest.approx(torch.full((4, 4), 0.25).double(), abs=0.03)


def test_inverted_credit_moves_advantages_the_other_way_and_no_ablation_is_the_same_object() -> None:
    credits = torch.tensor([[0.5, -0.25, NAN, 0.0]])
    arguments: dict[str, Any] = {
        "advantages": torch.zeros(1, 8), "step_ids": torch.arange(8)[None] // 2, "response_mask": torch.ones(1, 8),
        "strength": 1.0, "zero_advantage": True,
    }  # fmt: skip
    plain, opposite = (
        shape_advantages(credits=ablated(credits, kind, 0), **arguments)[0] for kind in ("none", "inverted")
    )
    assert plain.abs().max() > 0.5
    assert torch.allclose(opposite, -plain, atol=1e-6)
    assert ablated(credits, "none", 0) is credits


def test_a_batch_without_any_step_stays_one() -> None:
    assert ablated(torch.empty(3, 0), "shuffled", 0).shape == (3, 0)


@pytest.mark.parametrize(
    ("credits", "ablation", "message"),
    [
        (torch.ones(3), "shuffled", r"credits must be \(B, K\), got \(3,\)"),
        (torch.ones(1, 2), "reversed", "one of none, shuffled, inverted, got 'reversed'"),
    ],
)
def test_mistakes_are_refused(credits: Tensor, ablation: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ablated(credits, ablation, 0)
