"""The promise as a law on small networks: no verified step ends below its line, whatever the optimiser did."""

import math
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.displacement import snapshot
from workers.safe_update import SafeUpdate
from workers.safety.metric import adam_inverse_metric
from workers.safety.verification import Verification, damp_momentum
from workers.solution_store import StoredSolution
from workers.update_request import Constraint, Protection

SKILLS = 2


class SmallNetwork:
    """Two protected skills and a target that conflicts with them: log-likelihoods of labels under one small network."""

    def __init__(self, seed: int):
        generator = torch.Generator().manual_seed(seed)
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 3))
        for parameter in self.net.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator)
        self.inputs = torch.randn(SKILLS + 1, 5, 4, generator=generator)
        self.labels = torch.randint(0, 3, (SKILLS + 1, 5), generator=generator)
        self.shards = [parameter.detach() for parameter in self.net.parameters()]

    def level(self, skill: int) -> torch.Tensor:
        chosen = self.net(self.inputs[skill]).log_softmax(-1)
        return chosen.gather(1, self.labels[skill][:, None]).mean()

    def levels(self) -> list[float]:
        with torch.no_grad():
            return [float(self.level(skill)) for skill in range(SKILLS)]

    def constraints(self) -> list[torch.Tensor]:
        each = [torch.autograd.grad(self.level(skill), list(self.net.parameters())) for skill in range(SKILLS)]
        return [torch.stack(parts) for parts in zip(*each, strict=True)]


def updated(network: SmallNetwork, optimizer, anchors: list[float], epsilon: float, **options) -> SafeUpdate:
    """One update of two optimiser steps, as the actor does it."""
    constraints = [
        Constraint(f"skill{skill}", skill, [], anchor=anchors[skill], level=level)
        for skill, level in enumerate(network.levels())
    ]
    options = {"corrections": 3} | options
    protection = Protection(constraints, "qp", epsilon, "absolute", closed_loop=True, tries=5, **options)
    names = ["first", "first", "last", "last"]
    update = SafeUpdate(protection, network.constraints(), snapshot(network.shards), modules=names)
    update.agreements = [0.5] * SKILLS
    update.verify(network.levels(), tries=5)
    assert update.verification is not None
    for _ in range(2):
        optimizer.zero_grad()
        (-network.level(SKILLS)).backward()
        optimizer.step()
        if options.get("metric") == "adam" and update.inverse_metric is None:
            update.inverse_metric = adam_inverse_metric(optimizer, list(network.net.parameters()))
        update.after_step(network.shards)
        correct = partial(update.correct, network.shards)
        share = update.verification.after_step(update.start, network.shards, network.levels, correct)
        damp_momentum(optimizer, share)
    return update


@pytest.mark.slow
@given(
    st.integers(0, 10_000),
    st.sampled_from([0.0, 0.02, 0.3]),
    st.sampled_from([1e-3, 0.05, 1.0]),
    st.sampled_from([{}, {"metric": "adam"}, {"noise": 0.3}, {"space": "gradient"}, {"recovery": 0.05}]),
)
@settings(max_examples=25, deadline=None)
def test_in_no_step_does_a_level_end_below_its_line(seed: int, epsilon: float, rate: float, options: dict):
    network = SmallNetwork(seed)
    optimizer = torch.optim.AdamW(network.net.parameters(), lr=rate)
    anchors = network.levels()
    for _ in range(6):
        update = updated(network, optimizer, anchors, epsilon, **options)
        levels = network.levels()
        assert all(level >= anchor - epsilon - 1e-12 for level, anchor in zip(levels, anchors, strict=True))
        assert list(update.accepted.values()) == levels


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.0, 0.03])
def test_with_corrections_few_steps_are_undone_and_the_target_is_learned(epsilon: float):
    """At its line a loop has steps that curve below it: undoing them keeps the promise and learns little."""
    undone, learned = {}, {}
    for corrections in (0, 1):
        undone[corrections] = learned[corrections] = 0.0
        for seed in range(3):
            network = SmallNetwork(seed)
            optimizer, anchors = torch.optim.AdamW(network.net.parameters(), lr=0.03), network.levels()
            before = network.level(SKILLS).item()
            for _ in range(20):
                update = updated(network, optimizer, anchors, epsilon, corrections=corrections)
                assert update.verification is not None
                undone[corrections] += update.verification.undone / (3 * 20 * 2)
            learned[corrections] += (network.level(SKILLS).item() - before) / 3
    assert undone[0] > 0.4
    assert undone[1] <= 0.02
    assert learned[1] > 2 * learned[0]


