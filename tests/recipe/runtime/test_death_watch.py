import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from recipe.runtime import death_watch
from recipe.runtime.death_watch import (
    ProcessDied,
    dead_actor,
    dead_engine,
    ending_when_a_process_dies,
    require_living,
)
from workers.ranks import RUN_FOLDER, roll_call

LAST_WORDS = """\
(Worker pid=77) ERROR 11-21 05:58:00 [executor.py:1047] WorkerProc hit an exception.
(Worker pid=77) ERROR 11-21 05:58:00 [executor.py:1047]   File "utils.py", line 405, in load
(Worker pid=77) ERROR 11-21 05:58:00 [executor.py:1047] BufferError: cannot close exported pointers exist
(EngineCore pid=75) ERROR 11-21 05:58:00 [core.py:1581] RuntimeError: Worker failed
"""


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(death_watch, "LOOK_EVERY_SECONDS", 0.05)
    monkeypatch.setattr(death_watch, "GRACE_SECONDS", 0.05)
    monkeypatch.setattr(death_watch, "LISTED_SECONDS", 0.0)


@pytest.fixture
def without_ray(monkeypatch):
    monkeypatch.setattr(death_watch, "ray_actors", lambda **_: {})


def test_a_death_is_found_with_its_first_cause_and_its_file(tmp_path: Path):
    (tmp_path / "worker-a-01000000-7.out").write_text("INFO all is well\n")
    assert dead_engine(tmp_path, "01000000") is None
    (tmp_path / "worker-b-01000000-8.out").write_text("x" * 300_000 + "\n" + LAST_WORDS)
    death = dead_engine(tmp_path, "01000000")
    assert death == "vLLM's engine died: BufferError: cannot close exported pointers exist (worker-b-01000000-8.out)"


def test_an_engine_that_was_killed_leaves_its_server_to_tell(tmp_path: Path):
    told = "ERROR [async_llm.py:744] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.\n"
    (tmp_path / "worker-c-01000000-9.out").write_text(told)
    assert dead_engine(tmp_path, "01000000") == (
        "vLLM's engine died: killed? Its log names no exception (worker-c-01000000-9.out)"
    )


def test_the_death_of_another_jobs_engine_is_none_of_ours(tmp_path: Path):
    (tmp_path / "worker-b-02000000-8.out").write_text(LAST_WORDS)
    assert dead_engine(tmp_path, "01000000") is None


def test_a_block_that_waits_for_a_dead_engine_is_ended(tmp_path: Path, impatient, without_ray):
    (tmp_path / "worker-b-01000000-8.out").write_text(LAST_WORDS)
    with (
        pytest.raises(ProcessDied, match="BufferError: cannot close"),
        ending_when_a_process_dies(tmp_path, "01000000"),
    ):
        time.sleep(30)


def test_a_trainer_that_fails_for_want_of_answers_names_the_dead_engine(tmp_path: Path, impatient, without_ray):
    def fails(error: Exception) -> None:
        with ending_when_a_process_dies(tmp_path, "01000000"):
            raise error

    with pytest.raises(RuntimeError, match=r"^no answers$"):
        fails(RuntimeError("no answers"))
    (tmp_path / "worker-b-01000000-8.out").write_text(LAST_WORDS)
    with pytest.raises(ProcessDied, match="BufferError"):
        fails(RuntimeError("no answers"))
    with pytest.raises(OSError, match="disk full"):
        fails(OSError("disk full"))


def test_a_death_is_waited_for_where_others_may_have_noticed_it_first(monkeypatch, without_ray):
    deaths = iter([None, None, "the worker X died"])
    monkeypatch.setattr(death_watch, "find_death", lambda logs, job: next(deaths))
    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(get_job_id=lambda: "01000000"))
    require_living([], seconds=0.0)
    with pytest.raises(ProcessDied, match="the worker X died"):
        require_living([], seconds=60.0)
    assert not ray.is_initialized()


def test_a_trainer_that_fails_before_ray_lists_the_death_names_it(monkeypatch, without_ray):
    deaths = iter([None, None, "the worker X died"])
    monkeypatch.setattr(death_watch, "find_death", lambda logs, job: next(deaths))
    with pytest.raises(ProcessDied, match="the worker X died"), ending_when_a_process_dies(None, "01000000"):
        raise RuntimeError("3 of 4 prompts failed")


def test_the_users_own_interrupt_stays_what_it_is(tmp_path: Path, impatient, without_ray):
    with pytest.raises(KeyboardInterrupt), ending_when_a_process_dies(tmp_path, "01000000"):
        raise KeyboardInterrupt


