"""Kill a process of a run with SIGKILL at a random time, start the run again, and compare it with one left alone.

    python -m benchmarks.chaos --runs 30

Victims in turn: the command, verl's task runner, the actor, vLLM's engine, a reward worker, the sandbox's server, the
raylet. A run either continues or ends with a message; the same command then resumes from its last checkpoint. Printed
per run: the victim, the step in which it died, how the run ended, and what is wrong: an end without a message that
names the cause, a step or number that differs from the undisturbed run, a process, shared memory, or open port left
behind. Needs the start of `bash scripts/micro_start.sh`. Runs that were counted before are not repeated.
"""

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

from recipe.records.run_directory import RunDirectory

ROOT = Path(__file__).resolve().parents[1]
NAME = "chaos"
MARK = "SKILLCREDIT_CHAOS"
STEPS, SAVED_EVERY = 6, 2
SETTINGS = (
    "experiment=quickstart", f"run.experiment={NAME}", f"trainer.total_training_steps={STEPS}",
    f"trainer.save_freq={SAVED_EVERY}", f"trainer.test_freq={STEPS}", "trainer.val_before_train=false",
    "data.val_max_samples=8", "credit=counterfactual", "credit.skip_equal_groups=false",
)  # fmt: skip
EQUAL = ("critic/score/mean", "response_length/mean", "actor/entropy", "actor/grad_norm", "credit/advantage_shift")
"""Metrics of every step that must have the undisturbed run's values, to the last bit."""
LONGEST_SECONDS = 1800
# Agents of Ray that notice the end of a killed run only after minutes.
LATE = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")


@dataclass(frozen=True)
class Victim:
    """named: start of its process's name, or part of its command line. told: words, of which its message has one;
    the command itself, without any, can report nothing."""

    named: str
    told: tuple[str, ...] = ()


VICTIMS = {
    "command": Victim("recipe.train"),
    "task runner": Victim("ray::TaskRunner", ("TaskRunner", "died")),
    "actor": Victim("ray::WorkerDict", ("WorkerDict", "died")),
    "engine": Victim("VLLM::EngineCore", ("EngineCore", "EngineDead", "engine")),
    "reward worker": Victim("ray::RewardLoopWorker", ("RewardLoopWorker",)),
    "sandbox": Victim("rewards.sandbox serve", ("sandbox", "Sandbox")),
    "raylet": Victim("raylet/raylet", ("raylet", "Ray", "node")),
}


