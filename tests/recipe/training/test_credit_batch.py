from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from verl.trainer.config import AlgoConfig
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage, get_adv_estimator_fn

from recipe.records.run_directory import RunDirectory
from recipe.settings import CreditSettings
from recipe.training.credit_batch import (
    CreditFailedError,
    check_failures,
    credit_tensors,
    pass_ratios,
    replay_metrics,
    shaped_by_credit,
    step_keys,
)
from recipe.training.step_samples import jagged
from rewards.sample_credit import SampleCredit
from workers.choices import Ablation, CreditMapping
from workers.credit import shape_advantages


def credit(values, steps, cause="", keys=(), **counts) -> SampleCredit:
    return SampleCredit(
        values=np.array(values, np.float32), steps=np.array(steps, np.int32), cause=cause, keys=keys,
        tests=np.zeros((0, 0)), spans=np.zeros((0, 2)), **counts,
    )  # fmt: skip


def info(*arguments, **fields) -> dict:
    return credit(*arguments, **fields).as_info()


def shape(advantages, infos, uids=("a", "a"), step=1, log_probs=None, **keys):
    """`shaped_by_credit` with these settings of `credit`."""
    settings = CreditSettings(kind="counterfactual", **keys)
    return shaped_by_credit(advantages, torch.ones_like(advantages), uids, infos, settings, step, log_probs)


def test_credits_of_different_lengths_are_padded_with_nothing():
    credits, steps = credit_tensors([credit([1.0, 0.0], [0, 0, 1]), credit([], [-1, -1], "one_step"), None], tokens=4)
    assert credits.shape == (3, 2)
    assert credits[0].tolist() == [1.0, 0.0]
    assert credits[1:].isnan().all()
    assert steps.tolist() == [[0, 0, 1, -1], [-1] * 4, [-1] * 4]


def test_they_shape_advantages_and_leave_the_rest_bit_for_bit():
    credits, steps = credit_tensors([credit([1.0, 0.0], [0, 0, 1]), None], tokens=3)
    advantages = torch.tensor([[0.5, 0.5, 0.5], [-0.25, -0.25, -0.25]])
    shaped, _ = shape_advantages(advantages, credits, steps, torch.ones(2, 3), strength=1.0)
    assert shaped[0].mean() == advantages[0].mean()
    assert shaped[0, 0] > 0.5 > shaped[0, 2]
    assert torch.equal(shaped[1], advantages[1])


def test_a_step_without_any_credit_is_a_batch_without_columns():
    credits, steps = credit_tensors([None, None], tokens=2)
    assert credits.shape == (2, 0)
    assert (steps == -1).all()


def test_metrics_add_up_costs_and_name_causes():
    counts: dict[str, float] = {"asked": 4, "invalid": 1, "replays": 3, "requests": 4, "cache_hits": 1, "generated": 7}
    counts |= {"seconds": 0.5, "busy_seconds": 0.25}
    spared = credit([], [], "equal_group")
    metrics = replay_metrics([credit([1.0], [0], **counts), spared, spared, None])
    assert metrics["credit/replays"] == 3
    assert metrics["credit/replay_seconds"] == 0.5
    assert metrics["credit/generated_tokens"] == 7
    assert metrics["credit/busy_seconds"] == 0.25
    assert metrics["credit/valid_intervention_share"] == 0.75
    assert metrics["credit/cache_hit_share"] == 0.25
    assert metrics["credit/uncredited/equal_group"] == 2 / 3


WITHIN: dict = {"mapping": "add", "normalization": "signed", "zero_advantage": False}


def shaped(ablation: Ablation, step: int = 1) -> list[list[float]]:
    """A batch of two samples of different lengths, one with credits."""
    infos = [info([1.0, 0.5, 0.0, -1.0, 0.25, 0.75], range(6)), info([], [-1, -1], "equal_group")]
    advantages = jagged([torch.full((6,), 0.5), torch.full((2,), -1.0)])
    rows, metrics = shape(advantages, infos, step=step, ablation=ablation, seed=5, **WITHIN)
    assert metrics["credit/fallback/no_steps"] == 0.5
    return [row.tolist() for row in rows]


def test_controls_shape_with_the_same_credits_in_another_order_or_with_the_other_sign():
    plain, shuffled, inverted = (shaped(ablation) for ablation in ("none", "shuffled", "inverted"))
    assert plain[1] == shuffled[1] == inverted[1] == [-1.0, -1.0]
    assert sorted(shuffled[0]) == sorted(plain[0])
    assert shuffled[0] != plain[0]
    assert [round(1.0 - value, 5) for value in inverted[0]] == [round(value, 5) for value in plain[0]]
    assert shaped("shuffled") == shuffled
    assert shaped("shuffled", step=2) != shuffled


