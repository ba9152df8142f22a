"""Stop a run when one of its processes has died: verl waits forever for a dead engine or worker.

vLLM's engine is a separate process, which leaves its exception in a log. Ray's own tables list actors that crashed, or
that Ray killed because a machine ran out of memory.
"""

import re
import signal
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from ray._private.state import (
    actors as ray_actors,  # the public list_actors asks a dashboard, which a run does not start
)
from ray.exceptions import RayError

from recipe.runtime.ray_session import session_logs
from workers.ranks import WORDS, reports_file

LOOK_EVERY_SECONDS = 5.0
# verl gets this long to notice the death itself, as it does while it generates.
GRACE_SECONDS = 30.0
# Ray gets this long to list a death once the trainer has failed.
LISTED_SECONDS = 10.0
# Not SIGINT: a process that a script started in the background ignores it.
SIGNAL = signal.SIGUSR2
# A dead engine's exception is at the end of its log.
TAIL_BYTES = 1 << 18

# Messages of vLLM's processes about an unhandled exception; the last one of the server, whose engine was killed.
_FATAL = re.compile(
    rb"EngineCore encountered a fatal error|EngineCore failed to start|WorkerProc hit an exception|EngineDeadError"
)
# Ray's causes of death for actors that their owner did not stop.
_OUT_OF_MEMORY = re.compile(r"was (\S+ used / \S+ limit)")
_UNEXPECTED = re.compile(r"unexpectedly|its node has died")
_CAUSE = re.compile(r"\(\w+ pid=\d+\) ERROR [^\]]*\] (\w*(?:Error|Exception)\b.*)")


class ProcessDied(RuntimeError):
    """A process that the run needs has died."""


def find_death(logs: Path | None, job: str) -> str | None:
    """The first dead process of this Ray job, and its cause of death; None if there is none."""
    actor = dead_actor(ray_actors(actor_state_name="DEAD").values(), job)
    if actor and (named := hanging_rank(logs, job)):
        return f"{actor}; before that, {named}"
    return actor or (dead_engine(logs, job) if logs else None)


def death_within(seconds: float, logs: Path | None, job: str) -> str | None:
    """`find_death`, asked again for so long: what a dead node breaks can fail before Ray lists its death."""
    deadline = time.monotonic() + seconds
    while (death := find_death(logs, job)) is None and time.monotonic() < deadline:
        time.sleep(0.2)
    return death


def dead_actor(actors: Iterable[Mapping[str, Any]], job: str) -> str | None:
    """The first dead actor of this job that did not exit normally; actors: rows of Ray's table."""
    for actor in actors:
        cause = str(actor["DeathCause"])
        memory = _OUT_OF_MEMORY.search(cause) if "oom_context" in cause else None
        if actor["JobID"] != job or not (memory or _UNEXPECTED.search(cause)):
            continue
        name = f"the worker {actor['ActorClassName'].rpartition('.')[2]} on {actor['Address']['IPAddress']}"
        if memory:
            return f"Ray killed {name} because its machine ran out of memory ({memory[1]}): run less alongside it"
        return f"{name} died: {' '.join(cause.split())[:300]}"
    return None


def dead_engine(logs: Path, job: str) -> str | None:
    """The exception that a dead engine of this Ray job left in its log, and the log's name; None if none died."""
    for file in sorted(logs.glob(f"worker-*-{job}-*.out")):
        tail = _tail(file)
        if _FATAL.search(tail):
            causes = _CAUSE.findall(tail.decode(errors="replace"))
            return f"vLLM's engine died: {causes[0] if causes else 'killed? Its log names no exception'} ({file.name})"
    return None


def require_living(engines: Iterable[Any], seconds: float) -> None:
    """Fail if a process of this Ray job has died, or is found dead within `seconds`; for the job's own processes.

    engines: handles of verl's servers of vLLM, also on other nodes, whose logs are not here.

    Raises:
        ProcessDied: which process died and why. ray.exceptions.RayError: an engine elsewhere, or its server, is dead.
    """
    if death := death_within(seconds, session_logs(), ray.get_runtime_context().get_job_id()):
        raise ProcessDied(death)
    if asked := [engine.collective_rpc.remote("check_health") for engine in engines]:
        ray.get(asked)


def hanging_rank(logs: Path | None, job: str) -> str | None:
    """The last report of this Ray job's ranks on one that hangs: NCCL then ends the processes that wait for it.

    It is in the run's directory, whatever node the rank is on, or in the log of its process.
    """
    reported = reports_file()
    files = [reported] if reported is not None and reported.is_file() else []
    for file in [*files, *(sorted(logs.glob(f"worker-*-{job}-*.err")) if logs else [])]:
        if reports := [line for line in _tail(file).decode(errors="replace").splitlines() if WORDS in line]:
            return reports[-1]
    return None


def _tail(file: Path) -> bytes:
    with open(file, "rb") as log:
        log.seek(max(0, file.stat().st_size - TAIL_BYTES))
        return log.read()


@contextmanager
def ending_when_a_process_dies(logs: Path | None, job: str) -> Iterator[None]:
    """Interrupt the block when an engine or a worker of this Ray job dies; for the main thread only.

    Raises:
        ProcessDied: which process died and why, also if the trainer failed for want of its answers; for an engine also
            the log file with its stack trace, for a rank that waited the one that hung.
    """
    over, lock, main = threading.Event(), threading.Lock(), threading.get_ident()
    deaths: list[str] = []

    def end_the_block(*signal_and_frame: object) -> None:
        raise KeyboardInterrupt  # the one exception of a signal's handler that ends ray.get: it drops others

    def watch() -> None:
        while not over.wait(LOOK_EVERY_SECONDS):
            death = find_death(logs, job)
            if death is not None and not over.wait(GRACE_SECONDS):
                with lock:
                    if not over.is_set():
                        deaths.append(death)
                        signal.pthread_kill(main, SIGNAL)  # a sleeping or waiting call is interrupted too
                return

    before = signal.signal(SIGNAL, end_the_block)
    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    except KeyboardInterrupt:
        if deaths:
            raise ProcessDied(deaths[0]) from None
        raise
    except (RuntimeError, RayError) as error:  # Ray's own errors name the dead process, not the rank that hung
        with lock:
            over.set()  # what is asked below shall not be interrupted
        waited = isinstance(error, RayError) and "died" in str(error)
        if waited and (named := hanging_rank(logs, job)):
            raise ProcessDied(f"a worker died; before that, {named}") from error
        if isinstance(error, RuntimeError) and (death := death_within(LISTED_SECONDS, logs, job)):
            raise ProcessDied(death) from error
        raise
    finally:
        with lock:
            over.set()
        signal.signal(SIGNAL, before)