def test_a_correction_asks_for_half_as_much_again_as_the_step_lacked_by_hand():
    """J = -x - y^2 from the origin; the optimiser proposes (1, 0.2), and J may fall by 0.5."""
    shards, start = [torch.tensor([1.0, 0.2])], [torch.zeros(2)]
    constraint = Constraint("a", 0, [], anchor=0.0, level=0.0)
    protection = Protection([constraint], "qp", 0.5, "absolute", closed_loop=True, tries=2, corrections=2)
    update = SafeUpdate(protection, [torch.tensor([[-1.0, 0.0]])], start)
    update.verify([0.0], tries=2)
    verification = update.verification
    assert verification is not None
    update.after_step(shards)
    torch.testing.assert_close(shards[0], torch.tensor([0.5, 0.2]))
    share = verification.after_step(
        start,
        shards,
        lambda: [-float(shards[0][0]) - float(shards[0][1]) ** 2],
        partial(update.correct, shards),
    )
    # 0.04 was missing, so 0.06 is asked for.
    torch.testing.assert_close(shards[0], torch.tensor([0.44, 0.2]))
    assert share == 1
    numbers = update.metrics()
    assert numbers["projection/corrected_steps"] == numbers["projection/projected_steps"] == 1.0
    assert numbers["projection/predicted_change/a"] == pytest.approx(-0.44)
    assert numbers["projection/slack/a"] == 0.5
    assert numbers["projection/moved"] == pytest.approx(0.56 / math.sqrt(1.04))
    assert numbers["projection/verified_level/a"] == pytest.approx(-0.48)


@pytest.mark.parametrize(("now", "left"), [(-0.6, -0.4), (-0.5, -0.3), (-0.3, -0.1), (-0.1, 0.1)])
def test_a_loop_that_asks_for_gain_demands_what_is_missing_and_promises_what_one_without_does(now: float, left: float):
    """0.3 above the anchor of -0.5 is asked for; rewards of rollouts are asked for none, and epsilon is 0.1."""
    bound = Constraint("a.solutions", 0, [], anchor=-0.5)
    constraints = [bound, Constraint("a.rollouts", 0, anchor=0.7, level=0.65), bound.asking(0.3, [])]
    protection = Protection(constraints, "qp", 0.1, "absolute", closed_loop=True, tries=2)
    update = SafeUpdate(protection, [torch.tensor([[1.0], [1.0], [1.0]])], [torch.zeros(1)])
    update.record_levels([now, math.nan, math.nan])
    assert update.slacks == pytest.approx([0.1 + 0.5 + now, 0.05, left])
    update.verify([now, math.nan, math.nan], tries=2)
    assert update.verification is not None
    assert update.verification.lines == [pytest.approx(-0.6), -math.inf, -math.inf]
    shards = [torch.tensor([1.0])]
    assert update.verification.after_step(update.start, shards, lambda: [-0.6, math.nan, math.nan]) == 1
    assert update.verification.margins[0] == pytest.approx(0.0)
    numbers = update.metrics()
    assert numbers["projection/slack/a.solutions.gain"] == pytest.approx(left)
    assert "projection/anchor/a.solutions.gain" not in numbers  # it would be promised nothing, by its own name
    assert numbers["projection/anchor/a.solutions"] == -0.5


@pytest.mark.parametrize("gain", [0.0, 100.0])
def test_a_bound_is_corrected_also_where_gain_asks_for_as_much_as_it_may(gain: float):
    """J = -x - y^2 from the origin, other solutions gain by y; the optimiser proposes (1, 0.2), and J may fall by 0.5.

    Gain may ask for half of the step's length along y (`recovery`), and J then lacks what y^2 costs.
    """
    shards, start = [torch.tensor([1.0, 0.2])], [torch.zeros(2)]
    bound = Constraint("a", 0, [], anchor=0.0, level=0.0)
    protection = Protection(
        [bound, bound.asking(gain, [])], "qp", 0.5, "absolute", closed_loop=True, tries=2, corrections=3
    )
    update = SafeUpdate(protection, [torch.tensor([[-1.0, 0.0], [0.0, 1.0]])], start)
    update.record_levels([0.0, math.nan])
    update.verify([0.0, math.nan], tries=2)
    verification = update.verification
    assert verification is not None
    update.after_step(shards)
    up = 0.5 * math.sqrt(1.04) if gain else 0.2
    torch.testing.assert_close(shards[0], torch.tensor([0.5, up]))
    measure = lambda: [-float(shards[0][0]) - float(shards[0][1]) ** 2, math.nan]  # noqa: E731
    assert verification.after_step(start, shards, measure, partial(update.correct, shards)) == 1
    torch.testing.assert_close(shards[0], torch.tensor([0.5 - 1.5 * up**2, up]))
    assert (verification.corrected, verification.shrunk, verification.undone) == (1, 0, 0)


