"""The primary analysis of bounded forgetting on numbers worked by hand: 2 arms, 2 orders, 2 seeds."""

import math

import pytest

from recipe.records.promise import Promise
from recipe.reports.bars import RunOutcome, Study, contrast, contrast_table, contrasts, order_table, verdicts


def arm(*rows: tuple[str, str, float, float, float]) -> dict:
    """Rows of seed, order, average, forgetting and new skill; a point more is lost since the own stage, 0.5 learned."""
    found: dict = {}
    for seed, order, average, forgotten, new in rows:
        found.setdefault(seed, {})[order] = RunOutcome(average, forgotten, new, forgotten + 0.01, new - 0.4)
    return found


ARMS = {
    "grpo": arm(
        ("s0", "forward", 0.6, 0.1, 0.90), ("s0", "backward", 0.6, 0.1, 0.90),
        ("s1", "forward", 0.7, 0.1, 0.90), ("s1", "backward", 0.6, 0.1, 0.90),
    ),
    "closed_loop": arm(
        ("s0", "forward", 0.8, 0.02, 0.91), ("s0", "backward", 0.7, 0.02, 0.89),
        ("s1", "forward", 0.9, 0.03, 0.90), ("s1", "backward", 0.8, 0.01, 0.90),
    ),
}  # fmt: skip
STUDY = Study(ARMS)
PROMISE = Promise(verified=20, shrunk=1, undone=2, levels=50, below=0, lowest=0.0, corrected=5, kept=0.9, without=3)


def test_a_block_is_the_mean_of_both_orders_of_a_seed():
    # Means: 0.75 - 0.6 = 0.15 and 0.85 - 0.65 = 0.2, so 0.175 with a standard error of 0.025, and t = 7 at one degree
    # of freedom: p = 1 - 2 atan(7) / pi. As four independent runs it would be 0.011.
    (found,) = contrasts(STUDY, "closed_loop", ["grpo"])
    assert (found.against, found.blocks) == ("grpo", 2)
    assert found.gain.estimate == pytest.approx(0.175)
    assert found.gain.low == pytest.approx(0.175 - 12.7062 * 0.025, abs=1e-5)
    assert found.p == found.holm == pytest.approx(1 - 2 * math.atan(7) / math.pi)
    assert {order: of.estimate for order, of in found.by_order.items()} == pytest.approx(
        {"forward": 0.2, "backward": 0.15}
    )
    assert "| closed_loop - grpo | 2 | +17.5 [-14.3, +49.3] | +15.0 [-48.5, +78.5] |" in contrast_table(
        [found], ["backward", "forward"]
    )


def test_holm_counts_every_contrast_of_the_family_with_runs_or_without():
    three = ARMS | {"rehearsal": ARMS["grpo"], "other": ARMS["grpo"]}
    single = contrasts(STUDY, "closed_loop", ["grpo"])[0].p
    assert single is not None
    found = contrasts(Study(three), "closed_loop", ["grpo", "rehearsal", "ewc"])
    assert [one.holm for one in found] == [pytest.approx(3 * single)] * 2 + [None]


def test_each_order_has_its_forgetting_and_its_new_skill():
    table = order_table(STUDY, "closed_loop", "grpo").splitlines()
    assert table[0] == ("| order | forgetting | lost since its stage | new skill minus grpo | learned minus grpo |")
    assert table[2] == "| backward | 1.5 [-4.9, 7.9] | 2.5 [-3.9, 8.9] | -0.5 [-6.9, +5.9] | -0.5 [-6.9, +5.9] |"
    assert table[3] == "| forward | 2.5 [-3.9, 8.9] | 3.5 [-2.9, 9.9] | +0.5 [-5.9, +6.9] | +0.5 [-5.9, +6.9] |"


def test_a_seed_that_lacks_an_order_is_no_block():
    fewer = ARMS | {"grpo": {"s0": ARMS["grpo"]["s0"], "s1": {"forward": ARMS["grpo"]["s1"]["forward"]}}}
    found = contrast(Study(fewer), "closed_loop", "grpo", "average")
    assert found is not None
    assert (found.blocks, found.p) == (1, None)


def test_where_each_seed_has_one_order_a_block_is_a_seed_in_its_order():
    """Both gains are 0.2; with blocks of both orders there would be none."""
    one = {
        name: {"s0": {"forward": own["s0"]["forward"]}, "s1": {"backward": own["s1"]["backward"]}}
        for name, own in ARMS.items()
    }
    assert contrasts(Study(one), "closed_loop", ["grpo"]) == []
    (found,) = contrasts(Study(one, apart=True), "closed_loop", ["grpo"])
    assert found.blocks == 2
    assert found.gain.estimate == pytest.approx(0.2)
    assert found.p == pytest.approx(0.0)
    assert {order: of.estimate for order, of in found.by_order.items()} == pytest.approx(
        {"forward": 0.2, "backward": 0.2}
    )
    assert contrasts(Study(ARMS, apart=True), "closed_loop", ["grpo"])[0].blocks == 4


def test_each_bar_gets_a_verdict_by_hand():
    found = verdicts(STUDY, "closed_loop", "grpo", ["grpo", "rehearsal"], [PROMISE, PROMISE], ["grpo"])
    assert [(each.met, each.text) for each in found] == [
        (True, "2.0 [2.0, 2.0] over 2 blocks"),
        (True, "3.0 [3.0, 3.0] over 2 blocks"),
        (True, "+0.0 [+0.0, +0.0] over 2 blocks"),
        (False, "+17.5 [-14.3, +49.3] over 2 blocks, Holm p 0.0903"),
        (None, "no block of both arms, or no run of rehearsal"),
        (True, "100.00% of 100 levels at it or above; 6 more had no line"),
        (True, "10.0% of 40 steps; 25.0% corrected, 5.0% shrunk; 90.0% of a step kept on average"),
    ]
    assert found[0].line == ("- forgetting at most 3 points, upper end at most 5: MET; 2.0 [2.0, 2.0] over 2 blocks")


@pytest.mark.parametrize(
    ("change", "met"),
    [
        ({"below": 1}, [False, True]),
        ({"undone": 3}, [True, False]),
    ],
)
def test_one_level_below_its_line_or_too_many_undone_steps_miss_their_bar(change: dict, met: list):
    broken = Promise(**{**vars(PROMISE), **change})
    assert [each.met for each in verdicts(STUDY, "closed_loop", "grpo", [], [broken], ["grpo"])[-2:]] == met


def test_a_run_that_verified_nothing_leaves_the_promise_unjudged():
    assert [each.met for each in verdicts(STUDY, "closed_loop", "grpo", [], [PROMISE, None], ["grpo"])[-2:]] == [
        None,
        None,
    ]


def test_forgetting_whose_upper_end_is_above_its_bar_misses_it():
    noisy = ARMS | {"closed_loop": arm(*((seed, order, 0.8, lost, 0.9) for seed, lost in (("s0", 0.0), ("s1", 0.05))
                                         for order in ("forward", "backward")))}  # fmt: skip
    found = verdicts(Study(noisy), "closed_loop", "grpo", [], [], ["grpo"])[0]
    assert (found.met, found.text[:4]) == (False, "2.5 ")
