"""The experiments and arms of scripts/evidence_credit.sh: what differs between them, and nothing else."""

import math

import pytest

from recipe.settings import read_settings
from recipe.studies.credit import AGENT_OPTIONS, RIVAL_LENGTH, TASKS
from tests.composing import composed

pytestmark = pytest.mark.slow  # each composes a configuration


@pytest.mark.parametrize("name", TASKS)
def test_a_task_trains_on_the_rows_and_the_start_that_the_study_makes(name: str):
    config, task = composed(f"experiment=credit_{name}"), TASKS[name]
    assert config.data.train_files == f"{task.data}/train.parquet"
    assert config.data.val_files == f"{task.data}/val.parquet"
    assert config.actor_rollout_ref.model.path == f"{task.data}/model"
    assert read_settings(config).skills.names == [task.start[1]]
    assert config.trainer.test_freq == config.trainer.total_training_steps  # the measure needs no validation between


def test_only_sixteen_lines_are_all_or_nothing():
    rewards = {
        name: composed(f"experiment=credit_{name}").reward.custom_reward_function.reward_kwargs.partial_credit
        for name in TASKS
    }
    assert rewards == {"parts16": False, "parts4": True, "chain8": True}
    partial = composed("experiment=credit_parts16", "arm=partial")
    assert partial.reward.custom_reward_function.reward_kwargs.partial_credit is True


def test_the_control_differs_from_credit_in_the_order_of_the_credits_only():
    found, control = (read_settings(composed("experiment=credit_parts16", f"arm={arm}")) for arm in (
        "credit", "credit_shuffled",
    ))  # fmt: skip
    assert (found.credit.ablation, control.credit.ablation) == ("none", "shuffled")
    assert found.credit.model_copy(update={"ablation": "shuffled"}) == control.credit
    stated = (found.credit.mapping, found.credit.normalization, found.credit.methods, found.credit.choice)
    assert stated == ("redistribute", "siblings", ("delete",), "longest")
    assert (found.credit.strength, found.credit.zero_advantage, found.credit.budget) == (1.0, True, 20)


def test_rivals_have_the_settings_of_their_papers():
    vineppo, spo, gigpo = (
        read_settings(composed("experiment=credit_parts16", f"arm={arm}")).credit for arm in ("vineppo", "spo", "gigpo")
    )
    assert (vineppo.mapping, vineppo.methods, vineppo.continuations) == ("values", ("resample",), 9)
    assert vineppo.budget >= 9 * 16  # a value before each of sixteen lines
    changed = {"unit": "token", "budget": 72, "max_probability": 0.9}
    assert vineppo.model_copy(update=changed) == spo
    assert (gigpo.mapping, gigpo.methods, gigpo.unit) == ("states", ("returns",), "turn")
    assert (gigpo.strength, gigpo.discount) == (1.0, 0.95)


def test_the_rate_of_rivals_falls_as_in_the_first_third_of_a_run():
    """verl's cosine at a third of the updates of credit_parts16."""
    whole = composed("experiment=credit_parts16").actor_rollout_ref.actor.optim.min_lr_ratio
    rivals = composed("experiment=credit_parts16", *RIVAL_LENGTH).actor_rollout_ref.actor.optim.min_lr_ratio
    assert rivals == pytest.approx(whole + (1 - whole) * (1 + math.cos(math.pi / 3)) / 2)


@pytest.mark.parametrize("arm", ["grpo", "gigpo", "credit_turns"])
def test_the_arms_of_the_agents_differ_in_their_credit_only(arm: str):
    plain, found = (composed("experiment=quickstart", *AGENT_OPTIONS, f"arm={one}") for one in ("grpo", arm))
    credit = read_settings(found).credit
    assert {"grpo": credit.kind == "off"}.get(arm, credit.unit == "turn")
    assert {key: value for key, value in found.items() if key not in ("credit",)} == {
        key: value for key, value in plain.items() if key not in ("credit",)
    }