def test_nothing_happens_after_the_block(tmp_path: Path, impatient, without_ray):
    with ending_when_a_process_dies(tmp_path, "01000000"):
        pass
    (tmp_path / "worker-b-01000000-8.out").write_text(LAST_WORDS)
    time.sleep(0.3)


def row(cause: str, job: str = "01000000") -> dict:
    return {"ActorClassName": "AgentLoop", "JobID": job, "Address": {"IPAddress": "10.0.0.7"}, "DeathCause": cause}


@pytest.mark.parametrize(
    ("cause", "message"),
    [
        (
            'oom_context { error_message: "1 worker(s) were killed. Memory was 22.18GB used / 23.59GB limit (0.94)"',
            "Ray killed the worker AgentLoop on 10.0.0.7 because its machine ran out of memory (22.18GB used / 23.59GB "
            "limit): run less alongside it",
        ),
        ("Worker unexpectedly exits\n with code 2", "the worker AgentLoop on 10.0.0.7 died: Worker unexpectedly exits"),
        ("The actor died because its node has died. Node Id: 1", "the worker AgentLoop on 10.0.0.7 died: The actor"),
        ("The actor is dead because it was killed by `ray.kill`.", None),
    ],
)
def test_an_actor_that_died_unexpectedly_is_reported_with_its_cause(cause: str, message: str | None):
    found = dead_actor([row(cause)], "01000000")
    if message is None:
        assert found is None
    else:
        assert found is not None
        assert found.startswith(message)
    assert dead_actor([row(cause)], "02000000") is None


def test_a_rank_that_hung_is_named_when_nccl_has_ended_those_that_waited(tmp_path: Path, monkeypatch):
    report = "rank 3 of 16 keeps the others waiting: it is behind, in infer_batch"
    monkeypatch.setattr(death_watch, "ray_actors", lambda **_: {"a": row("Worker unexpectedly exits with SIGABRT")})
    (tmp_path / "worker-a-01000000-7.err").write_text("all is well\n")
    (tmp_path / "worker-b-02000000-8.err").write_text(f"{report}, of another job\n")
    died = "the worker AgentLoop on 10.0.0.7 died: Worker unexpectedly exits with SIGABRT"
    assert death_watch.find_death(tmp_path, "01000000") == died
    (tmp_path / "worker-c-01000000-9.err").write_text(f"rank 2 of 16 keeps the others waiting\n{report}\nWatchdog\n")
    assert death_watch.find_death(tmp_path, "01000000") == f"{died}; before that, {report}"
    assert death_watch.find_death(None, "01000000") == died
    with (
        pytest.raises(ProcessDied, match=f"^a worker died; before that, {report}$"),
        ending_when_a_process_dies(tmp_path, "01000000"),
    ):
        raise ray.exceptions.ActorDiedError
    monkeypatch.setenv(RUN_FOLDER, str(tmp_path / "run"))
    (tmp_path / "run" / "logs").mkdir(parents=True)
    elsewhere = "rank 1 of 16 keeps the others waiting: on another node"
    roll_call._tell(elsewhere)
    assert death_watch.find_death(None, "01000000") == f"{died}; before that, {elsewhere}"
    with pytest.raises(ray.exceptions.RayError, match="full"), ending_when_a_process_dies(tmp_path, "01000000"):
        raise ray.exceptions.ObjectStoreFullError("the store is full")


@pytest.mark.e2e
def test_a_block_that_waits_for_a_worker_that_was_killed_is_ended(impatient):
    @ray.remote
    class Worker:
        def process(self) -> int:
            return os.getpid()

        def wait(self) -> None:
            time.sleep(60)

        def look(self) -> None:
            require_living([], seconds=30.0)

    def wait_for_another() -> None:
        ray.kill(leaving)  # an intended exit
        time.sleep(2)
        os.kill(number, signal.SIGKILL)
        ray.get(waiting.wait.remote())  # as verl waits for its trainer, which waits for the dead worker

    ray.init(num_cpus=1, include_dashboard=False, namespace="death_watch", log_to_driver=False)
    try:
        start: Any = Worker  # the decorator changes its type
        worker, leaving, waiting, looking = (start.options(num_cpus=0).remote() for _ in range(4))
        number = ray.get(worker.process.remote())
        ray.get([leaving.process.remote(), waiting.process.remote()])
        job = ray.get_runtime_context().get_job_id()
        with (
            pytest.raises(ProcessDied, match=r"the worker Worker on .* died: .*unexpectedly"),
            ending_when_a_process_dies(None, job),
        ):
            wait_for_another()
        with pytest.raises(ProcessDied, match=r"the worker Worker on .* died: .*unexpectedly"):
            ray.get(looking.look.remote())  # as verl's trainer does, in a process of the job
    finally:
        ray.shutdown()
