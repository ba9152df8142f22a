"""The arms of paper A compose, are typed, and differ in what they are named for."""

import subprocess

import pytest

from recipe.training.settings import CreditSettings, read_settings
from tests.composing import composed

pytestmark = pytest.mark.slow  # each composes a configuration


def arms() -> dict[str, list[str]]:
    shell = 'source scripts/arms_a.sh; for arm in "${!ARM_WORDS[@]}"; do echo "$arm ${ARM_WORDS[$arm]}"; done'
    lines = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=True).stdout.splitlines()
    return {line.split()[0]: line.split()[1:] for line in lines}


def credit(*words: str) -> CreditSettings:
    return read_settings(composed("experiment=evidence_a", *words)).credit


def test_there_are_the_methods_and_both_controls():
    found = {name: credit(*words) for name, words in arms().items()}
    assert {name: (each.kind, each.method, each.ablation) for name, each in found.items() if name != "grpo"} == {
        "delete": ("counterfactual", "delete", "none"),
        "truncate": ("counterfactual", "truncate", "none"),
        "shapley": ("counterfactual", "shapley", "none"),
        "shuffled": ("counterfactual", "delete", "shuffled"),
        "inverted": ("counterfactual", "delete", "inverted"),
    }
    assert found["grpo"].kind == "off"
    assert {each.budget for name, each in found.items() if name != "grpo"} == {8}  # the same replays for all


def test_the_experiment_rewards_each_line_and_has_room_for_lines_that_are_too_many():
    config = composed("experiment=evidence_a")
    assert config.reward.custom_reward_function.reward_kwargs.partial_credit is True
    assert config.data.max_response_length >= 111  # tests/data_prep/test_micro_parts.py, and the end of the turn
    assert read_settings(config).skills.names == ["parts"]
