"""The simulation of a large step: closed forms by hand, and laws of queues."""

import dataclasses

import pytest

from benchmarks.scale import (
    Costs,
    Load,
    answer_lengths,
    finish_times,
    judged,
    sandbox_waits,
    update_parts,
)

COSTS = Costs(answer=1.0, replay=3.0)


@pytest.mark.parametrize(("cores", "by_group"), [(1, False), (2, True), (3, False), (5, True)])
def test_programs_that_arrive_together_take_turns(cores: int, by_group: bool):
    """Twelve answers at second 10, then 24 replays. Here no core is idle before the last turn of either."""
    turns = -(-12 // cores) * 1.0 + -(-24 // cores) * 3.0
    assert judged([[10.0] * 6, [10.0] * 6], cores, COSTS, 2, by_group) <= 10 + turns
    assert judged([[10.0] * 12], cores, COSTS, 2, by_group=True) == 10 + turns
    assert judged([[10.0] * 12], cores, COSTS, 0) == 10 - (-12 // cores)


def test_replays_by_group_wait_for_the_last_answer_and_others_do_not():
    finished = [[0.0, 100.0]]
    assert judged(finished, 1, COSTS, 2, by_group=True) == 100 + 1 + 4 * 3
    assert judged(finished, 1, COSTS, 2) == 100 + 1 + 2 * 3


def test_an_answer_that_hangs_takes_the_limit_and_so_do_its_replays():
    hanging = dataclasses.replace(COSTS, hanging=1.0, limit=7.0)
    assert judged([[0.0]], 4, hanging, 2) == 14
    assert judged([[0.0]], 1, hanging, 2) == 21


@pytest.mark.parametrize("by_group", [False, True])
def test_more_cores_are_never_slower(by_group: bool):
    """Nor faster than all the work shared, or than the last answer alone."""
    load = Load(prompts=64, gpus=16)
    finished = finish_times(answer_lengths(load), 16, 64, Costs.written)
    waits = [*sandbox_waits(finished, load, COSTS, by_group).values()]
    assert waits == sorted(waits, reverse=True)
    work = load.answers * (COSTS.answer + load.replays * COSTS.replay)
    written = max(map(max, finished))
    assert written + waits[0] >= work / load.nodes
    assert waits[-1] >= COSTS.answer + COSTS.replay


def test_an_engine_without_a_free_slot_lets_answers_wait():
    assert finish_times([[10, 20], [40, 40]], engines=1, slots=2, written=10.0) == [[1, 2], [5, 6]]
    assert finish_times([[10, 20], [40, 40]], engines=2, slots=2, written=10.0) == [[1, 2], [4, 4]]


def test_lengths_have_the_mean_that_was_asked_for_and_stay_within_the_limit():
    lengths = [tokens for own in answer_lengths(Load(tokens=100_000, mean_tokens=1000)) for tokens in own]
    assert sum(lengths) / len(lengths) == pytest.approx(1000, rel=0.03)
    assert max(map(max, answer_lengths(Load(tokens=1000, mean_tokens=1000)))) == 1000


def test_an_update_of_twice_the_gpus_takes_half_as_long_and_the_driver_as_long():
    one, two = (update_parts(Load(gpus=gpus), Costs(), 10**6) for gpus in (8, 16))
    assert one["update"] == 8 * 7.6e9 / 4e14 / 8 * 10**6
    assert two["update"] == one["update"] / 2
    assert two["credits to tokens (driver)"] == one["credits to tokens (driver)"] > 0
    assert update_parts(Load(replays=0, protected=0), Costs(), 10**6)["constraint passes"] == 0
