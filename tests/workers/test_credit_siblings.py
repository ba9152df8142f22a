"""Laws of credit compared with siblings, and of the mappings: hand-worked values, signs, scale, bound, bad input."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from workers.choices import MAPPINGS, NORMALIZATIONS
from workers.credit import shape_advantages
from workers.credit.ablation import ablated

NAN = math.nan


def batch(seed: int, groups: int = 3, size: int = 4, steps: int = 5, tokens: int = 14) -> dict[str, Any]:
    """Groups of responses with random credits, some missing, some steps without key or in one sibling only."""
    generator = torch.Generator().manual_seed(seed)
    responses = groups * size
    number = torch.arange(responses) // size
    credits = torch.randint(-4, 5, (responses, steps), generator=generator) / 4.0
    names = torch.rand(responses, steps + 3, generator=generator).argsort(1)[:, :steps]
    without_key = torch.rand(responses, steps, generator=generator) < 0.15
    lengths = torch.randint(1, tokens + 1, (responses, 1), generator=generator)
    return {
        "advantages": torch.randn(responses, 1, generator=generator).expand(responses, tokens).clone(),
        "credits": credits.masked_fill(torch.rand(responses, steps, generator=generator) < 0.15, NAN),
        "step_ids": torch.randint(-1, steps, (responses, tokens), generator=generator),
        "response_mask": (torch.arange(tokens) < lengths).long(),
        "groups": number,
        "step_keys": (number[:, None] * (steps + 3) + names).masked_fill(without_key, -1),
        "rewards": torch.randint(0, 9, (responses,), generator=generator) / 8.0,
    }


def group(credits: list[list[float]], advantages: list[float], rewards: list[float]) -> dict[str, Any]:
    """One group; each response has the same steps, of one token each."""
    responses, steps = len(credits), len(credits[0])
    return {
        "advantages": torch.tensor(advantages)[:, None].repeat(1, steps),
        "credits": torch.tensor(credits),
        "step_ids": torch.arange(steps).repeat(responses, 1),
        "response_mask": torch.ones(responses, steps),
        "groups": torch.zeros(responses, dtype=torch.long),
        "step_keys": torch.arange(steps).repeat(responses, 1),
        "rewards": torch.tensor(rewards),
    }


def shaped(arguments: dict[str, Any], mapping: str = "add", **options: Any) -> Tensor:
    chosen: dict[str, Any] = {"strength": 1.0, "normalization": "siblings"} | options
    return shape_advantages(**arguments, mapping=mapping, **chosen)[0]


def together(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """One batch of both, whose groups and keys stay apart."""
    apart = second | {name: second[name] + 1000 * (second[name] >= 0) for name in ("groups", "step_keys")}
    return {name: torch.cat([first[name], apart[name]]) for name in first}


batches = st.integers(0, 10_000).map(batch)
mappings = st.sampled_from(MAPPINGS)
normalizations = st.sampled_from(NORMALIZATIONS)
# All but `add` within the response, which is absolute and holds nothing back.
rules = st.sampled_from([(m, n) for m in MAPPINGS for n in NORMALIZATIONS if m != "add" or n == "siblings"])

# Step 0 earns half of the tests in two of four siblings; step 1 costs the same in all.
# std of rewards and of credits 0.28868; delta = 0.28868 / sqrt(2); u = 0.25 / (0.28868 + 0.20412) = 0.50731.
HALVES = group([[0.5, 0.5], [0.0, 0.5], [0.5, 0.5], [0.0, 0.5]], [1.0, -1.0, 1.0, -1.0], [1.0, 0.5, 1.0, 0.5])


@pytest.mark.parametrize(
    ("mapping", "good", "bad"),
    [
        ("add", [1.50731, 1.0], [-1.50731, -1.0]),
        ("scale", [1.50731, 1.0], [-1.50731, -1.0]),
        ("redistribute", [0.50731, 0.0], [-0.50731, 0.0]),
    ],
)
def test_values_of_each_mapping(mapping: str, good: list[float], bad: list[float]) -> None:
    result = shaped(HALVES, mapping)
    assert result.tolist() == [pytest.approx(row, abs=1e-4) for row in (good, bad, good, bad)]


def test_values_of_the_controls() -> None:
    """Inverted: those of opposite credits. Shuffled: those of the steps to which the credits went."""
    inverted = shaped(HALVES | {"credits": ablated(HALVES["credits"], "inverted", 0)}, "redistribute")
    assert inverted.tolist() == [pytest.approx(row, abs=1e-4) for row in [[-0.50731, 0.0], [0.50731, 0.0]] * 2]
    shuffled = ablated(HALVES["credits"], "shuffled", seed=1)
    assert shuffled.tolist() == [[0.5, 0.5], [0.5, 0.0], [0.5, 0.5], [0.0, 0.5]]
    # Each step has 1/2 in three of four siblings: mean 3/8, std 1/4; delta = sqrt(2 / 16) / sqrt(2) = 1/4.
    result = shaped(HALVES | {"credits": shuffled}, "redistribute").tolist()
    right, first_wrong, second_wrong = [0.25, 0.25], [0.25, -0.75], [-0.75, 0.25]
    assert result == [pytest.approx(row, abs=1e-4) for row in (right, first_wrong, right, second_wrong)]


def test_half_of_the_strength_redistributes_half() -> None:
    result = shaped(HALVES, "redistribute", strength=0.5)
    assert result[:2].tolist() == [pytest.approx([0.75365, 0.5], abs=1e-4), pytest.approx([-0.75365, -0.5], abs=1e-4)]
    twice = shaped(HALVES, "redistribute", strength=2.0)
    assert twice[0].tolist() == pytest.approx([1.01461, 0.0], abs=1e-4)


def test_within_a_response_redistribute_keeps_its_sum_in_units_of_the_groups_advantage() -> None:
    arguments = group([[1.0, 0.0], [0.0, 0.0]], [3.0, 4.0], [1.0, 0.0])
    result = shaped(arguments, "redistribute", normalization="signed", strength=0.5)
    half = 0.5 * math.sqrt((9 + 16) / 2)
    assert result[0].tolist() == pytest.approx([3 + half, 3 - half], abs=1e-4)
    assert result[1].tolist() == [4.0, 4.0]


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_right_steps_of_a_failure_are_not_blamed_and_the_wrong_one_is(mapping: str) -> None:
    # Three of four lines right; the siblings have all four. Credit of a right line 1/4.
    rows = [[0.25, 0.25, 0.25, 0.0], *[[0.25] * 4] * 3]
    result = shaped(group(rows, [-1.5, 0.5, 0.5, 0.5], [0.75, 1.0, 1.0, 1.0]), mapping)
    wrong, right = float(result[0, 3]), result[0, :3].tolist()
    assert wrong < min(right)
    assert result[1, 3] > result[1, 0]
    if mapping == "redistribute":
        assert right == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_necessary_steps_of_right_code_are_not_punished_for_a_smaller_credit(mapping: str) -> None:
    rows = [[1.0, 1.0, 0.67, 0.65], [0.0, 1.0, 0.67, 0.67]]
    arguments = group(rows, [0.354, -0.354], [0.875, 0.0])
    for normalization in ("siblings", "signed"):
        if (mapping, normalization) != ("add", "signed"):
            assert (shaped(arguments, mapping, normalization=normalization, strength=3.0)[0] >= 0).all()


def test_a_small_difference_moves_little_and_a_large_one_much() -> None:
    small, large = (
        shaped(group([[0.5 + gap, 0.3], [0.5, 0.9], [0.5 + gap, 0.3], [0.5, 0.9]], [1.0, -1.0] * 2, [0.9, 0.2] * 2))
        for gap in (0.02, 0.6)
    )
    assert 0 < small[0, 0] - 1 < 0.05
    assert large[0, 0] - 1 > 0.4


def test_where_all_rewards_are_equal_the_other_groups_say_what_is_small() -> None:
    """One of 8 siblings differs by 0.02 in one of 16 steps; the other group's rewards have a deviation of 0.5."""
    credits = [[0.0] * 16 for _ in range(8)]
    credits[0][3] = 0.02
    equal = group(credits, [0.0] * 8, [0.5] * 8)
    other = group([[0.5] * 16] * 8, [1.0, -1.0] * 4, [1.0, 0.0645857] * 4)
    options: dict[str, Any] = {"zero_advantage": True, "mapping": "redistribute"}
    # Alone: |c - mean| is the scale. Beside the other: 0.02 * 7 / 8 / (0.02 / sqrt(8) + 0.5 / 4).
    assert shaped(equal, **options)[0, 3] == pytest.approx(1.0, abs=1e-3)
    assert shaped(together(equal, other), **options)[0, 3] == pytest.approx(0.0175 / (0.0070711 + 0.125), abs=1e-3)


