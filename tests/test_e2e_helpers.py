"""What the end-to-end tests wait for does not depend on when they look."""

import subprocess
import sys
from pathlib import Path

import pytest

from recipe.records.run_directory import RunDirectory
from recipe.training.asynchronous.prompts import PromptStream
from tests.e2e.conftest import wait_for, without_checkpoint


@pytest.mark.slow
def test_what_a_process_did_before_it_ended_counts_though_it_ended_between_two_looks() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE, text=True)
    looks: list[int] = []

    def has_come_about() -> bool:
        if not looks:
            process.wait()  # after this look, which is too early
        looks.append(1)
        return len(looks) > 1

    wait_for(has_come_about, process, seconds=60)
    assert len(looks) == 2


def test_a_run_that_is_killed_late_has_not_saved_its_last_step(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    folder = run.checkpoints / "global_step_4"
    with without_checkpoint(run, 4), pytest.raises(FileExistsError):
        PromptStream(None).save(folder)
    PromptStream(None).save(folder)
    assert [file.name for file in folder.iterdir()] == [PromptStream.FILE]
