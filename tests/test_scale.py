"""The simulation of a large step: closed forms by hand, and laws of queues."""

import dataclasses

import pytest

from benchmarks.scale import (
    Costs,
    Load,
    answer_lengths,
    finish_times,
    judged,
    pass_tokens,
    sandbox_waits,
    update_parts,
    volumes,
)

COSTS = Costs(answer=1.0, replay=3.0)


@pytest.mark.parametrize("cores", [1, 2, 3, 5])
def test_programs_that_arrive_together_take_turns(cores: int):
    answers, replays = -(-12 // cores) * 1.0, -(-24 // cores) * 3.0
    assert judged([[10.0] * 12], cores, COSTS, 2, by_group=True) == 10 + answers + replays
    assert judged([[10.0] * 12], cores, COSTS, 0) == 10 + answers


def test_replays_by_group_wait_for_the_last_answer_and_others_do_not():
    assert judged([[0.0, 100.0]], 1, COSTS, 2, by_group=True) == 100 + 1 + 4 * 3
    assert judged([[0.0, 100.0]], 1, COSTS, 2) == 100 + 1 + 2 * 3


def test_an_answer_that_hangs_takes_the_limit_and_so_do_its_replays():
    hanging = dataclasses.replace(COSTS, hanging=1.0, limit=7.0)
    assert [judged([[0.0]], cores, hanging, 2) for cores in (1, 4)] == [21, 14]


@pytest.mark.parametrize("by_group", [False, True])
def test_more_cores_are_never_slower_and_the_work_is_done(by_group: bool):
    load = Load(prompts=64, gpus=16)
    finished = finish_times(answer_lengths(load), 16, 64, Costs.written)
    waits = [*sandbox_waits(finished, load, COSTS, by_group).values()]
    assert waits == sorted(waits, reverse=True)
    work = load.answers * (COSTS.answer + load.replays * COSTS.replay)
    assert max(map(max, finished)) + waits[0] >= work / load.nodes
    assert waits[-1] >= COSTS.answer + COSTS.replay


def test_an_engine_without_a_free_slot_lets_answers_wait():
    for engines, second in ((1, [5, 6]), (2, [4, 4])):
        assert finish_times([[10, 20], [40, 40]], engines, slots=2, written=10.0) == [[1, 2], second]


def test_a_pass_for_a_constraint_takes_as_long_as_its_longest_answer_where_each_rank_has_one():
    load = Load(prompts=4, samples=2, gpus=2, protected=1, memory=2)
    assert pass_tokens([[9, 3], [2, 1], [99, 99], [99, 99]], load) == 9 + 3
    assert pass_tokens([[9, 3], [2, 1], [99, 99], [99, 99]], dataclasses.replace(load, gpus=1)) == 15


def test_twice_the_gpus_halve_the_update_and_not_the_drivers_part():
    one, two = (update_parts(Load(gpus=gpus), Costs(), [[10**6]]) for gpus in (8, 16))
    assert one["update"] == 8 * 7.6e9 / 4e14 / 8 * 10**6 * (1 - 4 * 32 / 1024) == 2 * two["update"]
    assert two["credits to tokens (driver)"] == one["credits to tokens (driver)"] > 0


def test_the_parts_of_an_update_and_its_bytes_by_hand():
    """One in five prompts is a memory prompt; a half of a skill has ten answers, of which a rank has one or two."""
    load = Load(prompts=100, samples=2, gpus=8, parameters=1e9, protected=2, memory=10)
    lengths = [[5000, 5000]] * 100
    passes = {"update": 2.5 * 0.8, "old log-probabilities": 0.625, "constraint passes": 2.5 / 5 * 16 / 10}
    driver = {"credits to tokens (driver)": 200 * 0.124 / 1024}
    assert update_parts(load, Costs(operations=4e14), lengths) == pytest.approx(passes | driver)
    sizes = {"checkpoint": 12.0, "its averages of constraints": 8.0, "reward traffic": 0.044, "transfer queue": 0.068}
    assert volumes(load, 10**6) == pytest.approx(sizes)
    assert update_parts(dataclasses.replace(load, replays=0), Costs(), lengths)["credits to tokens (driver)"] == 0


def test_a_core_serves_answers_and_replays_in_the_order_in_which_they_come():
    """Answers at 0 and 1.5 s: answer, its replay from 1 to 4 s, the other answer to 5 s, and its replay."""
    assert judged([[0.0], [1.5]], 1, COSTS, 1) == 8
    assert judged([[0.0], [1.5]], 2, COSTS, 1) == 5.5
    assert judged([[0.0, 1.5]], 1, COSTS, 1, by_group=True) == 1.5 + 1 + 2 * 3
