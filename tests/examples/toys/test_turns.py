"""Credit per turn: hand-made episodes of an agent, and why strength 2 of all or nothing."""

import pytest
import torch

from examples.toys import turns
from examples.toys.turns import ARMS, PROMPTS, SAMPLES, Episodes, learn, sample, turn_advantages

CREDIT = {arm.name: arm for arm in ARMS}


def of_one_turn(right: int) -> Episodes:
    """One turn per sample; of each prompt so many are right, and the others half right."""
    ratio = torch.full((PROMPTS * SAMPLES, 3), torch.nan)
    ratio[:, 0] = torch.where(torch.arange(PROMPTS * SAMPLES) % SAMPLES < right, 1.0, 0.5)
    words = torch.where(ratio[:, :1] == 1, torch.zeros(1, 4), torch.tensor([[0.0, 0, 1, 1]])).long()
    return Episodes(words[:, None].expand(-1, 3, -1), ~ratio.isnan(), ratio)


def test_samples_stop_when_they_are_right_and_only_equal_pasts_are_one_state():
    logits = torch.stack([turns._start(chance) for chance in (0.8, 0.5, 0.5)])
    episodes = sample(logits, torch.Generator().manual_seed(0))
    right = (episodes.words == 0).all(-1)
    assert (episodes.taken[:, 1] == ~right[:, 0]).all()
    assert (episodes.taken[:, 2] == ~right[:, :2].any(1)).all()
    states, group = episodes.states, episodes.group
    assert (states >= 0).equal(episodes.taken)
    second = [
        (int(state), (int(prompt), tuple(words)))
        for state, prompt, words in zip(states[:, 1], group, episodes.words[:, 0].tolist(), strict=True)
        if state >= 0
    ]
    assert len(set(second)) == len({state for state, _ in second}) == len({past for _, past in second})
    assert len(states[:, 0].unique()) == PROMPTS


# 2 a (c - mean) / (2 std) with a = sqrt(7 / 8), GRPO's root mean square; 2 a (c - mean) / (7 / 8) where one differs.
@pytest.mark.parametrize(("right", "share"), [(1, 0.756), (2, 0.935), (4, 0.935), (7, 0.756)])
@pytest.mark.parametrize("name", ["credit, strength 2", "credit, strength 2, all or nothing"])
def test_with_strength_2_a_single_turn_has_most_of_grpos_advantage(name: str, right: int, share: float):
    episodes = of_one_turn(right)
    grpo, credit = (turn_advantages(arm, episodes)[:, 0] for arm in (CREDIT["grpo"], CREDIT[name]))
    assert (credit / grpo).tolist() == pytest.approx([share] * len(credit), abs=0.001)


def test_half_right_turns_of_a_group_that_failed_teach_nothing_where_half_right_counts_as_wrong():
    episodes = of_one_turn(0)
    ratio = episodes.ratio.clone()
    ratio[::2, 0] = 0.0
    mixed = Episodes(episodes.words, episodes.taken, ratio)
    assert turn_advantages(CREDIT["credit, strength 2"], mixed)[:, 0].abs().min() > 0.1
    assert turn_advantages(CREDIT["credit, strength 2, all or nothing"], mixed).abs().max() == 0


@pytest.mark.slow
def test_credit_of_half_right_turns_is_behind_and_of_right_ones_ahead():
    names = ("grpo", "credit, strength 1", "credit, strength 2, all or nothing")
    means = [torch.tensor([learn(CREDIT[name], 0.12, 24, seed)[0] for seed in range(8)]).mean() for name in names]
    assert means[1] < means[0] < means[2]
