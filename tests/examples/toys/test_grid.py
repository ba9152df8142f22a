"""The grid: reproducible, strength of each comparison on known problems, table and ratios."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from examples.toys.grid import GridArm, GridRun, GridSetting, group_advantages, updates_to_solve
from examples.toys.grid_study import ARMS, BEST, GRPO, MAIN_ARMS, PARTIAL, SETTINGS, GridResult, ratios, table
from examples.toys.lines import PROBLEMS
from recipe.records.intervals import Interval

NAMED = {problem.name: problem for problem in PROBLEMS}
RUN = GridRun(seeds=24)
SIXTEEN = GridSetting(NAMED["16 lines"], partial=False)
CHAIN = GridSetting(NAMED["chain of 16"], partial=True)


@pytest.mark.slow
def test_seeds_reproduce_and_differ() -> None:
    first = updates_to_solve(SIXTEEN, BEST, 0.8, RUN)
    assert (first == updates_to_solve(SIXTEEN, BEST, 0.8, RUN)).all()
    assert (first != updates_to_solve(SIXTEEN, BEST, 0.8, replace(RUN, seed=1))).any()


@pytest.mark.slow
def test_siblings_with_the_gate_open_need_half_of_grpos_updates() -> None:
    grpo, partial, credit, shuffled = (
        updates_to_solve(SIXTEEN, arm, 0.4, RUN).mean() for arm in (GRPO, PARTIAL, BEST, replace(BEST, shuffled=True))
    )
    assert credit < 0.6 * grpo
    assert credit < 0.7 * partial
    assert shuffled > 1.5 * credit


@pytest.mark.slow
def test_a_shut_gate_leaves_groups_that_all_failed_as_they_were() -> None:
    shut, opened, grpo = (
        updates_to_solve(SIXTEEN, arm, 0.4, RUN).mean() for arm in (replace(BEST, gate=False), BEST, GRPO)
    )
    assert opened < 0.7 * shut
    assert shut < 1.1 * grpo


@pytest.mark.slow
def test_in_a_chain_only_credit_in_place_of_the_advantage_keeps_noise_from_later_lines() -> None:
    signed, added, chosen = (
        updates_to_solve(CHAIN, arm, 0.4, RUN).mean()
        for arm in (GridArm("add"), GridArm("add", "siblings", "both", gate=True), BEST)
    )
    assert chosen < 0.7 * added
    assert chosen < 0.5 * signed


def test_prompts_with_rows_of_their_own_learn_alone() -> None:
    alone, shared = (
        updates_to_solve(GridSetting(NAMED["16 lines"], False, 16, 4, shared), GRPO, 0.4, RUN).mean()
        for shared in (False, True)
    )
    assert shared < 0.8 * alone


def test_group_advantages_are_standardised_and_0_for_equal_rewards() -> None:
    found = group_advantages(torch.tensor([[1.0, 0.0], [0.3, 0.3]]))
    assert found.flatten().tolist() == pytest.approx([0.5**0.5, -(0.5**0.5), 0, 0], abs=1e-5)


def test_the_grid_holds_every_combination_once() -> None:
    assert len({arm.name for arm in ARMS}) == len(ARMS) == 3 + 3 * 2 * 4 * 2
    assert set(MAIN_ARMS) <= set(ARMS)
    assert len({setting.name for setting in SETTINGS}) == 12


def result(arm: str, values: list[float], moderate: list[float]) -> GridResult:
    mean, other = Interval(float(np.mean(values))), Interval(float(np.mean(moderate)))
    return GridResult(SETTINGS[0].name, arm, 0.8, mean, 0.25, other, tuple(values), tuple(moderate))


def test_ratios_compare_with_grpo_and_the_best_comes_first() -> None:
    results = [result("grpo", [8.0, 8.0], [20.0, 20.0]), result("credit", [4.0, 4.0], [15.0, 15.0])]
    assert list(ratios(results)) == ["credit", "grpo"]
    assert ratios(results)["credit"].text(2) == "0.50 [0.50, 0.50]"
    assert ratios(results, moderate=True)["credit"].estimate == pytest.approx(0.75)
    unfinished = replace(results[1], arm="later", setting=SETTINGS[1].name)
    assert list(ratios([*results, unfinished])) == ["credit", "grpo"]
    lines = table(results).splitlines()
    assert lines[0].startswith("| arm | times GRPO | in the worst setting | times GRPO at rate 0.4 | 4 lines, binary")
    assert lines[2].startswith("| credit | 0.50 [0.50, 0.50] | 0.50 | 0.75 [0.75, 0.75] | 4.0 (25% unsolved) |")


@pytest.mark.parametrize("change", [{"seeds": 0}, {"limit": 0}])
def test_settings_out_of_range_are_refused(change: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        GridRun(**change)
