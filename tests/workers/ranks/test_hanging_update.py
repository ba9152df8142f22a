"""An update of verl's real engine in which one of two ranks hangs in its loss: the other one's error names it."""

import contextlib
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.workers.cpu.models import saved_model
from tests.workers.real_engine import actor_worker, in_ranks, samples, update

pytestmark = pytest.mark.slow

LIMIT, HUNG = 60, 1
SHARES = [[0, 3, 1, 4], [2, 5, 6, 7]]
ADVANTAGES = [1.0, -1.0, 0.5, -0.5, 2.0, 1.0, 0.0, -1.5]


def _run(rank: int, ranks: int, folder: str, model: str) -> None:
    from torch.distributed import distributed_c10d

    from workers import engines
    from workers.ranks import roll_call
    from workers.ranks.roll_call import RankHangsError

    found = Path(folder, "error")

    def hangs_in_its_loss(*arguments: Any, **options: Any) -> Any:
        while not found.exists():
            time.sleep(0.5)
        raise InterruptedError

    worker = actor_worker(model)  # joins in torch's time: the ranks do not start together
    engines.prepare_worker_process(LIMIT)
    engines.limit_groups(worker.engine.device_mesh)
    distributed_c10d._set_pg_timeout(timedelta(seconds=LIMIT), distributed_c10d._get_default_group())
    assert roll_call._own is not None
    share = samples(SHARES[rank], ranks, advantages=ADVANTAGES)
    if rank == HUNG:
        worker.set_loss_fn(hangs_in_its_loss)
        with contextlib.suppress(InterruptedError):
            update(worker, share)
    else:
        with pytest.raises(RankHangsError) as caught:
            update(worker, share)
        found.write_text(str(caught.value))


def test_a_rank_that_hangs_in_an_update_is_named_with_its_place(tiny_suite: Path, tmp_path: Path) -> None:
    model = saved_model(tmp_path / "model", tiny_suite / "initial_model")
    in_ranks(_run, 2, str(tmp_path), str(model))
    error = (tmp_path / "error").read_text()
    assert error.startswith("rank 1 of 2 keeps the others waiting: it is in train_mini_batch at ")
    assert "hangs_in_its_loss, ranks/test_hanging_update.py:" in error
    assert f"They wait {LIMIT} s at most" in error