def test_lines_that_a_right_program_needs_are_not_blamed_where_all_are_right() -> None:
    rows = [[0.2, 0.5]] + [[0.1, 0.5]] * 3  # the first program needs its step 0 for more tests
    result = shaped(group(rows, [0.0] * 4, [1.0] * 4), "redistribute", zero_advantage=True)
    assert result[0, 0] > 0
    assert result[1:, 0].tolist() == [0.0] * 3
    failed = shaped(group(rows, [0.0] * 4, [0.5] * 4), "redistribute", zero_advantage=True)
    assert (failed[1:, 0] < 0).all()
    harmful = shaped(group([[-0.2, 0.0], [-0.1, 0.0]], [0.0] * 2, [0.0] * 2), "redistribute", zero_advantage=True)
    assert harmful[:, 0].tolist() == [pytest.approx(-0.41421, abs=1e-4), 0.0]


def test_the_line_that_harms_is_blamed_and_not_the_right_one_that_it_overrides() -> None:
    """Two of eight programs override the right line c; deleting either c leaves what the other gives."""
    harmed, right = [1 / 8, 1 / 8, 0.0, -1 / 8], [1 / 8, 1 / 8, NAN, 1 / 8]  # a, b, the overridden c, c in force
    arguments = group([harmed] * 2 + [right] * 6, [0.0] * 8, [0.75] * 2 + [0.875] * 6)
    arguments["step_keys"][2:, 2] = -1
    arguments["step_ids"][2:, 2] = -1
    result = shaped(arguments, "redistribute", zero_advantage=True)
    assert result[0].tolist() == pytest.approx([0.0, 0.0, 0.0, -1.0], abs=1e-4)
    assert result[2, 3] == pytest.approx(1 / 3, abs=1e-4)


