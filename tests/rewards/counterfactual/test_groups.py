"""The board of groups: which siblings a sample waits for, and how long."""

import asyncio

from rewards.counterfactual import groups
from rewards.counterfactual.groups import GroupBoard
from rewards.counterfactual.siblings import Sibling

ANSWER = Sibling("x")


async def test_a_sibling_that_ended_without_a_score_is_not_waited_for():
    board = GroupBoard(3, patience=1e9)
    waiting = [asyncio.create_task(board.meet("g", number, float(number), ANSWER)) for number in range(2)]
    await asyncio.sleep(0)
    assert not any(one.done() for one in waiting)
    await board.leave("g", 2)
    assert await asyncio.gather(*waiting) == [[(0.0, ANSWER), (1.0, ANSWER)]] * 2
    assert await board.meet("g", 3, 2.0, ANSWER) == [(0.0, ANSWER), (1.0, ANSWER), (2.0, ANSWER)], "a late sample waits"
    assert not board._groups


async def test_of_complete_groups_the_newest_are_remembered(monkeypatch):
    monkeypatch.setattr(groups, "KEPT_COMPLETE", 2)
    board = GroupBoard(1, patience=1e9)
    for name in "abc":
        await board.meet(name, 0, 1.0, ANSWER)
    assert list(board._complete) == ["b", "c"]
