"""Kill a process of a run with SIGKILL in a random step, start the run again, and compare it with one left alone.

    python -m benchmarks.chaos --runs 30

Victims in turn: the command, verl's task runner, the actor, vLLM's engine, a reward worker, the sandbox's server, the
raylet. A run either continues or ends with a message; the same command then resumes from its last checkpoint. Printed
per run: the victim, the step in which it died, how the run ended, and what is wrong (`benchmarks.chaos.checks`): no
process was killed, a message that does not name the cause, a step lost beyond the last checkpoint, a number other than
the undisturbed run's, and processes, ports, temporary files or shared memory left behind. Exit status 1 if anything is.

Needs the start of `bash scripts/micro_start.sh` and a machine without other runs. Each run's record is a line of
outcomes.jsonl in a folder named for commit and arguments: a benchmark that was interrupted resumes there.
"""

import argparse
import hashlib
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

import psutil

from benchmarks.chaos.checks import CAUSES, Attempt, Kill, Trial, differences, more_than, wrong
from benchmarks.chaos.processes import MARK, SECONDS, RunProcesses, Scratch, kill, left_running
from recipe.records.experiment_page import source_commit
from recipe.records.run_directory import RunDirectory, read_jsonl

ROOT = Path(__file__).resolve().parents[2]
STEPS, SAVED_EVERY = 6, 2
SETTINGS = (
    "experiment=quickstart", f"trainer.total_training_steps={STEPS}", f"trainer.save_freq={SAVED_EVERY}",
    f"trainer.test_freq={STEPS}", "trainer.val_before_train=false", "data.val_max_samples=8",
    "credit=counterfactual", "credit.skip_equal_groups=false",
)  # fmt: skip
COMMAND = (sys.executable, "-m", "recipe.train")
LONGEST_SECONDS, LONGEST_MESSAGE = 1800.0, 20_000
VICTIMS = {
    "command": "recipe.train",
    "task runner": "ray::TaskRunner",
    "actor": "ray::WorkerDict",
    "engine": "VLLM::EngineCore",
    "reward worker": "ray::RewardLoopWorker",
    "sandbox": "rewards.sandbox serve",
    "raylet": "raylet/raylet",
}
"""Start of each victim's name, or a part of its command line; the oldest such process is killed."""
ALONE = "alone"
LOOK_EVERY = 2.0
"""Seconds between two looks at a run's processes."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0, help="of the times at which processes are killed")
    parser.add_argument("--victims", nargs="+", choices=CAUSES, default=list(CAUSES))
    parser.add_argument("--out", type=Path, default=ROOT / "outputs" / "chaos")
    parser.add_argument("overrides", nargs="*", help="more overrides of recipe.train, for every run")
    options = parser.parse_args()
    folder = TrialFolder(options.out.absolute(), tuple(options.overrides), source_commit())
    alone = folder.undisturbed()
    trials = []
    for number in range(options.runs):
        victim = options.victims[number % len(options.victims)]
        trials.append(
            folder.kept(options.seed, number, victim) or folder.disturbed(options.seed, number, victim, alone)
        )
        print(line_of(trials[-1]), flush=True)
    bad = sum(bool(wrong(one, SAVED_EVERY)) for one in trials)
    survived = sum(one.survived for one in trials)
    print(f"{len(trials) - bad} of {len(trials)} runs right; {survived} survived without a restart ({folder.path})")
    return int(bad > 0)


def line_of(trial: Trial) -> str:
    """A trial as a line of the report."""
    statuses = [str(one.status) for one in trial.attempts]
    ended = "continued" if trial.survived else f"ended with {', then '.join(statuses)}"
    step = trial.kill.step if trial.kill else "-"
    found = "; ".join(wrong(trial, SAVED_EVERY)) or "right"
    return f"{trial.number:3d}  {trial.victim:13s} step {step}  {ended:24s} {found}"


@dataclass(frozen=True)
class Alone:
    """What others are compared with: rows of metrics, seconds of each step from the start or the step before, and usual
    temporary files."""

    rows: list[dict[str, float]]
    seconds: list[float]
    usual: list[str]


class TrialFolder:
    """The runs of one benchmark, in a folder named for what determines their numbers: overrides and commit."""

    def __init__(self, out: Path, overrides: Sequence[str], commit: str):
        self.arguments = [*SETTINGS, *overrides]
        digest = hashlib.sha256("\0".join([*self.arguments, commit]).encode()).hexdigest()[:8]
        self.path = out / digest
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / "arguments.json").write_text(json.dumps({"commit": commit, "arguments": self.arguments}))
        self._outcomes = self.path / "outcomes.jsonl"

    def kept(self, seed: int, number: int, victim: str) -> Trial | None:
        """The trial of this draw from an earlier, interrupted benchmark."""
        trials = map(Trial.of, read_jsonl(self._outcomes))
        return next((one for one in trials if (one.seed, one.number, one.victim) == (seed, number, victim)), None)

    def keep(self, trial: Trial) -> None:
        """Append a trial."""
        with open(self._outcomes, "a") as file:
            file.write(json.dumps(asdict(trial)) + "\n")

    def undisturbed(self) -> Alone:
        """The run that nothing disturbs, trained unless its record exists; ends the benchmark if it is not right."""
        record = self.path / f"{ALONE}.json"
        if not record.exists():
            run = self._new_run(ALONE)
            with Scratch() as scratch, Start(self, run, scratch, 1) as start:
                attempt = start.ended()
                usual = scratch.names()
            if attempt.status != 0 or attempt.left or not run.finished:
                sys.exit(f"{attempt.message}\nthe undisturbed run ended with {attempt.status}, left {attempt.left}")
            times = [run.events()[0]["time"], *(row["time"] for row in run.metrics() if row["step"])]
            alone = Alone(run.metrics(), [later - time for time, later in pairwise(times)], usual)
            record.write_text(json.dumps(asdict(alone)))
            print(f"undisturbed: {sum(alone.seconds):.0f} s; usual temporary files: {', '.join(usual) or 'none'}")
        return Alone(**json.loads(record.read_text()))

    def disturbed(self, seed: int, number: int, victim: str, alone: Alone) -> Trial:
        """One run whose victim is killed at a random time, or as soon as it exists then; started again if it failed."""
        run = self._new_run(f"s{seed}.r{number}")
        with Scratch() as scratch, Start(self, run, scratch, 1) as start:
            share, step = math.modf(random.Random(f"{seed}.{number}").uniform(0, STEPS - 1))
            killed = start.kill_one(victim, int(step), share * alone.seconds[int(step)])
            attempts = [start.ended(alone.usual)]
        if attempts[0].status != 0:
            with Scratch() as scratch, Start(self, run, scratch, 2) as start:
                attempts.append(start.ended(alone.usual))
        rows = [row for row in read_jsonl(run.path / "metrics.jsonl") if "step" in row]
        trial = Trial(seed, number, victim, killed, tuple(attempts), tuple(differences(rows, alone.rows)))
        self.keep(trial)
        return trial

    def _new_run(self, name: str) -> RunDirectory:
        """The directory of a run; what an interrupted benchmark left there is removed."""
        shutil.rmtree(self.path / name, ignore_errors=True)
        return RunDirectory(self.path / name)


class Start:
    """One start of a run's command, with a folder for its temporary files and a file for all that it prints.

    As a context it ends what still runs, also when the benchmark itself is interrupted.
    """

    def __init__(self, folder: TrialFolder, run: RunDirectory, scratch: Scratch, number: int):
        self._run, self._scratch = run, scratch
        self._events, self._told = len(run.events()), 0
        self._output = folder.path / f"{run.path.name}.{number}.log"
        where = [
            f"run.root={folder.path.parent}",
            f"run.experiment={folder.path.name}",
            f"run.name={run.path.name}",
        ]
        # Of no cluster; the niceness of workers stays, without which they starve beside other tests.
        kept = (key for key in os.environ if not key.startswith("RAY_") or key == "RAY_worker_niceness")
        environment = {key: os.environ[key] for key in kept}
        mark = f"{run.path.name}.{uuid4().hex}"  # runs of other benchmarks have the same names
        environment |= {MARK: mark, "TMPDIR": str(scratch.path)}
        with open(self._output, "w") as output:
            self._process = subprocess.Popen(
                [*COMMAND, *folder.arguments, *where],
                cwd=ROOT, env=environment, stdout=output, stderr=output, text=True,
            )  # fmt: skip
        self._processes = RunProcesses(mark, self._process.pid)
        self._deadline = time.monotonic() + LONGEST_SECONDS

    def __enter__(self) -> "Start":
        return self

    def __exit__(self, *exception: object) -> None:
        left_running(self._processes, 0.0)
        self._process.wait()

    def kill_one(self, victim: str, step: int, after: float) -> Kill | None:
        """Kill the oldest process of this kind so many seconds after this step (0: the start), or when it appears, and
        at the latest after the next step: a machine may be faster than it was. None if there was none.
        """
        begun = math.inf
        found: list[psutil.Process] = []
        while not found and self._process.poll() is None and time.monotonic() < self._deadline:
            time.sleep(0.2)
            newest, now = self._newest_step(), time.monotonic()
            begun = min(begun, now if newest >= step else math.inf)
            if newest > step or now - begun >= after:
                found = self._victims(victim)
        if not found:
            return None
        chosen, name = found[0], found[0].name()
        self._told = len(self._output.read_text(errors="replace"))
        when, recorded = time.time(), self._newest_step()
        return Kill(chosen.pid, name, when, recorded, kill(chosen))

    def _victims(self, victim: str) -> list[psutil.Process]:
        found = self._processes.named(VICTIMS[victim])
        return [one for one in found if one.pid == self._process.pid] if victim == "command" else found

    def ended(self, usual: Sequence[str] | None = None) -> Attempt:
        """Wait for the end, clean up, and return the record. usual: temporary files that count as none left behind."""
        while (status := self._process.poll()) is None and time.monotonic() < self._deadline:
            self._processes.alive()  # remembers what the command has started
            time.sleep(LOOK_EVERY)
        left = left_running(self._processes, SECONDS if status is not None else 0.0)
        self._process.wait()
        unusual = more_than(self._scratch.names(), usual) if usual is not None else []
        events = self._run.events()[self._events :]
        failures = [str(event.get("error")) for event in events if event["event"] == "failed"]
        message = "\n".join([self._output.read_text(errors="replace")[self._told :][-LONGEST_MESSAGE:], *failures])
        ready = next((int(event["step"]) for event in events if event["event"] == "ready"), None)
        return Attempt(
            status, message, ready, self._newest_step(), self._run.last_checkpoint or 0,
            (*left, *unusual, *self._scratch.elsewhere(self._processes.mapped)),
        )  # fmt: skip

    def _newest_step(self) -> int:
        return max((int(row["step"]) for row in self._run.metrics()), default=0)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # it ends its runs, as after Ctrl-C
    sys.exit(main())
