"""The update in which an anchor set is frozen, as in a run of all skills mixed."""

import math
from typing import Any

import pytest
import torch

from workers import actor
from workers.safe_update import SafeUpdate
from workers.solution_store import StoredSolution
from workers.update_request import Constraint, Protection


def test_the_first_update_of_a_newly_frozen_anchor_set_keeps_its_line(monkeypatch: pytest.MonkeyPatch):
    """Each whole step loses 0.5 nats, and epsilon is 0.03."""
    worker: Any = object.__new__(actor.SkillCreditTrainingWorker)
    shards = [torch.zeros(1)]
    monkeypatch.setattr(
        actor, "measured_levels", lambda _, sets, *rest: [-float(shards[0]) if of else math.nan for of in sets]
    )
    worker.engine, worker._accepted, worker._micro_batch = None, {}, dict
    worker._optimizer, worker._shards = lambda: torch.optim.SGD(shards), lambda: shards
    for anchored in (0, 3):
        constraint = Constraint("a", 0, [StoredSolution([1], [2], [1])] * 3, anchored=anchored)
        protection = Protection([constraint], "qp", 0.03, "absolute", closed_loop=True, tries=6)
        update = SafeUpdate(protection, [torch.zeros(1, 1)], [shards[0].clone()])
        worker._begin_verification(update, 1.0, 6)
        shards[0] += 0.5
        worker._verify(update)
        worker._accepted = update.accepted
    assert 0 < update.metrics()["projection/kept_share"] < 1
    assert update.metrics()["projection/line/a"] == pytest.approx(-0.53)
    assert -float(shards[0]) >= update.metrics()["projection/line/a"]
