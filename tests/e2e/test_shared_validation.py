"""Two runs that begin alike: the second takes the first's validation and trains as if it had validated itself."""

from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

import pytest

from recipe.records.experiment_page import source_commit
from recipe.records.run_directory import RunDirectory
from tests.e2e.conftest import quickstart, train
from tests.processes import PATIENCE

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.night, pytest.mark.timeout(3600)]

EXACT = ("skill/", "train_skill/", "critic/", "response_length/mean", "actor/grad_norm", "actor/pg_loss")
"""What seeds reproduce to the last bit. (The engine's log-probabilities depend on which requests share a batch.)"""


def test_the_second_run_skips_the_validation_and_its_numbers_are_the_same(
    micro_start: Path, start: Callable[..., Popen[str]], tmp_path: Path
):
    for name in ("first", "second"):
        words = (
            f"run.root={tmp_path}", f"run.name={name}", "run.share_first_validation=true",
            "trainer.total_training_steps=2", "trainer.test_freq=2", "trainer.save_freq=2", "data.val_max_samples=32",
            "data.train_batch_size=8", "actor_rollout_ref.actor.ppo_mini_batch_size=8",
        )  # fmt: skip
        process = start(*train(*quickstart(micro_start), *words))
        output, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, output[-4000:]
    first, second = (RunDirectory(tmp_path / "quickstart" / name) for name in ("first", "second"))
    for one, other in zip(first.metrics(), second.metrics(), strict=True):
        exact = {key: value for key, value in one.items() if key.startswith(EXACT)}
        assert len(exact) > 5
        assert exact == {key: other[key] for key in exact}
    shared = [event["run"] for event in second.events() if event["event"] == "validation_shared"]
    assert shared == ([] if " " in source_commit() else ["first"])  # a checkout with local changes shares nothing
