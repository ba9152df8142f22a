import time
from pathlib import Path

import pytest

from recipe.training import engine_watch
from recipe.training.engine_watch import EngineDied, ending_when_the_engine_dies, find_death

LAST_WORDS = """\
(Worker pid=77) ERROR 11-21 05:58:00 [executor.py:1047] WorkerProc hit an exception.
(Worker pid=77) ERROR 11-21 05:58:00 [executor.py:1047]   File "utils.py", line 405, in load
(Worker pid=77) ERROR 11-21 05:58:00 [executor.py:1047] BufferError: cannot close exported pointers exist
(EngineCore pid=75) ERROR 11-21 05:58:00 [core.py:1581] RuntimeError: Worker failed
"""


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(engine_watch, "LOOK_EVERY_SECONDS", 0.05)
    monkeypatch.setattr(engine_watch, "GRACE_SECONDS", 0.05)


def test_a_death_is_found_with_its_first_cause_and_its_file(tmp_path: Path):
    (tmp_path / "worker-a-01000000-7.out").write_text("INFO all is well\n")
    assert find_death(tmp_path, "01000000") is None
    (tmp_path / "worker-b-01000000-8.out").write_text("x" * 300_000 + "\n" + LAST_WORDS)
    death = find_death(tmp_path, "01000000")
    assert death == "BufferError: cannot close exported pointers exist (worker-b-01000000-8.out)"


def test_the_death_of_another_jobs_engine_is_none_of_ours(tmp_path: Path):
    (tmp_path / "worker-b-02000000-8.out").write_text(LAST_WORDS)
    assert find_death(tmp_path, "01000000") is None


def test_a_block_that_waits_for_a_dead_engine_is_ended(tmp_path: Path, impatient):
    (tmp_path / "worker-b-01000000-8.out").write_text(LAST_WORDS)
    with (
        pytest.raises(EngineDied, match="BufferError: cannot close"),
        ending_when_the_engine_dies(tmp_path, "01000000"),
    ):
        time.sleep(30)


def test_the_users_own_interrupt_stays_what_it_is(tmp_path: Path, impatient):
    with pytest.raises(KeyboardInterrupt), ending_when_the_engine_dies(tmp_path, "01000000"):
        raise KeyboardInterrupt


def test_nothing_happens_after_the_block(tmp_path: Path, impatient):
    with ending_when_the_engine_dies(tmp_path, "01000000"):
        pass
    (tmp_path / "worker-b-01000000-8.out").write_text(LAST_WORDS)
    time.sleep(0.3)