@pytest.mark.parametrize(("anchored", "left_out"), [(0, [True, True]), (1, [True, True]), (2, [False, True])])
def test_the_gradient_of_an_anchor_set_alone_has_no_error_and_is_not_left_out(anchored: int, left_out: list[bool]):
    """Its halves may disagree: J is verified on these answers, and no others are meant."""
    bound = Constraint("a", 0, [StoredSolution([1], [2], [1])] * 2, anchored=anchored)
    rows = [bound, bound.asking(1.0, [])]
    protection = Protection(rows, "qp", 0.1, "absolute", closed_loop=True, noise=1.0, agreement=0.2)
    update = SafeUpdate(protection, [torch.eye(2)], [torch.zeros(2)], agreements=[0.0, 0.0])
    assert update.left_out == left_out
    assert update.noises == [0.0 if anchored == 2 else 1.0, 1.0]
    assert [math.isinf(epsilon) for epsilon in update.epsilons] == left_out


def test_a_constraint_that_follows_has_the_mean_gradient_over_both_constraints_solutions():
    """One solution with gradient (3, 0), and two with mean (0, 3): (1, 2). Without two, the other's own."""
    solutions = [StoredSolution([1], [2], [1])] * 3
    bound = Constraint("a", 0, solutions[:1], anchored=1)
    cases = [(solutions[1:], False, [1.0, 2.0]), (solutions[1:], True, [0.0, 3.0]), ([], True, [3.0, 0.0])]
    for own, held_out, mean in cases:
        rows = [bound, bound.asking(1.0, own)]
        protection = Protection(rows, "qp", 0.1, "absolute", closed_loop=True, held_out=held_out)
        update = SafeUpdate(protection, [torch.tensor([[3.0, 0.0], [0.0, 3.0]])], [torch.zeros(2)])
        update.join_followed()
        torch.testing.assert_close(update.constraints[0], torch.tensor([[3.0, 0.0], mean]))


def test_a_set_that_cannot_gain_any_more_refuses_no_step_above_its_line():
    """J = -x^2 is at its best in 0, and 1 more is asked for: a step that costs less than epsilon stays as it is.

    A loop that let no step end below where it began would undo each of them, for ever.
    """
    constraint = Constraint("a", 0, [], anchor=0.0, level=0.0, gain=1.0)
    protection = Protection([constraint], "qp", 0.1, "absolute", closed_loop=True, tries=4)
    shards = [torch.zeros(2)]
    update = SafeUpdate(protection, [torch.zeros(1, 2)], snapshot(shards))
    update.verify([0.0], tries=4)
    shards[0].copy_(torch.tensor([0.3, 1.0]))
    update.after_step(shards)
    assert update.verification is not None
    assert update.verification.after_step(update.start, shards, lambda: [-(float(shards[0][0]) ** 2)]) == 1
    torch.testing.assert_close(shards[0], torch.tensor([0.3, 1.0]))


@pytest.mark.parametrize(("closed", "level"), [(False, -0.7), (True, -math.inf), (True, math.nan)])
def test_a_step_is_not_corrected_in_an_open_loop_or_with_damaged_weights(closed: bool, level: float):
    shards, start = [torch.tensor([1.0])], [torch.zeros(1)]
    constraint = Constraint("a", 0, [], anchor=0.0, level=0.0)
    protection = Protection([constraint], "qp", 0.0, "absolute", closed_loop=closed, tries=0, corrections=3)
    update = SafeUpdate(protection, [torch.tensor([[-0.5]])], start)
    update.verify([0.0], tries=0)
    assert update.verification is not None
    update.after_step(shards)
    assert update.verification.after_step(start, shards, lambda: [level], partial(update.correct, shards)) == 0
    assert (update.asked, update.verification.corrected, update.verification.undone) == ([0.0], 0, 1)


