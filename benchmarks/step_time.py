"""Cost of some overrides per training step: alternating pairs of whole runs on the real stack.

    python -m benchmarks.step_time --other "credit=counterfactual credit.budget=4" experiment=quickstart
    python -m benchmarks.step_time --other projection=qp experiment=quickstart
    python -m benchmarks.step_time --other trainer.v1.trainer_mode=skillcredit_colocate_async experiment=quickstart
    python -m benchmarks.step_time --base projection=off --other "projection=qp projection.protected=[write,repair]" \
        experiment=paper_b protocol.skill_sequence=[sql] protocol.stage_steps=12
    # a closed loop, verification included: two protected skills (steps 17 to 24 of three stages of 8), and all mixed
    # (once 16 solutions of each skill are stored)
    python -m benchmarks.step_time --steps 24 --skip 18 --test-freq 8 --base arm=grpo --other arm=closed_loop \
        experiment=paper_b protocol.skill_sequence=[write,repair,sql]
    python -m benchmarks.step_time --steps 24 --skip 14 --base arm=grpo experiment=quickstart \
        --other "arm=closed_loop projection.epsilon=0.03 projection.gain=0" protocol.every_skill=true

Each pair is a run with the base overrides and one with the others, in alternating order, on the same prompts (same
seed), with a validation of four prompts at the end. A run's figure is its median step, without the first ones: two
(compilation, caches), or --skip where protection begins later. Printed: both figures and their ratio for each pair, the
median ratio with its range, and the median of each phase of a step. In addition to the time, the processor seconds per
step of all processes of the run: if every core is busy, they show the cost even on a shared machine whose speed varies
from run to run. Finished runs are reused.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.sandbox_server import processor_seconds
from recipe.records.run_directory import STEP_TIME, RunDirectory

ROOT = Path(__file__).resolve().parents[1]
SKIPPED = 2
PROCESSOR = "processor_seconds.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default="", help="overrides of recipe.train")
    parser.add_argument("--other", required=True, help="the overrides whose cost is measured")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12, help="steps per run")
    parser.add_argument("--skip", type=int, default=SKIPPED, help=f"steps that do not count (default {SKIPPED})")
    parser.add_argument("--test-freq", type=int, help="validate every N steps (default: at the end only)")
    parser.add_argument("--name", help="runs are kept in outputs/NAME (default: built from overrides and steps)")
    parser.add_argument("overrides", nargs="+", help="overrides of all runs, such as experiment=quickstart")
    options = parser.parse_args()
    if options.steps <= options.skip:
        parser.error(f"--steps must be more than {options.skip}, the steps that do not count")
    part = f"skip{options.skip}" if options.skip != SKIPPED else ""
    length = f"steps{options.steps}.{options.test_freq or options.steps}"
    given = [*options.overrides, options.base, options.other, length, part]
    measures = measures_after(options.skip)
    name = options.name or re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(["step_time", *filter(None, given)]))
    arms = {"base": options.base.split(), "other": options.other.split()}
    pairs = []
    for pair in range(options.pairs):
        runs = {}
        # Alternate the order, so that a machine that slows down or warms up favours neither.
        for arm in sorted(arms, reverse=pair % 2 == 1):
            words = [*options.overrides, *arms[arm]]
            runs[arm] = trained(name, f"{arm}.p{pair}", options.steps, words, options.skip, options.test_freq)
        pairs.append((runs["base"], runs["other"]))
        print(f"pair {pair}: {'; '.join(compared(*pairs[-1], *measure) for measure in measures.items())}", flush=True)
    for what, measure in measures.items():
        ratios = [measure(other) / measure(base) for base, other in pairs]
        print(f"median ratio of {what} {statistics.median(ratios):.3f} ({min(ratios):.3f}-{max(ratios):.3f})")
    for phase in phases(pairs[0][0], options.skip):
        base, other = (statistics.median(median_of(pair[arm], phase, options.skip) for pair in pairs) for arm in (0, 1))
        print(f"  {phase:32s} {base:8.3f} s {other:8.3f} s")


def compared(base: RunDirectory, other: RunDirectory, what: str, measure: Callable[[RunDirectory], float]) -> str:
    """One measure of both runs of a pair, and their ratio, as text."""
    seconds = measure(base), measure(other)
    return f"{what} {seconds[0]:.2f} s, {seconds[1]:.2f} s, ratio {seconds[1] / seconds[0]:.3f}"


def trained(
    experiment: str, name: str, steps: int, overrides: Sequence[str], skip: int, test_freq: int | None
) -> RunDirectory:
    """The finished run of this name; it is trained if it does not exist."""
    run = RunDirectory(ROOT / "outputs" / experiment / name)
    if not run.finished:
        # A stage must end with a validation: a minimal one.
        measured = [
            f"trainer.total_training_steps={steps}",
            f"trainer.test_freq={test_freq or steps}",
            "data.val_max_samples=4",
        ]
        measured += ["trainer.save_freq=-1"]
        measured += ["trainer.val_before_train=false", f"run.experiment={experiment}", f"run.name={name}"]
        train([sys.executable, "-m", "recipe.train", *overrides, *measured], run, steps, skip)
    return run


def train(command: Sequence[str], run: RunDirectory, steps: int, skip: int = SKIPPED) -> None:
    """Run the command to its end; write the mean processor seconds per counted step to the run's folder."""
    spent: dict[int, float] = {}
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        done = max((int(row["step"]) for row in run.metrics()), default=0)
        for step in (skip, steps):
            if done >= step and step not in spent:
                spent[step] = processor_seconds(process.pid)
        time.sleep(0.2)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    seconds = (spent[steps] - spent[skip]) / (steps - skip)
    (run.path / PROCESSOR).write_text(json.dumps(seconds))


def median_of(run: RunDirectory, metric: str, skip: int) -> float:
    """Median of a metric over the steps that count; 0 if it was not measured."""
    values = [row[metric] for row in run.metrics() if row["step"] > skip and metric in row]
    return statistics.median(values) if values else 0.0


def measures_after(skip: int) -> dict[str, Callable[[RunDirectory], float]]:
    """The figures of a run without its first steps, by name."""
    return {
        "time": lambda run: median_of(run, STEP_TIME, skip),
        "processor": lambda run: float(json.loads((run.path / PROCESSOR).read_text())),
    }


def phases(run: RunDirectory, skip: int) -> list[str]:
    """The phases of a step in verl's timings, the longest first."""
    names = {name for row in run.metrics() for name in row if name.startswith("timing_s/") and name != STEP_TIME}
    return sorted(names, key=lambda name: -median_of(run, name, skip))


if __name__ == "__main__":
    main()