def test_rivals_are_chosen_by_the_mapping_and_give_what_their_papers_say():
    infos = [info([0.5, 0.0], [0, 0, 1, -1]), info([-0.5], [0, 0])]
    for row, keys in zip(infos, (["state s", "state t"], ["state s"]), strict=True):
        row["credit_keys"] = keys
    advantages = jagged([torch.full((4,), 1.0), torch.full((2,), -1.0)])
    log_probs = jagged([torch.tensor([0.5, 0.95, 0.5, 0.5]).log(), torch.tensor([0.5, 0.5]).log()])

    def rows(**chosen):
        return [row.tolist() for row in shape(advantages, infos, log_probs=log_probs, **chosen)[0]]

    # 0.5, 0.5, 0, 0, -0.5, -0.5 have mean 0 and variance 1 / 5.
    one = 0.5 * 5**0.5
    assert rows(mapping="values")[0] == pytest.approx([one, one, 0.0, 0.0], abs=1e-5)
    masked = rows(mapping="values", max_probability=0.9)
    # Without the second token: mean -0.1, variance (0.36 + 2 * 0.01 + 2 * 0.16) / 4.
    std = 0.175**0.5
    expected = [0.6 / std, 0.0, 0.1 / std, 0.1 / std, -0.4 / std, -0.4 / std]
    assert [*masked[0], *masked[1]] == pytest.approx(expected, abs=1e-5)
    # Returns 0.5 and -0.5 in state s: mean 0, std sqrt(0.5).
    step = 0.5**0.5
    found = rows(mapping="states", strength=2.0)
    assert found[0] == pytest.approx([1.0 + 2 * step, 1.0 + 2 * step, 1.0, 1.0], abs=1e-4)
    assert found[1] == pytest.approx([-1.0 - 2 * step] * 2, abs=1e-4)


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"mapping": "values", "strength": 0.5}, "strength is 0.5, set 1"),
        ({"max_probability": 0.9}, "max_probability needs mapping=values, and mapping is redistribute"),
        ({"unit": "token"}, "set methods=.resample. and prefixes=even"),
        ({"methods": ["returns"], "discount": 1.5}, "credit.discount is 1.5"),
        ({"methods": ["returns", "delete"]}, "returns must be the only method"),
    ],
)
def test_settings_of_a_rival_that_do_not_fit_are_refused(chosen, message):
    with pytest.raises(ValueError, match=message):
        CreditSettings(kind="counterfactual", **chosen)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.prepare(str(tmp_path), "credit", "r")


def causes(**counts: int) -> list[dict]:
    """Samples by the reason why they have no credit; `none`: samples with credit."""
    return [
        info([], [], "" if cause == "none" else cause, reason="a reason" if cause == "failed" else "")
        for cause, count in counts.items()
        for _ in range(count)
    ]


@pytest.mark.parametrize(
    "infos",
    [[], [{}, {}], causes(none=9, failed=1), causes(equal_group=4), causes(flaky=3), causes(none=8, masked=3)],
)
def test_a_tenth_of_failures_is_borne(run, infos):
    check_failures(infos, 3, run)
    assert run.events() == []


def test_more_than_a_tenth_of_those_that_should_have_credit_is_an_event_with_the_reason(run):
    # Samples without credit on purpose do not count in the share: it is 2 of 12.
    infos = [{}, *causes(none=9, one_step=1, failed=1, equal_group=80, masked=20)]
    check_failures([*infos, causes(failed=1)[0] | {"credit_reason": "another"}], 3, run)
    (event,) = run.events()
    assert {key: event[key] for key in ("event", "step", "samples", "wanted", "reason")} == {
        "event": "credit_failed", "step": 3, "samples": 2, "wanted": 12, "reason": "a reason",
    }  # fmt: skip


def test_a_step_in_which_credit_failed_for_all_that_should_have_it_ends_the_run(run):
    with pytest.raises(CreditFailedError, match=r"step 3: .* failed for all 2 samples .*: a reason\. See"):
        check_failures(causes(failed=2, equal_group=6), 3, run)
    assert [event["event"] for event in run.events()] == ["credit_failed"]


def test_the_trainer_looks_before_it_shapes(run):
    from recipe.training.trainer import SkillCreditTrainer

    trainer = object.__new__(SkillCreditTrainer)
    trainer.global_steps, trainer.run_directory = 3, run
    with pytest.raises(CreditFailedError):
        trainer._shape_advantages(None, causes(failed=2), {})