def test_what_a_refused_step_lacked_is_not_asked_of_the_next():
    """J = -x - 10 y^2: no correction saves the first step, and the second needs none."""
    start = [torch.zeros(2)]
    constraint = Constraint("a", 0, [], anchor=0.0, level=0.0)
    protection = Protection([constraint], "qp", 0.5, "absolute", closed_loop=True, tries=0, corrections=3)
    update = SafeUpdate(protection, [torch.tensor([[-1.0, 0.0]])], start)
    update.verify([0.0], tries=0)
    assert update.verification is not None
    shares, passes = [], []
    for step in ([0.0, 3.0], [0.1, 0.1]):
        shards = [torch.tensor(step)]

        def measure(at: list[torch.Tensor] = shards) -> list[float]:
            passes.append(at[0].tolist())
            return [-float(at[0][0]) - 10 * float(at[0][1]) ** 2]

        update.after_step(shards)
        shares.append(update.verification.after_step(start, shards, measure, partial(update.correct, shards)))
    assert shares == [0, 1]
    assert update.asked == [0.0]
    torch.testing.assert_close(shards[0], torch.tensor([0.1, 0.1]))
    # `recovery` bounds what is asked for: a second demand that changes nothing is not measured again.
    assert len(passes) == 3


def test_a_step_that_is_not_finite_is_skipped_once_and_not_corrected():
    shards, start = [torch.tensor([1.0])], [torch.zeros(1)]
    constraint = Constraint("a", 0, [], anchor=0.0, level=0.0)
    protection = Protection([constraint], "qp", 0.0, "absolute", closed_loop=True, tries=0, corrections=3)
    update = SafeUpdate(protection, [torch.tensor([[math.nan]])], start)
    update.verify([0.0], tries=0)
    assert update.verification is not None
    update.after_step(shards)
    update.verification.after_step(start, shards, lambda: [-1e-7], partial(update.correct, shards))
    assert (update.skipped, update.verification.corrected) == (1, 0)


@pytest.mark.slow
def test_without_verification_the_same_steps_end_below_their_line():
    """The law above is not empty: the first order alone does not keep it."""
    below = 0
    for seed in range(8):
        network = SmallNetwork(seed)
        optimizer, anchors = torch.optim.AdamW(network.net.parameters(), lr=0.3), network.levels()
        for _ in range(6):
            constraints = [Constraint(f"skill{skill}", skill, []) for skill in range(SKILLS)]
            protection = Protection(constraints, "qp", 0.0, "absolute")
            update = SafeUpdate(protection, network.constraints(), snapshot(network.shards))
            optimizer.zero_grad()
            (-network.level(SKILLS)).backward()
            optimizer.step()
            update.after_step(network.shards)
            below += min(now - then for now, then in zip(network.levels(), anchors, strict=True)) < -0.02
    assert below > 5


@pytest.mark.slow
def test_a_closed_loop_wins_back_what_was_lost_and_an_open_one_does_not():
    found = {}
    for closed in (True, False):
        network = SmallNetwork(3)
        anchors = [level + 0.2 for level in network.levels()]  # it has fallen by 0.2
        optimizer = torch.optim.AdamW(network.net.parameters(), lr=0.02)
        for _ in range(40):
            constraints = [
                Constraint(f"skill{skill}", skill, [], anchor=anchors[skill], level=level)
                for skill, level in enumerate(network.levels())
            ]
            protection = Protection(constraints, "qp", 0.0, "absolute", closed_loop=closed)
            update = SafeUpdate(protection, network.constraints(), snapshot(network.shards))
            optimizer.zero_grad()
            (-network.level(SKILLS)).backward()
            optimizer.step()
            update.after_step(network.shards)
        found[closed] = min(now - then for now, then in zip(network.levels(), anchors, strict=True))
    assert found[True] > -0.01
    assert found[False] < -0.1


