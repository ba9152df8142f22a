"""Laws of the credit mapping: mass, bound, bitwise silence, causes of fallback, and characters to tokens."""

import math
from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from recipe.health.rules import FALLBACK
from workers.choices import NORMALIZATIONS
from workers.credit import shape_advantages

NAN = math.nan
CAUSES = ("no_steps", "too_few_valid", "zero", "constant", "zero_advantage")


def batch(seed: int, responses: int = 6, tokens: int = 20, steps: int = 5) -> dict[str, Any]:
    """Responses of random lengths with tokens in random steps or in none, and some missing credits."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, tokens + 1, (responses, 1), generator=generator)
    credits = torch.randint(-4, 5, (responses, steps), generator=generator) / 4.0
    missing = torch.rand(responses, steps, generator=generator) < 0.2
    return {
        "advantages": torch.randn(responses, 1, generator=generator).expand(responses, tokens).clone(),
        "credits": credits.masked_fill(missing, NAN),
        "step_ids": torch.randint(-1, steps, (responses, tokens), generator=generator),
        "response_mask": (torch.arange(tokens) < lengths).long(),
        "groups": torch.arange(responses) // 3,
    }


def one(credits: list[float], tokens: list[int], advantage: float = 1.0) -> dict[str, Any]:
    """One response whose step k has credits[k] and tokens[k]."""
    ids = torch.repeat_interleave(torch.arange(len(tokens)), torch.tensor(tokens))[None]
    return {
        "advantages": torch.full(ids.shape, advantage),
        "credits": torch.tensor([credits]),
        "step_ids": ids,
        "response_mask": torch.ones_like(ids),
    }


def bits(tensor: Tensor) -> Tensor:
    return tensor.view(torch.int32)


batches = st.integers(0, 10_000).map(batch)
WITHIN_RESPONSE = [name for name in NORMALIZATIONS if name != "siblings"]
normalizations = st.sampled_from(WITHIN_RESPONSE)


@pytest.mark.slow
@given(batches, normalizations, st.floats(0.01, 3))
@settings(max_examples=80, deadline=None)
def test_mass_is_kept_and_no_token_moves_by_more_than_the_strength(
    drawn: dict[str, Any], normalization: str, strength: float
) -> None:
    shaped, stats = shape_advantages(**drawn, strength=strength, normalization=normalization)
    mask = drawn["response_mask"]
    change = (shaped - drawn["advantages"]) * mask
    assert change.abs().max() <= strength + 1e-6
    assert (change.sum(1) / mask.sum(1)).abs().max() < 1e-5 * max(1.0, strength)
    assert stats["credit/advantage_shift"] == pytest.approx(float(change.abs().sum() / mask.sum()), abs=1e-5)


@pytest.mark.slow
@given(batches, normalizations)
@settings(max_examples=60, deadline=None)
def test_only_tokens_of_a_credited_step_of_the_response_change(drawn: dict[str, Any], normalization: str) -> None:
    drawn["advantages"][:, ::3] *= -0.0
    shaped, _ = shape_advantages(**drawn, strength=1.0, normalization=normalization)
    credit = torch.nn.functional.pad(drawn["credits"], (1, 0), value=NAN).gather(1, drawn["step_ids"] + 1)
    untouched = (drawn["response_mask"] == 0) | credit.isnan()
    assert torch.equal(bits(shaped)[untouched], bits(drawn["advantages"])[untouched])


@pytest.mark.slow
@given(batches, normalizations)
@settings(max_examples=30, deadline=None)
def test_strength_zero_and_silent_credits_are_the_plain_algorithm_bit_for_bit(
    drawn: dict[str, Any], normalization: str
) -> None:
    drawn["advantages"][:, 0] = -0.0
    drawn["advantages"][drawn["response_mask"] == 0] = NAN
    silent = drawn | {"credits": torch.zeros_like(drawn["credits"])}
    for arguments, strength in ((drawn, 0.0), (silent, 1.0)):
        shaped, stats = shape_advantages(**arguments, strength=strength, normalization=normalization)
        assert torch.equal(bits(shaped), bits(drawn["advantages"]))
        assert shaped is not drawn["advantages"]
        assert stats["credit/advantage_shift"] == 0


@pytest.mark.slow
@given(batches, normalizations, st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None)
def test_order_of_responses_and_padding_change_nothing(
    drawn: dict[str, Any], normalization: str, random: object
) -> None:
    expected, stats = shape_advantages(**drawn, strength=0.7, normalization=normalization)
    order = list(range(len(expected)))
    random.shuffle(order)  # type: ignore[attr-defined]
    permuted, _ = shape_advantages(
        **{name: value[order] for name, value in drawn.items()}, strength=0.7, normalization=normalization
    )
    torch.testing.assert_close(permuted, expected[order])

    widths = {"advantages": 0.0, "response_mask": 0, "step_ids": -1, "credits": NAN}
    padded: dict[str, Any] = {
        name: torch.nn.functional.pad(drawn[name], (0, 3), value=fill) for name, fill in widths.items()
    }
    wide, wide_stats = shape_advantages(**padded, groups=drawn["groups"], strength=0.7, normalization=normalization)
    torch.testing.assert_close(wide[:, :-3], expected)
    assert wide_stats == pytest.approx(stats)


@pytest.mark.slow
@given(st.integers(0, 1000), st.sampled_from(["signed", "positive", "softmax", "none"]))
@settings(max_examples=30, deadline=None)
def test_splitting_a_step_into_parts_of_equal_credit_changes_nothing(seed: int, normalization: str) -> None:
    drawn = batch(seed)
    expected, _ = shape_advantages(**drawn, strength=1.0, normalization=normalization)
    last = drawn["credits"].shape[1] - 1
    second_half = (drawn["step_ids"] == last) & (torch.arange(drawn["step_ids"].shape[1]) % 2 == 0)
    split = drawn | {
        "credits": torch.cat([drawn["credits"], drawn["credits"][:, last:]], dim=1),
        "step_ids": drawn["step_ids"].masked_fill(second_half, last + 1),
    }
    # A single credit becomes two equal ones: too few before, constant after, no effect in either case.
    torch.testing.assert_close(shape_advantages(**split, strength=1.0, normalization=normalization)[0], expected)


def leave_one_out(reward: Callable[[set[int]], float], steps: int = 4) -> list[float]:
    everything = set(range(steps))
    return [reward(everything) - reward(everything - {step}) for step in range(steps)]


@pytest.mark.parametrize(
    ("reward", "credits", "shaped"),
    [
        pytest.param(lambda s: float({0, 1} <= s), [1, 1, 0, 0], [1.5, 1.5, 0.5, 0.5], id="and"),
        pytest.param(lambda s: float(bool({0, 1} & s)), [0, 0, 0, 0], [1, 1, 1, 1], id="or: redundant, silent"),
        pytest.param(
            lambda s: sum(w for k, w in enumerate((0.4, 0.3, 0.2, 0.1)) if k in s),
            [0.4, 0.3, 0.2, 0.1],
            [1.5, 7 / 6, 5 / 6, 0.5],
            id="additive",
        ),
        pytest.param(lambda s: 1.0 - 0.5 * (3 in s), [0, 0, 0, -0.5], [7 / 6, 7 / 6, 7 / 6, 0.5], id="harmful step"),
        pytest.param(lambda s: 0.0, [0, 0, 0, 0], [1, 1, 1, 1], id="all fail"),
    ],
)
def test_closed_forms_of_leave_one_out(
    reward: Callable[[set[int]], float], credits: list[float], shaped: list[float]
) -> None:
    found = leave_one_out(reward)
    assert found == pytest.approx(credits)
    result, _ = shape_advantages(**one(found, [1, 1, 1, 1]), strength=0.5)
    assert result[0].tolist() == pytest.approx(shaped, abs=1e-4)


def test_a_useful_step_of_a_failure_is_raised_not_lowered() -> None:
    result, _ = shape_advantages(**one([0.5, 0.0], [1, 1], advantage=-1.0), strength=0.5)
    assert result[0].tolist() == pytest.approx([-0.5, -1.5], abs=1e-5)


@pytest.mark.parametrize(
    ("normalization", "u"),
    [
        # Tokens 1, 2, 1, 1 of credits 1, 0, -1, 0.5: cbar = 0.1, largest deviation 1.1.
        ("signed", [0.9 / 1.1, -0.1 / 1.1, -1.0, 0.4 / 1.1]),
        # 1, 0, 0, 0.5: cbar = 0.3, largest 0.7.
        ("positive", [1.0, -0.3 / 0.7, -0.3 / 0.7, 0.2 / 0.7]),
        # Ranks 3, 1, 0, 2: cbar = 1.4, largest 1.6.
        ("rank", [1.0, -0.25, -0.875, 0.375]),
        # Deviations 0.9, -0.1, -1.1, 0.4, all shrunk because one exceeds 1.
        ("none", [0.9 / 1.1, -0.1 / 1.1, -1.0, 0.4 / 1.1]),
        # e^c = 2.71828, 1, 0.36788, 1.64872: cbar = 1.34698, largest 1.37130.
        ("softmax", [1.0, -0.25303, -0.71399, 0.22004]),
    ],
)
def test_values_of_each_normalization(normalization: str, u: list[float]) -> None:
    arguments = one([1.0, 0.0, -1.0, 0.5], [1, 2, 1, 1])
    result, _ = shape_advantages(**arguments, strength=0.1, normalization=normalization)
    assert ((result[0] - 1) / 0.1)[[0, 1, 3, 4]].tolist() == pytest.approx(u, abs=1e-4)


def test_none_keeps_small_credits_small_and_rank_lets_ties_share() -> None:
    small = one([0.2, 0.0], [1, 1])
    assert shape_advantages(**small, strength=1.0, normalization="none")[0][0].tolist() == pytest.approx([1.1, 0.9])
    ties = one([0.3, 0.3, 0.0], [1, 1, 1])
    ranks = shape_advantages(**ties, strength=1.0, normalization="rank")[0][0] - 1
    assert ranks.tolist() == pytest.approx([0.5, 0.5, -1.0], abs=1e-5)


@pytest.mark.parametrize("normalization", ["softmax", "rank", "signed"])
def test_the_credit_of_a_step_without_tokens_has_no_say(normalization: str) -> None:
    arguments = one([0.5, 0.25, 0.0], [1, 1, 2])
    expected, stats = shape_advantages(**arguments, strength=1.0, normalization=normalization)
    cut_off = arguments | {"credits": torch.tensor([[0.5, 0.25, 0.0, 0.3, 9.0]])}
    shaped, cut_off_stats = shape_advantages(**cut_off, strength=1.0, normalization=normalization)
    torch.testing.assert_close(shaped, expected)
    assert cut_off_stats == pytest.approx(stats)


def test_fallbacks_are_counted_once_each_by_their_first_cause() -> None:
    tokens = torch.tensor([[0, 1, -1]]).repeat(7, 1)
    tokens[0] = -1
    mask = torch.ones(7, 3)
    mask[6] = 0  # a padding row: no response, not counted
    credits = torch.tensor([[1.0, 0.0], [1.0, NAN], [1e-8, -1e-8], [0.5, 0.5], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    advantages = torch.tensor([1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0])[:, None].repeat(1, 3)
    shaped, stats = shape_advantages(advantages, credits, tokens, mask, strength=0.5)
    changed = (shaped != advantages).any(1)
    assert changed.tolist() == [False] * 5 + [True, False]
    for cause in CAUSES:
        assert stats[f"credit/fallback/{cause}"] == pytest.approx(1 / 6)
    assert stats["credit/fallback_rate"] == pytest.approx(5 / 6)
    assert {name for name in stats if name.startswith("credit/fallback/")} == {f"credit/fallback/{c}" for c in FALLBACK}

    opened, stats = shape_advantages(advantages, credits, tokens, mask, strength=0.5, zero_advantage=True)
    assert opened[4].tolist() == pytest.approx([0.5, -0.5, 0.0], abs=1e-5)
    assert stats["credit/fallback/zero_advantage"] == 0


def test_statistics_of_a_small_batch() -> None:
    arguments = one([0.5, -0.5, NAN, 0.0], [2, 1, 1, 1])
    arguments["step_ids"] = torch.cat([arguments["step_ids"], torch.tensor([[-1]])], dim=1)
    arguments["advantages"] = arguments["response_mask"] = torch.ones(1, 6)
    _, stats = shape_advantages(**arguments, strength=1.0)
    assert stats["credit/mean"] == 0
    assert stats["credit/abs_mean"] == pytest.approx(1 / 3)
    assert stats["credit/entropy"] == pytest.approx(math.log(2) / math.log(3))
    assert stats["credit/valid_share"] == 0.75
    assert stats["credit/token_share"] == pytest.approx(4 / 6)
    # cbar = 0.125: deviations 0.375, 0.375, -0.625, -0.125 over 0.625.
    assert stats["credit/advantage_shift"] == pytest.approx((2 * 0.6 + 1 + 0.2) / 6, abs=1e-5)
    assert stats["credit/fallback_rate"] == 0
    assert set(stats) == {
        f"credit/{name}"
        for name in (
            "mean",
            "abs_mean",
            "entropy",
            "valid_share",
            "token_share",
            "advantage_shift",
            "fallback_rate",
            *(f"fallback/{cause}" for cause in CAUSES),
        )
    }


def test_token_advantages_of_gae_keep_their_mean() -> None:
    arguments = one([1.0, 0.0], [2, 2])
    arguments["advantages"] = torch.tensor([[0.1, -0.2, 0.3, 0.4]])
    result, _ = shape_advantages(**arguments, strength=0.5)
    assert result[0].tolist() == pytest.approx([0.6, 0.3, -0.2, -0.1], abs=1e-5)


def test_a_batch_without_any_step_is_left_alone() -> None:
    advantages = torch.ones(2, 3)
    shaped, stats = shape_advantages(
        advantages, torch.empty(2, 0), torch.full((2, 3), -1), torch.ones(2, 3), strength=1.0
    )
    assert torch.equal(shaped, advantages)
    assert stats["credit/fallback/no_steps"] == 1
    assert all(math.isfinite(value) for value in stats.values())


def test_blocks_of_rows_do_not_show() -> None:
    drawn = batch(0, responses=37, tokens=30_000, steps=9)
    whole, _ = shape_advantages(**drawn, strength=1.0)
    for row in (0, 8, 9, 36):
        alone, _ = shape_advantages(**{name: value[row : row + 1] for name, value in drawn.items()}, strength=1.0)
        assert torch.equal(alone[0], whole[row])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"credits": torch.ones(3, 4)}, r"advantages \(B, T\) \(2, 3\), credits \(B, K\) \(3, 4\)"),
        ({"step_ids": torch.zeros(2, 4, dtype=torch.long)}, r"step_ids \(B, T\) \(2, 4\)"),
        ({"response_mask": torch.ones(3)}, r"response_mask \(B, T\) \(3,\)"),
        ({"step_ids": torch.full((2, 3), 4)}, r"\[-1, 3\] for credits of 4 steps, got 4 to 4"),
        ({"step_ids": torch.full((2, 3), -2)}, "got -2 to -2"),
        ({"step_ids": torch.zeros(2, 3)}, "step_ids must be integer"),
        ({"credits": torch.ones(2, 4, dtype=torch.long)}, "must be floating"),
        ({"credits": torch.full((2, 4), math.inf)}, "must be finite"),
        ({"strength": -0.1}, "strength must be finite and >= 0"),
        ({"strength": NAN}, "strength must be finite"),
        ({"tolerance": 0.0}, "tolerance must be"),
        ({"min_valid": 1}, "min_valid must be >= 2"),
        ({"normalization": "zscore"}, "one of signed, positive"),
        ({"normalization": "siblings"}, "pass groups, step_keys and rewards"),
        ({"mapping": "multiply"}, "mapping must be one of add, scale, redistribute, got 'multiply'"),
        ({"groups": torch.zeros(3)}, r"groups must be \(2,\)"),
        ({"rewards": torch.zeros(2, 1)}, r"rewards must be \(2,\)"),
        ({"step_keys": torch.zeros(2, 3, dtype=torch.long)}, r"step_keys must be \(2, 4\)"),
        ({"step_keys": torch.zeros(2, 4)}, "step_keys must be integer"),
    ],
)
def test_mistakes_are_refused(changes: dict, message: str) -> None:
    good = {
        "advantages": torch.ones(2, 3),
        "credits": torch.ones(2, 4),
        "step_ids": torch.zeros(2, 3, dtype=torch.long),
        "response_mask": torch.ones(2, 3),
        "strength": 1.0,
    }
    with pytest.raises(ValueError, match=message):
        shape_advantages(**(good | changes))


def test_every_pair_of_normalizations_ranks_two_steps_alike() -> None:
    arguments = one([0.7, -0.2], [3, 2])
    shifts = {
        name: shape_advantages(**arguments, strength=1.0, normalization=name)[0][0, [0, 4]] for name in WITHIN_RESPONSE
    }
    for first, second in combinations(shifts.values(), 2):
        assert torch.equal(first.argsort(), second.argsort())