def test_a_mean_over_few_siblings_counts_less() -> None:
    # Half of the siblings have credit 1, the others 0; all rewards are equal.
    gains = []
    for size in (2, 4, 16):
        rows = [[1.0, 0.5], [0.0, 0.5]] * (size // 2)
        gains.append(float(shaped(group(rows, [1.0, -1.0] * (size // 2), [0.5] * size))[0, 0]) - 1)
    assert gains == sorted(gains)
    # 0.5 / std / (1 + 1 / sqrt(2)), with std 0.70711, 0.57735 and 0.51640.
    assert gains == pytest.approx([0.41421, 0.50731, 0.56719], abs=1e-4)


def test_a_group_without_advantage_learns_from_credit_at_the_scale_of_the_others() -> None:
    failed = HALVES | {"advantages": torch.zeros(4, 2), "rewards": torch.tensor([0.5, 0.0, 0.5, 0.0])}
    assert torch.equal(shaped(failed), torch.zeros(4, 2))
    for mapping in MAPPINGS:
        alone = shaped(failed, mapping, zero_advantage=True)
        assert alone[:2].tolist() == [pytest.approx([0.50731, 0.0], abs=1e-4), pytest.approx([-0.50731, 0], abs=1e-4)]
        beside = together(HALVES | {"advantages": 0.01 * HALVES["advantages"]}, failed)
        torch.testing.assert_close(shaped(beside, mapping, zero_advantage=True)[4:], 0.01 * alone)


def test_a_step_alone_in_its_group_is_compared_within_its_response() -> None:
    arguments = group([[1.0, 0.0], [0.5, 0.5]], [1.0, -1.0], [1.0, 0.0]) | {"step_keys": torch.tensor([[0, 1], [2, 3]])}
    result, stats = shape_advantages(**arguments, strength=1.0, normalization="siblings")
    # std 0.5, delta = 0.70711 / sqrt(2) = 0.5: u = 0.5 / 1.
    assert result[0].tolist() == pytest.approx([1.5, 0.5], abs=1e-4)
    assert result[1].tolist() == [-1.0, -1.0]
    assert stats["credit/shared_share"] == 0
    assert stats["credit/fallback_rate"] == 0  # of the group, in which one has what differs
    redistributed = shaped(arguments, "redistribute")
    assert redistributed[0].tolist() == pytest.approx([1.5, 0.5], abs=1e-4)


def test_a_step_that_failures_left_out_keeps_the_mean_advantage_of_those_that_have_it() -> None:
    # Two of four siblings leave out step 1 and fail; another step is wrong in one of the others.
    arguments = group([[0.5, 0.5], [0.5, NAN], [0.0, 0.5], [0.5, NAN]], [1.5, -0.5, -0.5, -0.5], [1.0, 0.5, 0.5, 0.5])
    arguments["step_keys"] = torch.tensor([[0, 1], [0, -1], [0, 1], [0, -1]])
    arguments["step_ids"][[1, 3], 1] = -1
    result = shaped(arguments, "redistribute")
    assert result[[0, 2], 1].tolist() == [0.5, 0.5]
    # Step 0, which all have, is compared: std 0.25, delta = 0.25 / sqrt(1.5), a = sqrt(0.75); largest 0.375.
    assert result[:3, 0].tolist() == pytest.approx([0.23836, 0.23836, -0.71508], abs=1e-4)


def test_what_all_write_is_not_pushed_down_where_a_sibling_does_not_parse() -> None:
    """The last program keeps its advantage on both lines; those of its siblings balance it."""
    rows = [[0.5, 0.5], [0.5, 0.0], [0.5, 0.5], [NAN, NAN]]
    arguments = group(rows, [0.866, -0.866, 0.866, -0.866], [1.0, 0.5, 1.0, 0.0])
    arguments["step_keys"][3] = -1
    result = shaped(arguments, "redistribute")
    assert result[3].tolist() == pytest.approx([-0.866] * 2)
    assert result.sum(0).tolist() == pytest.approx([0.0] * 2, abs=1e-6)
    assert result[:3, 0].tolist() == pytest.approx([0.866 / 3] * 3)
    assert result[1, 1] < 0 < result[0, 1]


@pytest.mark.slow
@given(batches, mappings, normalizations, st.booleans())
@settings(max_examples=60, deadline=None)
def test_strength_zero_is_the_plain_algorithm_bit_for_bit(
    drawn: dict[str, Any], mapping: str, normalization: str, gate: bool
) -> None:
    drawn["advantages"][:4] = -0.0
    drawn["advantages"][drawn["response_mask"] == 0] = NAN
    result = shaped(drawn, mapping, normalization=normalization, zero_advantage=gate, strength=0.0)
    assert torch.equal(result.view(torch.int32), drawn["advantages"].view(torch.int32))


@pytest.mark.slow
@given(batches, rules, st.floats(0.1, 3), st.booleans())
@settings(max_examples=80, deadline=None)
def test_where_advantage_and_credit_agree_the_sign_stays(
    drawn: dict[str, Any], rule: tuple[str, str], strength: float, gate: bool
) -> None:
    result = shaped(drawn, rule[0], normalization=rule[1], strength=strength, zero_advantage=gate)
    credit = torch.nn.functional.pad(drawn["credits"], (1, 0), value=NAN).gather(1, drawn["step_ids"] + 1)
    agree = credit.nan_to_num(0.0) * drawn["advantages"] > 0
    assert (result * drawn["advantages"])[agree].min() >= 0


@pytest.mark.slow
@given(batches, rules, st.sampled_from([0.01, 128.0, 1e6]))
@settings(max_examples=60, deadline=None)
def test_shifts_scale_with_the_advantages(drawn: dict[str, Any], rule: tuple[str, str], factor: float) -> None:
    drawn["advantages"][:4] = 0.0
    options = {"normalization": rule[1], "zero_advantage": True}
    scaled = drawn | {"advantages": drawn["advantages"] * factor}
    torch.testing.assert_close(
        shaped(scaled, rule[0], **options) / factor, shaped(drawn, rule[0], **options), atol=1e-5, rtol=1e-4
    )


@pytest.mark.slow
@given(batches, rules, st.floats(0.1, 3))
@settings(max_examples=60, deadline=None)
def test_no_token_moves_beyond_the_bound(drawn: dict[str, Any], rule: tuple[str, str], strength: float) -> None:
    plain = drawn["advantages"]
    change = (shaped(drawn, rule[0], normalization=rule[1], strength=strength) - plain).abs() * drawn["response_mask"]
    lengths = drawn["response_mask"].any(1)
    squares = plain[:, 0].square() * lengths
    scale = (squares.view(3, 4).sum(1) / lengths.view(3, 4).sum(1)).sqrt().repeat_interleave(4)[:, None]
    of_siblings = plain[:, 0].view(3, 4).abs().amax(1).repeat_interleave(4)[:, None]
    own = min(strength, 1.0) * (plain.abs() + of_siblings) * (rule[0] == "redistribute")
    size = plain.abs() if rule[0] == "scale" else scale
    assert (change <= strength * size + own + 1e-5).all()


def test_a_response_without_the_step_that_differs_blames_no_step_that_all_have() -> None:
    """The second step differs between three answers, and the fourth, which failed, lacks it."""
    arguments = group(
        [[0.5, 0.5], [0.5, 0.5], [0.5, 0.0], [0.5, NAN]], [0.866, 0.866, -0.866, -0.866], [1, 1, 0.5, 0.5]
    )
    arguments["step_keys"][3, 1] = -1
    result = shaped(arguments, "redistribute")
    assert result[:, 0].tolist() == [0.0] * 4
    assert result[:3, 1].sum().item() == pytest.approx(0.866, abs=1e-6)
    assert result[2, 1] < -0.25


def test_a_credit_at_its_siblings_mean_moves_as_one_beside_it() -> None:
    """The signal has no jump where a response's credit is the mean of its key."""
    at_mean, beside = (
        shaped(group([[0.0], [middle], [1.0]], [-1.0, 0.2, 0.8], [0.0, 0.5, 1.0]), "redistribute")
        for middle in (0.5, 0.5001)
    )
    torch.testing.assert_close(at_mean, beside, atol=1e-3, rtol=0)


@pytest.mark.slow
@given(batches)
@settings(max_examples=40, deadline=None)
def test_siblings_lose_what_a_step_gains(drawn: dict[str, Any]) -> None:
    """With redistribute the siblings' advantages add up to GRPO's at each step, whether or not all of them have it.

    Those held back at 0 are left out.
    """
    level = drawn["advantages"][:, 0].view(3, 4)
    plain = (level - level.mean(1, keepdim=True)).view(12, 1).repeat(1, 5)
    drawn |= {"step_ids": torch.arange(5).repeat(12, 1), "response_mask": torch.ones(12, 5), "advantages": plain}
    keys = torch.arange(3).repeat_interleave(4)[:, None] * 5 + torch.arange(5)
    drawn["step_keys"] = keys.masked_fill(drawn["credits"].isnan(), -1)
    result = shaped(drawn, "redistribute")
    sums, expected = (values.view(3, 4, 5).sum(1) for values in (result, plain))
    whole = ((~drawn["credits"].isnan()).view(3, 4, 5).sum(1) != 1) & (result.view(3, 4, 5) != 0).all(1)
    torch.testing.assert_close(sums[whole], expected[whole], atol=1e-5, rtol=1e-5)


def test_a_step_that_the_whole_group_has_alike_moves_nothing_not_even_by_rounding() -> None:
    """GRPO's advantages add up to 0 but for rounding, which Adam would scale up."""
    rewards = torch.tensor([1.0] * 7 + [0.0])
    advantages = ((rewards - rewards.mean()) / (rewards.std() + 1e-6)).tolist()
    assert sum(advantages) != 0
    rows = [[1 / 16, 1 / 16]] * 7 + [[1 / 16, 0.0]]
    result, stats = shape_advantages(
        **group(rows, advantages, [1.0] * 7 + [15 / 16]),
        strength=1.0, mapping="redistribute", normalization="siblings",
    )  # fmt: skip
    assert result[:, 0].tolist() == [0.0] * 8
    assert stats["credit/held_share"] == 0


def test_a_step_of_a_failure_that_is_worse_than_its_siblings_is_never_rewarded() -> None:
    """One of eight is right, one has a wrong line, six do not parse: having parsed makes a wrong line no better."""
    rows = [[0.5, 0.5], [0.5, 0.0], *[[NAN, NAN]] * 6]
    arguments = group(rows, [2.475] + [-0.3536] * 7, [1.0, 0.5] + [0.0] * 6)
    arguments["step_keys"][2:] = -1
    result = shaped(arguments, "redistribute")
    # Abar 1.06066, a 0.93543. Step 1: std 0.35355, delta = 0.37201 / sqrt(2), so u = +-0.25 / 0.61660 = +-0.40545.
    assert result[0].tolist() == pytest.approx([1.06066, 1.43993], abs=1e-3)
    assert result[1].tolist() == pytest.approx([1.06066, 0.0], abs=1e-3)
    assert (result[2:] == arguments["advantages"][2:]).all()


def test_where_one_response_alone_has_a_harmful_step_its_siblings_balance() -> None:
    """All write step 0 alike; the first, which fails, also writes one that costs."""
    rows = [[0.5, -0.5], *[[0.5, NAN]] * 3]
    arguments = group(rows, [-1.5, 0.5, 0.5, 0.5], [0.5, 1.0, 1.0, 1.0])
    arguments["step_keys"] = torch.tensor([[0, 1], *[[0, -1]] * 3])
    arguments["step_ids"][1:, 1] = -1
    result = shaped(arguments, "redistribute")
    assert result[:, 0].tolist() == [0.0] * 4
    assert result[0, 1] < -1.5


def test_padding_does_not_open_a_group_without_advantage() -> None:
    arguments = HALVES | {"advantages": torch.zeros(4, 2), "rewards": torch.tensor([0.5, 0.0, 0.5, 0.0])}
    padded = {
        name: torch.nn.functional.pad(arguments[name], (0, 1), value=fill)
        for name, fill in (("advantages", NAN), ("step_ids", -1), ("response_mask", 0))
    }
    assert torch.equal(shaped(arguments | padded)[:, :2], torch.zeros(4, 2))


@pytest.mark.slow
@given(batches, mappings, st.randoms(use_true_random=False), st.booleans())
@settings(max_examples=40, deadline=None)
def test_order_padding_and_the_rest_of_the_batch_change_nothing(
    drawn: dict[str, Any], mapping: str, random: Any, gate: bool
) -> None:
    expected = shaped(drawn, mapping, zero_advantage=gate)
    order = list(range(len(expected)))
    random.shuffle(order)
    permuted = {name: value[order] for name, value in drawn.items()}
    torch.testing.assert_close(shaped(permuted, mapping, zero_advantage=gate), expected[order])

    fills: dict[str, float] = {"advantages": 0.0, "response_mask": 0, "step_ids": -1, "credits": NAN, "step_keys": -1}
    wide = drawn | {name: torch.nn.functional.pad(drawn[name], (0, 3), value=fill) for name, fill in fills.items()}
    torch.testing.assert_close(shaped(wide, mapping, zero_advantage=gate)[:, :-3], expected)

    # Groups with advantage and different rewards depend on nothing outside.
    drawn["rewards"][4::4], drawn["rewards"][5::4] = 0.125, 0.875
    expected = shaped(drawn, mapping, zero_advantage=gate)
    part = {name: value[4:] for name, value in drawn.items()}
    torch.testing.assert_close(shaped(part, mapping, zero_advantage=gate), expected[4:])
    numbered = drawn | {"step_keys": torch.where(drawn["step_keys"] < 0, -1, 7 + 3 * drawn["step_keys"])}
    torch.testing.assert_close(shaped(numbered, mapping, zero_advantage=gate), expected)


@pytest.mark.parametrize("mapping", MAPPINGS)
@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        pytest.param({"groups": torch.arange(4), "step_keys": torch.arange(8).view(4, 2)}, "constant", id="of one"),
        pytest.param({"credits": torch.full((4, 2), 0.25)}, "constant", id="all siblings equal"),
        pytest.param({"credits": torch.zeros(4, 2)}, "zero", id="all zero"),
        pytest.param({"credits": torch.full((4, 2), NAN)}, "too_few_valid", id="NaN"),
        pytest.param({"step_ids": torch.full((4, 2), -1)}, "no_steps", id="no steps"),
        pytest.param({"advantages": torch.zeros(4, 2)}, "zero_advantage", id="gate shut"),
    ],
)
def test_nothing_to_compare_is_a_counted_fallback(mapping: str, changes: dict[str, Tensor], cause: str) -> None:
    arguments = HALVES | {"credits": torch.tensor([[0.5, 0.5]] * 4)} if "groups" in changes else HALVES
    result, stats = shape_advantages(**(arguments | changes), strength=1.0, mapping=mapping, normalization="siblings")
    assert torch.equal(result, (arguments | changes)["advantages"])
    assert stats[f"credit/fallback/{cause}"] == stats["credit/fallback_rate"] == 1


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_hostile_numbers_stay_finite(mapping: str) -> None:
    steps = 3000
    drawn = batch(1, steps=steps, tokens=steps)
    drawn["step_ids"] = torch.arange(steps).repeat(12, 1)
    drawn["rewards"][2:5] = NAN
    drawn["advantages"][:4] = 0.0
    drawn["advantages"][4:8] *= 1e6
    drawn["credits"][:, 7] = NAN
    result, stats = shape_advantages(
        **drawn, strength=1.0, mapping=mapping, normalization="siblings", zero_advantage=True
    )
    assert result.isfinite().all()
    assert all(math.isfinite(value) for value in stats.values())
    assert 0.5 < stats["credit/shared_share"] < 1


def test_credit_that_a_step_holds_back_is_counted() -> None:
    arguments = group([[1.0, 0.5], [0.0, 0.5], [1.0, 0.5], [0.5, 0.5]], [1.0, -1.0, 1.0, 0.1], [1.0, 0.0, 1.0, 1.0])
    arguments["credits"][3, 0] = 0.1
    result, stats = shape_advantages(**arguments, strength=1.0, mapping="add", normalization="siblings")
    assert result[3, 0] == 0
    assert stats["credit/held_share"] == 1 / 8