def test_a_step_is_shrunk_to_the_largest_share_that_keeps_the_line_by_hand():
    start, shards = [torch.tensor([1.0])], [torch.tensor([2.0])]
    verification = Verification(lines=[0.69], before=[1.0], tries=3)
    # The level is 1 - (x - 1): at 1.25 it is 0.75, at 1.5 and 1.375 too low.
    share = verification.after_step(start, shards, lambda: [2.0 - float(shards[0])])
    assert (share, shards[0].item()) == (0.25, 1.25)
    assert verification.metrics(["a"]) == {
        "projection/verified_steps": 1.0,
        "projection/corrected_steps": 0.0,
        "projection/shrunk_steps": 1.0,
        "projection/undone_steps": 0.0,
        "projection/kept_share": 0.25,
        "projection/verified_level/a": 0.75,
        "projection/line/a": 0.69,
        "projection/floor/a": 0.69,
        "projection/verified_margin/a": pytest.approx(0.06),
    }


@pytest.mark.parametrize("level", [math.nan, -math.inf, 0.0])
def test_a_step_that_no_share_saves_is_undone_bit_for_bit(level: float):
    start = [torch.tensor([0.1, 1e-30])]
    shards = [start[0] + torch.tensor([0.3, 1.0])]
    verification = Verification(lines=[0.5], before=[0.6], tries=4)
    assert verification.after_step(start, shards, lambda: [level]) == 0
    assert torch.equal(shards[0], start[0])
    assert (verification.undone, verification.levels) == (1, [0.6])


def test_a_step_that_keeps_its_lines_keeps_its_bits_and_costs_one_pass():
    passes = iter([[0.5, math.nan]])
    shards = [torch.tensor([0.3])]
    verification = Verification(lines=[0.5, -math.inf], before=[0.6, math.nan], tries=4)
    assert verification.after_step([torch.zeros(1)], shards, lambda: next(passes)) == 1
    assert torch.equal(shards[0], torch.tensor([0.3]))
    assert verification.undone == 0


def test_a_skill_that_no_solution_supports_yet_lets_every_step_through_and_has_no_level():
    """No gradient, no anchor, no line; the other skill's constraint is as it would be alone."""
    constraints = [Constraint("empty", 0, []), Constraint("known", 1, [], anchor=-0.5)]
    protection = Protection(constraints, "qp", 0.1, "absolute", closed_loop=True, tries=2)
    shards = [torch.tensor([0.0, 0.0])]
    gradients = [torch.tensor([[0.0, 0.0], [1.0, 0.0]])]
    update = SafeUpdate(protection, gradients, snapshot(shards))
    update.record_levels([math.nan, -0.5])
    update.verify([math.nan, -0.5], tries=2)
    assert update.verification is not None
    assert update.verification.floors == [-math.inf, pytest.approx(-0.6)]
    shards[0].copy_(torch.tensor([-0.3, -0.7]))
    update.after_step(shards)
    torch.testing.assert_close(shards[0], torch.tensor([-0.1, -0.7]))
    assert update.verification.after_step(update.start, shards, lambda: [math.nan, -0.55]) == 1
    numbers = update.metrics()
    assert numbers["projection/unprotected_skills"] == 1.0
    assert numbers["projection/level/known"] == -0.5
    assert not any(key.endswith("/empty") and ("level" in key or "line" in key) for key in numbers)


def test_the_least_margin_of_all_steps_is_reported_and_not_only_the_last_ones():
    passes = iter([[0.55], [0.9]])
    verification = Verification(lines=[0.5], before=[0.6], tries=0)
    for _ in range(2):
        verification.after_step([torch.zeros(1)], [torch.zeros(1)], lambda: next(passes))
    numbers = verification.metrics(["a"])
    assert numbers["projection/verified_margin/a"] == pytest.approx(0.05)
    assert numbers["projection/verified_level/a"] == 0.9


def test_a_level_that_was_lost_before_the_update_is_below_its_line_and_may_not_fall_further():
    verification = Verification(lines=[0.5], before=[0.4], tries=0)
    assert verification.after_step([torch.zeros(1)], [torch.zeros(1)], lambda: [0.4]) == 1
    numbers = verification.metrics(["a"])
    assert (numbers["projection/line/a"], numbers["projection/floor/a"]) == (0.5, 0.4)
    assert numbers["projection/verified_margin/a"] == pytest.approx(-0.1)


