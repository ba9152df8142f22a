"""The experiments of the studies compose on one node, are valid for verl, and have the studies' own settings."""

from functools import cache

import pytest
from omegaconf import DictConfig

from recipe.preflight import compose_training
from recipe.settings import read_settings
from tests.configs.test_platforms import accepted_by_verl

pytestmark = pytest.mark.slow  # each composes a configuration

FILES = ("data.train_files=train.parquet", "data.val_files=val.parquet")


@cache
def study(name: str, preset: str) -> DictConfig:
    words = (f"experiment={name}", "platform=gpu_1x8", f"model_preset={preset}", "adaptation=full")
    return compose_training([*words, *FILES])


@pytest.mark.parametrize(
    ("name", "preset"),
    [("countdown", "qwen3_4b"), ("gsm8k", "qwen2_5_3b"), ("code_grpo", "qwen2_5_coder_7b"), ("npg_muse", "qwen3_8b")],
)
def test_every_study_is_a_valid_run_on_one_node(name: str, preset: str) -> None:
    config = study(name, preset)
    accepted_by_verl(config)
    assert read_settings(config).run.experiment == name


@pytest.mark.parametrize(("name", "rate", "batch"), [("countdown", 2e-6, 64), ("gsm8k", 1e-6, 32)])
def test_countdown_and_gsm8k_have_the_settings_of_their_study(name: str, rate: float, batch: int) -> None:
    config = study(name, "qwen3_4b")
    assert (config.actor_rollout_ref.actor.optim.lr, config.data.train_batch_size) == (rate, batch)
    assert config.actor_rollout_ref.rollout.n == 16
    assert (config.algorithm.use_kl_in_reward, config.algorithm.kl_ctrl.kl_coef) == (True, 0.01)


def test_an_experiment_has_the_last_word_over_the_defaults() -> None:
    assert study("code_grpo", "qwen2_5_coder_7b").sandbox.timeout == 30.0
    assert study("npg_muse", "qwen3_8b").sandbox.timeout == 10.0


def test_npg_muse_has_the_settings_of_its_study() -> None:
    config = study("npg_muse", "qwen3_8b")
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    assert (config.data.train_batch_size, actor.ppo_mini_batch_size, rollout.n) == (128, 32, 8)
    assert (config.data.max_prompt_length, config.data.max_response_length) == (5000, 8192)
    assert (actor.optim.lr, actor.use_kl_loss, actor.kl_loss_coef, actor.kl_loss_type) == (
        1e-6,
        True,
        0.001,
        "low_var_kl",
    )
    assert (actor.ulysses_sequence_parallel_size, rollout.temperature, rollout.val_kwargs.temperature) == (4, 1.0, 0.8)
    assert (config.trainer.test_freq, config.trainer.total_epochs) == (25, 1)
