"""The update in which an anchor set is frozen, between others: as in a run of all skills mixed."""

import math
from typing import Any

import pytest
import torch

from workers import actor
from workers.safe_update import Constraint, Protection, SafeUpdate
from workers.solution_store import StoredSolution

SOLUTIONS = [StoredSolution([1], [2], [1])] * 3


def verified(worker: Any, level: list[float], anchored: int, lost: float) -> SafeUpdate:
    """An update whose whole step loses so many nats, as the worker verifies it; `level` becomes its end's."""
    constraint = Constraint("a", 0, SOLUTIONS, anchored=anchored)
    protection = Protection([constraint], "qp", 0.03, "absolute", closed_loop=True, tries=6)
    update = SafeUpdate(protection, [torch.zeros(1, 1)], [torch.zeros(1)])
    before, shards = level[0], [torch.zeros(1)]
    worker._shards = lambda: shards
    worker.levels = lambda sets: [before - lost * float(shards[0]) if each else math.nan for each in sets]
    worker._begin_verification(update, 1.0, 6)
    shards[0] += 1.0
    worker._verify(update)
    level[0] = before - lost * float(shards[0])
    worker._accepted = update.accepted
    return update


def test_the_first_update_of_a_newly_frozen_anchor_set_keeps_its_line(monkeypatch: pytest.MonkeyPatch):
    worker: Any = object.__new__(actor.SkillCreditTrainingWorker)
    monkeypatch.setattr(actor, "measured_levels", lambda engine, sets, *rest: worker.levels(sets))
    worker.engine, worker._accepted, worker._micro_batch = None, {}, dict
    worker._optimizer = lambda: torch.optim.SGD([torch.zeros(1)])
    level = [-1.0]
    assert verified(worker, level, anchored=0, lost=0.5).metrics()["projection/kept_share"] == 1.0
    numbers = verified(worker, level, anchored=3, lost=0.5).metrics()
    assert level == [-1.5 - 0.5 * numbers["projection/kept_share"]]
    assert numbers["projection/line/a"] == pytest.approx(-1.53)
    assert level[0] >= numbers["projection/line/a"]
    assert numbers["projection/verified_margin/a"] >= 0