def begun(step: list[float], lines: list[float], tries: int = 1, **options) -> tuple[SafeUpdate, list[torch.Tensor]]:
    """An update with one constraint, g = (1, 0), after an optimiser step from 0."""
    protection = Protection([Constraint("a", 0, [], anchor=0.0, level=0.0)], "qp", 0.0, "absolute", tries=tries)
    shards = [torch.zeros(2)]
    update = SafeUpdate(protection, [torch.tensor([[1.0, 0.0]])], snapshot(shards), **options)
    update.verification = Verification(lines, [0.0], tries)
    shards[0].copy_(torch.tensor(step))
    update.after_step(shards)
    return update, shards


def test_what_a_shrunk_or_undone_step_is_predicted_to_change_is_what_remains_of_it():
    # d = (0.5, -1) is allowed and kept; half of it keeps the line, so 0.25 of the predicted 0.5 remains.
    update, shards = begun([0.5, -1.0], [-0.5])
    assert update.verification is not None
    update.verification.after_step(update.start, shards, lambda: [float(shards[0][1])])
    assert update.metrics()["projection/predicted_change/a"] == pytest.approx(0.25)
    # d = (-0.6, -0.8), of which the projection moves 0.6, is undone.
    update, shards = begun([-0.6, -0.8], [-0.5], tries=0)
    assert update.metrics()["projection/moved"] == pytest.approx(0.6)
    assert update.verification is not None
    update.verification.after_step(update.start, shards, lambda: [float(shards[0][1])])
    assert update.metrics()["projection/moved"] == 0


def test_verified_steps_are_counted_where_nothing_was_projected():
    protection = Protection([Constraint("a", 0, [], anchor=0.0, level=0.0)], "qp", 0.0, "absolute", tries=1)
    update = SafeUpdate(protection, [torch.tensor([[math.nan]])], [torch.zeros(1)])
    update.verify([0.0], 1)
    shards = [torch.ones(1)]
    update.after_step(shards)
    assert update.verification is not None
    update.verification.after_step(update.start, shards, lambda: [0.0])
    assert update.metrics()["projection/verified_steps"] == 1


def test_a_correction_with_random_signs_reports_the_change_that_it_makes():
    """d = (-1, -1) and g = (1, 0.3): by hand the correction is 1.3 / 1.09 g; the first sign is -1."""
    shards = [torch.zeros(2)]
    protection = Protection([Constraint("a", 0)], "qp", 0.0, "absolute", control=1)
    signs = [torch.tensor([-1, 1], dtype=torch.int8)]
    update = SafeUpdate(protection, [torch.tensor([[1.0, 0.3]])], snapshot(shards), signs=signs)
    shards[0].fill_(-1.0)
    update.after_step(shards)
    share = 1.3 / 1.09
    torch.testing.assert_close(shards[0], torch.tensor([-1 - share, -1 + 0.3 * share]))
    numbers = update.metrics()
    assert numbers["projection/predicted_change/a"] == pytest.approx(-1 - share + 0.3 * (-1 + 0.3 * share))
    assert numbers["projection/violated_steps"] == 1


def test_random_signs_move_as_far_as_the_correction_by_hand():
    """d = (-1, -1), g = (1, 0): the correction is (1, 0); its sign -1 gives (-2, -1), and |x - d| stays 1."""
    for sign, expected in ((1, [0.0, -1.0]), (-1, [-2.0, -1.0])):
        shards = [torch.zeros(2)]
        signs = [torch.tensor([sign, 1], dtype=torch.int8)]
        update = SafeUpdate(
            Protection([Constraint("a", 0)], "qp", 0.0, "absolute"), [torch.tensor([[1.0, 0.0]])], snapshot(shards),
            signs=signs,
        )  # fmt: skip
        shards[0].fill_(-1.0)
        update.after_step(shards)
        assert shards[0].tolist() == expected
        assert update.metrics()["projection/moved"] == pytest.approx(1 / 2**0.5)


def test_momentum_keeps_the_share_of_the_step_and_the_second_moment_stays():
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.AdamW([parameter], lr=0.1)
    parameter.grad = torch.tensor([1.0, -2.0])
    optimizer.step()
    first, second = (optimizer.state[parameter][name].clone() for name in ("exp_avg", "exp_avg_sq"))
    damp_momentum(optimizer, 0.25)
    assert torch.equal(optimizer.state[parameter]["exp_avg"], 0.25 * first)
    assert torch.equal(optimizer.state[parameter]["exp_avg_sq"], second)
    damp_momentum(optimizer, 0.0)
    assert not optimizer.state[parameter]["exp_avg"].any()
