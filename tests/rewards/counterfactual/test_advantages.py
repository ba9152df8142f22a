"""Which groups have advantage, by verl's own estimators; and which runs leave replays out for it."""

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from verl.trainer.ppo.core_algos import get_adv_estimator_fn

from rewards.counterfactual.groups import GROUP_RELATIVE, group_advantage, needs_siblings, skips
from tests.composing import composed

GATE_SHUT = "credit.zero_advantage=false"


def algorithm(estimator, **options):
    return OmegaConf.create({"adv_estimator": estimator, "use_kl_in_reward": False, "gamma": 1.0} | options)


@pytest.mark.slow
@pytest.mark.parametrize("estimator", GROUP_RELATIVE)
@pytest.mark.parametrize("scores", [[0.0], [1.0], [0.1] * 3, [0.0] * 4, [1.0] * 8, [0.0, 0.1], [0.5, 0.5, 1.0]])
def test_the_rule_of_replays_is_what_verls_estimator_makes_of_the_group(estimator, scores):
    has_advantage = group_advantage(algorithm(estimator))
    assert has_advantage is not None
    rewards = torch.tensor([*scores, 1.0, 0.0], dtype=torch.float64)[:, None]
    index = np.array([0] * len(scores) + [1, 1])
    advantages, _ = get_adv_estimator_fn(estimator)(
        token_level_rewards=rewards.clone(), response_mask=torch.ones_like(rewards), index=index,
        config=algorithm(estimator),
    )  # fmt: skip
    assert has_advantage(scores) == bool((advantages[: len(scores)].abs() > 0.01).any())


@pytest.mark.parametrize("estimator", ["gae", "reinforce_plus_plus", "reinforce_plus_plus_baseline", "remax", "gdpo"])
def test_scores_of_a_group_decide_nothing_for_other_estimators_or_with_kl_in_the_reward(estimator):
    assert group_advantage(algorithm(estimator)) is None
    assert group_advantage(algorithm("grpo", use_kl_in_reward=True)) is None


@pytest.mark.parametrize(
    ("arguments", "replays_equal_groups"),
    [
        ([], True),
        ([GATE_SHUT], False),
        ([GATE_SHUT, "arm=ppo"], True),
        ([GATE_SHUT, "arm=reinforce"], True),
        ([GATE_SHUT, "credit.skip_equal_groups=false"], True),
        ([GATE_SHUT, "algorithm.use_kl_in_reward=true"], True),
    ],
)
@pytest.mark.slow
def test_a_run_skips_equal_groups_where_credit_would_move_nothing(arguments, replays_equal_groups):
    config = composed("experiment=quickstart", "credit=counterfactual", *arguments)
    assert (skips(config) is None) == replays_equal_groups
    assert needs_siblings(config) != replays_equal_groups
    config.credit.methods = ["delete", "replace"]
    assert needs_siblings(config)
    config.credit.methods, config.credit.choice = ["delete"], "informative"
    assert needs_siblings(config)
    config.credit.choice, config.credit.align = "longest", True
    assert needs_siblings(config)
    assert not needs_siblings(composed("experiment=quickstart"))
