from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf

from recipe.training.skill_accuracy import (
    accuracy_by_skill,
    accuracy_of_halves,
    means_over_prompts,
    share_error,
    standardizes,
    training_accuracy,
    without_masked,
)

INFOS: dict[str, list[Any]] = {
    "acc": [1.0, 0.0, 1.0, 1.0, 0.0],
    "skill": ["write", "write", "write", "sql", "sql"],
    "masked": [0.0, 0.0, 0.0, 0.0, 1.0],
}


def test_the_mean_is_over_skills_and_masked_samples_do_not_count():
    metrics = accuracy_by_skill(INFOS)
    assert metrics == {
        "skill/sql/accuracy": 1.0,
        "skill/write/accuracy": 2 / 3,
        "skill/mean/accuracy": (1.0 + 2 / 3) / 2,
        "skill/worst/accuracy": 2 / 3,
        "skill/masked_share": 0.2,
        "skill/sql/standard_error": 0.0,
        "skill/write/standard_error": pytest.approx((2 / 27) ** 0.5),  # 2/3 x 1/3 of three samples
        "skill/mean/standard_error": pytest.approx((2 / 27) ** 0.5 / 2),
    }


def test_each_half_of_a_skills_tasks_has_an_accuracy_and_the_halves_do_not_depend_on_the_order():
    """Sorted, `write` has tasks 1, 2 and 3: 1 and 3 are half 0. The masked answer of task 3 counts in no half."""
    rows = [
        ("write", "w/2", 1.0, 0.0), ("write", "w/1", 1.0, 0.0), ("write", "w/1", 0.0, 0.0), ("write", "w/3", 1.0, 1.0),
        ("write", "w/2", 0.0, 0.0), ("write", "w/2", 1.0, 0.0), ("sql", "s/1", 1.0, 0.0), ("sql", "s/2", 1.0, 1.0),
    ]  # fmt: skip
    expected = {
        "skill/write/half_accuracy/0": 0.5, "skill/write/half_accuracy/1": 2 / 3, "skill/sql/half_accuracy/0": 1.0
    }  # fmt: skip
    for order in (rows, rows[::-1]):
        skill, task, acc, masked = zip(*order, strict=True)
        infos = {"acc": list(acc), "skill": list(skill), "task": list(task), "masked": list(masked)}
        assert accuracy_of_halves(infos) == expected
        assert expected.items() <= accuracy_by_skill(infos).items()


def test_the_error_of_a_share_is_two_points_with_625_samples_at_a_half_and_less_elsewhere():
    halves = [float(number % 2) for number in range(1250)]
    assert share_error(halves[:625]) == pytest.approx(0.02, abs=1e-6)
    assert share_error(halves[:102]) == pytest.approx(0.5 / 102**0.5)  # two samples for each of 51 prompts: 4.95
    assert share_error([1.0] * 90 + [0.0] * 10) == pytest.approx(0.03)


def test_the_samples_of_a_training_step_have_no_such_error():
    infos = [{"acc": 1.0, "skill": "write", "masked": 0.0}, {"acc": 0.0, "skill": "write", "masked": 0.0}]
    assert training_accuracy(infos).keys() == {f"train_skill/{name}/accuracy" for name in ("write", "mean", "worst")}


@pytest.mark.parametrize(("estimator", "asked"), [("grpo", True), ("grpo", False), ("rloo", True)])
def test_only_grpo_divides_by_the_deviation_of_a_group(estimator: str, asked: bool):
    algorithm = OmegaConf.create({"adv_estimator": estimator, "norm_adv_by_std_in_grpo": asked})
    assert standardizes(algorithm) == (estimator == "grpo" and asked)


def test_a_skill_whose_samples_were_all_masked_has_no_accuracy():
    metrics = accuracy_by_skill({"acc": [0.0, 1.0], "skill": ["sql", "write"], "masked": [1.0, 0.0]})
    assert "skill/sql/accuracy" not in metrics
    assert metrics["skill/mean/accuracy"] == 1.0


def test_nothing_verified_gives_no_numbers():
    assert accuracy_by_skill({"acc": [0.0], "skill": ["sql"], "masked": [1.0]}) == {}


def test_masked_samples_reach_verl_as_missing_and_not_as_failed():
    infos, counts = without_masked(
        ["code", "code", "code", "sql", "sql"], ["u", "u", "v", "w", "w"], INFOS, {("code", "u"): 2, ("sql", "w"): 2}
    )
    assert infos["acc"] == [1.0, 0.0, 1.0, 1.0, None]
    assert counts == {("code", "u"): 2, ("sql", "w"): 1}


def test_verls_own_aggregation_then_leaves_them_out():
    from verl.trainer.ppo.metric_utils import process_validation_metrics

    infos, counts = without_masked(
        ["sql", "sql"], ["w", "w"], {"acc": [1.0, 0.0], "masked": [0.0, 1.0]}, {("sql", "w"): 2}
    )
    metrics = process_validation_metrics(["sql", "sql"], ["w", "w"], infos, expected_acc_counts=counts)
    assert metrics["sql"]["acc"]["mean@1"] == 1.0


def test_without_masked_samples_the_lists_are_the_same_objects():
    infos = {"acc": [1.0], "masked": [0.0]}
    assert without_masked(["sql"], ["u"], infos, None)[0] is infos


def test_means_of_components_are_verls_own():
    from verl.trainer.ppo.metric_utils import process_validation_metrics

    sources, uids = ["code", "code", "code", "sql", "sql"], ["u", "u", "v", "w", "w"]
    infos: dict[str, list[Any]] = {
        "acc": [1.0, 0.0, 1.0, 1.0, 0.0],
        "pass_ratio": [0.5, 0.25, 1.0, None, 0.75],
        "masked": [False, False, True, False, True],
        "skill": ["write"] * 3 + ["sql"] * 2,
    }
    theirs = process_validation_metrics(sources, uids, infos)
    assert means_over_prompts(sources, uids, infos) == {
        f"val-aux/{source}/{name}/{metric}": value
        for source, components in theirs.items()
        for name, metrics in components.items()
        for metric, value in metrics.items()
        if name != "acc" and metric.startswith("mean@")
    }
    assert means_over_prompts(sources, uids, infos)["val-aux/sql/pass_ratio/mean@1"] == 0.75


def test_only_numbers_have_a_mean():
    infos: dict[str, list[Any]] = {
        "words": ["yes", "no"],
        "parts": [[1.0], [2.0]],
        "flag": [np.bool_(True), False],
        "count": [3, None],
    }
    assert means_over_prompts(["sql", "sql"], ["u", "v"], infos) == {
        "val-aux/sql/flag/mean@1": 0.5,
        "val-aux/sql/count/mean@1": 3.0,
    }