@dataclass
class DisturbedRun:
    """One disturbed run. first: the exit status of its first start; restarted: of its second, if it needed one."""

    number: int
    victim: str
    at_step: int
    first: int | None
    restarted: int | None = None
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        ended = "went on" if self.first == 0 else f"ended with {self.first}, then {self.restarted}"
        return (
            f"{self.number:3d}  {self.victim:13s} step {self.at_step}  {ended:24s} {'; '.join(self.wrong) or 'right'}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0, help="of the times at which processes are killed")
    parser.add_argument("--victims", nargs="+", choices=VICTIMS, default=list(VICTIMS))
    parser.add_argument("overrides", nargs="*", help="more overrides of recipe.train, for every run")
    options = parser.parse_args()
    alone, seconds = undisturbed(options.overrides)
    record = alone.path.parent / "outcomes.jsonl"
    done = [DisturbedRun(**json.loads(line)) for line in record.read_text().splitlines()] if record.exists() else []
    for number in range(len(done), options.runs):
        draw = random.Random(f"{options.seed}.{number}")
        victim = options.victims[number % len(options.victims)]
        done.append(disturbed(number, victim, draw.uniform(0, seconds), alone, options.overrides))
        with open(record, "a") as file:
            file.write(json.dumps(asdict(done[-1])) + "\n")
        print(done[-1], flush=True)
    right = sum(not one.wrong for one in done)
    print(f"{right} of {len(done)} runs right; {sum(one.first == 0 for one in done)} went on without a second start")


def undisturbed(overrides: Sequence[str]) -> tuple[RunDirectory, float]:
    """The run that nothing disturbs, and its seconds from start to end; trained if it does not exist."""
    run = RunDirectory(ROOT / "outputs" / NAME / "alone")
    if not run.finished:
        status, output = finish("alone", start("alone", overrides))
        if status:
            sys.exit(f"the undisturbed run failed:\n{output[-3000:]}")
    times = [event["time"] for event in run.events()]
    return run, max(times) - min(times)


def start(name: str, overrides: Sequence[str]) -> subprocess.Popen[str]:
    """Start the run of this name; all of its processes have its name in their environment."""
    command = [sys.executable, "-m", "recipe.train", *SETTINGS, *overrides, f"run.name={name}"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")} | {MARK: name}
    (ROOT / "outputs" / NAME).mkdir(parents=True, exist_ok=True)
    with open(ROOT / "outputs" / NAME / f"{name}.log", "a") as log:
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log, text=True)


def finish(name: str, process: subprocess.Popen[str]) -> tuple[int | None, str]:
    """Exit status, None if it took too long, and the output of all starts of this run."""
    status: int | None = None
    with contextlib.suppress(subprocess.TimeoutExpired):
        status = process.wait(LONGEST_SECONDS)
    return status, (ROOT / "outputs" / NAME / f"{name}.log").read_text()


def disturbed(number: int, victim: str, after: float, alone: RunDirectory, overrides: Sequence[str]) -> DisturbedRun:
    """One run whose victim is killed `after` seconds, or as soon as it exists then."""
    name = f"r{number}"
    run, before = RunDirectory(ROOT / "outputs" / NAME / name), shared_memory()
    process = start(name, overrides)
    time.sleep(after)
    while (found := processes(name, VICTIMS[victim].named)) == [] and process.poll() is None:
        time.sleep(0.2)
    step = max((int(row["step"]) for row in run.metrics()), default=0)
    if found:
        found[0].kill()
    status, output = finish(name, process)
    outcome = DisturbedRun(number, victim, step, status)
    if status is None:
        outcome.wrong.append(f"did not end within {LONGEST_SECONDS} s")
    elif status and VICTIMS[victim].told and not any(word in output for word in VICTIMS[victim].told):
        outcome.wrong.append("its message does not name the cause")
    outcome.wrong += left_behind(name, before)
    if status != 0:
        outcome.restarted, _ = finish(name, start(name, overrides))
        if outcome.restarted != 0:
            outcome.wrong.append(f"the second start ended with {outcome.restarted}")
        outcome.wrong += left_behind(name, before)
    outcome.wrong += differences(run, alone)
    return outcome


def processes(name: str, part: str = "") -> list[psutil.Process]:
    """Living processes of the run of this name whose name starts with, or whose command line has, this part."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            line = " ".join(process.cmdline())
            of_run = process.environ().get(MARK) == name and process.status() != psutil.STATUS_ZOMBIE
            if of_run and (process.name().startswith(part) or part in line):
                found.append(process)
    return found


def left_behind(name: str, before: set[str], seconds: float = 60) -> list[str]:
    """What is still there a minute after the run's end; its processes are killed."""
    deadline = time.monotonic() + seconds
    while (alive := [one for one in processes(name) if one.name() not in LATE]) and time.monotonic() < deadline:
        time.sleep(1)
    found = []
    for process in processes(name):
        with contextlib.suppress(psutil.Error):
            if process in alive:
                ports = [one.laddr.port for one in process.net_connections() if one.status == psutil.CONN_LISTEN]
                found.append(f"left {process.name()}{f' on port {ports[0]}' if ports else ''}")
            process.kill()
    if rest := shared_memory() - before:
        found.append(f"left {len(rest)} in /dev/shm: {min(rest)}")
    return found


def shared_memory() -> set[str]:
    """Names in /dev/shm."""
    return {path.name for path in Path("/dev/shm").iterdir()}


def differences(run: RunDirectory, alone: RunDirectory) -> list[str]:
    """In what a run differs from the undisturbed one: steps that it lacks, and the first number that is another."""
    expected, rows = ({int(row["step"]): row for row in one.metrics()} for one in (alone, run))
    found = [f"lacks step {step}" for step in expected if step not in rows]
    for step in sorted(expected.keys() & rows.keys()):
        for key in EQUAL:
            if expected[step].get(key) != rows[step].get(key):
                return [*found, f"step {step}: {key} {rows[step].get(key)}, not {expected[step].get(key)}"]
    return found


if __name__ == "__main__":
    main()