@pytest.mark.parametrize(
    ("estimator", "kl_in_reward", "relative"), [("grpo", False, True), ("grpo", True, False), ("gae", False, False)]
)
def test_the_trainer_says_whether_equal_scores_are_a_signal(
    estimator: str, kl_in_reward: bool, relative: bool, monkeypatch: pytest.MonkeyPatch
):
    from recipe.training.hooks import step
    from recipe.training.trainer import SkillCreditTrainer

    plain, credits = torch.full((4, 1), 0.056), [0.3, 0.0, 0.3, 0.0]
    fields = {"advantages": jagged(list(plain)), "response_mask": jagged([torch.ones(1)] * 4), "uid": ["a"] * 4}
    trained: list[torch.Tensor] = []
    monkeypatch.setattr(step, "fetch", lambda batch, *names: {name: fields[name] for name in names})
    monkeypatch.setattr(
        "recipe.training.hooks.step.tq.kv_batch_put", lambda fields, **_: trained.extend(fields["advantages"].unbind())
    )
    trainer: Any = object.__new__(SkillCreditTrainer)
    algorithm = SimpleNamespace(adv_estimator=estimator, use_kl_in_reward=kl_in_reward)
    trainer.config, trainer.global_steps, trainer.run_directory = SimpleNamespace(algorithm=algorithm), 1, None
    trainer.settings = SimpleNamespace(credit=CreditSettings(kind="counterfactual"))
    infos = [info([value], [0], keys=("a:k",)) | {"pass_ratio": 0.7} for value in credits]
    trainer._shape_advantages(SimpleNamespace(keys=list("wxyz"), partition_id="train"), infos, {})
    shifts = torch.cat(trained) - plain[:, 0]
    assert bool(shifts.abs().max() > 0.1) == relative  # rounding of an equal group's mean, or a critic's advantage


def of_a_group_that_failed(values: list[float], **keys) -> tuple[list[float], dict[str, float]]:
    """Three tokens, one step each, of a sample with an advantage of 0."""
    infos = [info(values, range(3))]
    rows, metrics = shape(jagged([torch.zeros(3)]), infos, ["a"], strength=0.5, **(WITHIN | keys))
    return rows[0].tolist(), metrics


def test_the_gate_for_groups_without_advantage_is_a_key():
    assert of_a_group_that_failed([1.0, 0.0, -1.0])[0] == [0.0] * 3
    rows, metrics = of_a_group_that_failed([1.0, 0.0, -1.0], zero_advantage=True)
    assert [round(value, 5) for value in rows] == [0.5, 0.0, -0.5]
    assert metrics["credit/fallback_rate"] == 0.0


def test_how_many_credits_a_contrast_needs_is_a_key():
    two = [1.0, float("nan"), -1.0]
    rows, metrics = of_a_group_that_failed(two, zero_advantage=True)
    assert [round(value, 5) for value in rows] == [0.5, 0.0, -0.5]
    rows, metrics = of_a_group_that_failed(two, zero_advantage=True, min_valid=3)
    assert rows == [0.0] * 3
    assert metrics["credit/fallback/too_few_valid"] == 1.0


def test_equal_keys_of_a_group_are_equal_numbers_and_a_missing_key_is_none():
    named = (["a", "", "b"], np.array(["b", "a"], dtype=object), ["a", "b", "c", "d"])
    samples = [*(credit([], [], keys=keys) for keys in named), None]
    assert step_keys(samples, ["x", "x", "y", "y"], 3).tolist() == [[0, -1, 1], [1, 0, -1], [2, 3, 4], [-1, -1, -1]]
    assert step_keys([None], ["x"], 0).shape == (1, 0)


def test_the_pass_ratio_counts_before_the_score():
    found = pass_ratios([{"pass_ratio": 0.5, "score": 0.0}, {"score": 1.0}, {}])
    assert found[:2].tolist() == [0.5, 1.0]
    assert found[2].isnan()


def test_a_group_that_failed_learns_from_the_same_step_of_its_siblings():
    infos: list[dict] = [
        info([0.0, 0.5], [0, 1]) | {"credit_keys": ["x", "y"], "pass_ratio": 0.5},
        info([0.0, 0.0], [0, 1]) | {"credit_keys": ["y", "x"], "pass_ratio": 0.0},
    ]
    advantages = jagged([torch.zeros(2), torch.zeros(2)])
    rows, metrics = shape(advantages, infos)
    assert metrics["credit/shared_share"] == 1.0
    # y is worth 0.5 in one and 0 in the other: deviation 0.25, std 0.35355, delta 0.35355 / sqrt(2).
    assert rows[0].tolist() == pytest.approx([0.0, 0.41421], abs=1e-4)
    assert rows[1].tolist() == pytest.approx([-0.41421, 0.0], abs=1e-4)
    without = [one | {"credit_keys": []} for one in infos]
    rows, metrics = shape(advantages, without)
    assert metrics["credit/shared_share"] == 0.0
    assert rows[0][1] > 0 > rows[0][0]
    assert rows[1].tolist() == [0.0, 0.0]


