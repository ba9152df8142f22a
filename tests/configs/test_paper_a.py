"""The arms of paper A compose, match the typed settings, and differ only as their names say."""

import pytest

from recipe.settings import CreditSettings, read_settings
from tests.composing import composed

pytestmark = pytest.mark.slow  # each composes a configuration

ARMS = ("grpo", "delete", "truncate", "shapley", "shuffled", "inverted")


def credit(*words: str) -> CreditSettings:
    return read_settings(composed("experiment=evidence_a", *words)).credit


def test_there_are_the_methods_and_both_controls():
    found = {name: credit(f"arm={name}", "data.seed=4") for name in ARMS}
    assert {name: (each.kind, each.methods, each.ablation) for name, each in found.items()} == {
        "grpo": ("off", ("delete",), "none"),
        "delete": ("counterfactual", ("delete",), "none"),
        "truncate": ("counterfactual", ("truncate",), "none"),
        "shapley": ("counterfactual", ("shapley",), "none"),
        "shuffled": ("counterfactual", ("delete",), "shuffled"),
        "inverted": ("counterfactual", ("delete",), "inverted"),
    }
    del found["grpo"]
    assert {(each.budget, each.seed) for each in found.values()} == {(8, 4)}  # the same replays for all
    assert {(each.mapping, each.normalization, each.zero_advantage) for each in found.values()} == {
        ("add", "signed", False)
    }


def test_the_experiment_rewards_each_line_and_has_room_for_lines_that_are_too_many():
    config = composed("experiment=evidence_a")
    assert config.reward.custom_reward_function.reward_kwargs.partial_credit is True
    assert config.data.max_response_length >= 111  # tests/data_prep/micro/test_micro_parts.py, and the end of the turn
    assert read_settings(config).skills.names == ["parts"]