def groups_of_four() -> tuple[torch.Tensor, list[str], list[dict]]:
    """Token-level rewards of two groups of answers of three tokens, the group of each, and their credits."""
    scores, uids = torch.tensor([1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0]), ["a"] * 4 + ["b"] * 4
    infos = [info([float(score), row % 3 / 2], [0, 0, 1]) for row, score in enumerate(scores.tolist())]
    for row, each in enumerate(infos):
        each |= {"credit_keys": ["first", "second"], "pass_ratio": float(scores[row])}
    rewards = torch.zeros(8, 3)
    rewards[:, -1] = scores
    return rewards, uids, infos


def test_credit_scales_with_the_advantages_of_grpo_and_dr_grpo():
    rewards, uids, infos = groups_of_four()

    def shaped_from(norm_adv_by_std_in_grpo: bool) -> torch.Tensor:
        advantages, _ = compute_grpo_outcome_advantage(
            rewards, torch.ones(8, 3), np.array(uids), norm_adv_by_std_in_grpo=norm_adv_by_std_in_grpo
        )
        rows, _ = shape(jagged(advantages), infos, uids)
        assert not torch.allclose(torch.stack(rows), advantages, atol=0.1)  # credit changes them
        return torch.stack(rows)

    scores = rewards[:, -1]
    spread = torch.tensor([float(scores[:4].std())] * 4 + [float(scores[4:].std())] * 4)
    assert torch.allclose(shaped_from(False), shaped_from(True) * spread[:, None], atol=1e-4)


ESTIMATORS = ("grpo_vectorized", "rloo", "rloo_vectorized", "opo", "gpg", "reinforce_plus_plus_baseline")


@pytest.mark.parametrize("name", ESTIMATORS)
def test_credit_shares_out_the_advantages_of_verls_other_estimators_as_those_of_grpo(name: str):
    rewards, uids, infos = groups_of_four()

    def shares(estimator: str) -> torch.Tensor:
        options = {"token_level_rewards": rewards, "response_mask": torch.ones(8, 3), "index": np.array(uids)}
        advantages, _ = get_adv_estimator_fn(estimator)(**options, config=AlgoConfig())
        assert advantages.abs().min() > 0.01
        rows, _ = shape(jagged(advantages.float()), infos, uids)
        return torch.stack(rows) / advantages.abs()

    found, of_grpo = shares(name), shares("grpo")
    same_sign = (found.sum(1) * of_grpo.sum(1)) > 0
    assert torch.allclose(found[same_sign], of_grpo[same_sign], atol=1e-3)
    assert same_sign.sum() >= 6
    assert (found[:, 0] - found[:, 2]).abs().max() > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("score", [0.7, 5 / 7, 1 / 3, 0.1])
@pytest.mark.parametrize("mapping", ["add", "scale", "redistribute"])
def test_a_group_of_equal_scores_has_no_advantage_but_the_rounding_of_their_mean(score: float, mapping: CreditMapping):
    """verl's GRPO divides that rounding by 1e-6: eight scores of 0.7 get 0.056 each, which is no signal."""
    credits = [0.3, 0.0] * 4 + [1.0, 0.0] * 4
    keys = [f"{name}:k" for name in ["a"] * 8 + ["b"] * 8]

    def shifts(equal: float, relative: bool, **options: Any) -> list[float]:
        scores = torch.tensor([equal] * 8 + [1.0, 0.0] * 4)
        index = np.array(["a"] * 8 + ["b"] * 8)
        plain, _ = compute_grpo_outcome_advantage(scores[:, None], torch.ones(16, 1), index)
        infos = [
            info([value], [0], keys=(key,)) | {"pass_ratio": float(ratio)}
            for value, key, ratio in zip(credits, keys, scores, strict=True)
        ]
        settings = CreditSettings(kind="counterfactual", mapping=mapping, **options)
        rows, _ = shaped_by_credit(
            jagged(list(plain)), jagged([torch.ones(1)] * 16), list(index), infos, settings, 1, relative=relative
        )
        return (torch.cat(rows) - plain[:, 0])[:8].tolist()

    assert shifts(score, relative=True) == pytest.approx(shifts(0.5, relative=True), abs=1e-6)
    assert max(map(abs, shifts(score, relative=True))) > 0.1
    assert shifts(score, relative=True, zero_advantage=False) == [0.0] * 8
    assert max(map(abs, shifts(score, relative=False))) < 0.1  # another estimator's equal advantages are a signal
