"""How much longer a training step takes with some words than without: alternating pairs of whole runs, real stack.

    python benchmarks/step_time.py --other "credit=counterfactual credit.budget=4" experiment=quickstart
    python benchmarks/step_time.py --other projection=qp experiment=quickstart

Each pair is a run with the base words and one with the others, in turn, on the same prompts (same seed), without
validation. A run's figure is its median step, without the first two (compilation, caches). Printed: both figures and
their ratio for each pair, the median ratio with its range, and the median of each phase of a step. Runs that finished
are not done again.
"""

import argparse
import re
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from recipe.records.run_directory import RunDirectory  # noqa: E402

SKIPPED = 2
STEP = "timing_s/step"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default="", help="words of recipe.train")
    parser.add_argument("--other", required=True, help="the words whose cost is asked for")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12, help=f"of each run; the first {SKIPPED} do not count")
    parser.add_argument("--name", help="runs are kept in outputs/NAME (default: of all the words)")
    parser.add_argument("words", nargs="+", help="words of all runs, such as experiment=quickstart")
    options = parser.parse_args()
    if options.steps <= SKIPPED:
        parser.error(f"--steps must be more than {SKIPPED}")
    words = [*options.words, options.base, options.other]
    name = options.name or re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(["step_time", *filter(None, words)]))
    arms = {"base": options.base.split(), "other": options.other.split()}
    pairs = []
    for pair in range(options.pairs):
        runs = {}
        # In turn which comes first, so that a machine that slows down or warms up favours neither.
        for arm in sorted(arms, reverse=pair % 2 == 1):
            runs[arm] = trained(name, f"{arm}.p{pair}", options.steps, [*options.words, *arms[arm]])
        base, other = (median_of(runs[arm], STEP) for arm in ("base", "other"))
        pairs.append((runs["base"], runs["other"], other / base))
        print(f"pair {pair}: {base:.2f} s, {other:.2f} s, ratio {other / base:.3f}", flush=True)
    ratios = [ratio for *_, ratio in pairs]
    print(f"median ratio {statistics.median(ratios):.3f} ({min(ratios):.3f}-{max(ratios):.3f})")
    for phase in phases(pairs[0][0]):
        base, other = (statistics.median(median_of(pair[arm], phase) for pair in pairs) for arm in (0, 1))
        print(f"  {phase:32s} {base:8.3f} s {other:8.3f} s")


def trained(experiment: str, name: str, steps: int, words: Sequence[str]) -> RunDirectory:
    """The finished run of this name, made where it is not there."""
    run = RunDirectory(ROOT / "outputs" / experiment / name)
    if not run.finished:
        measured = [f"trainer.total_training_steps={steps}", "trainer.test_freq=-1", "trainer.save_freq=-1"]
        measured += ["trainer.val_before_train=false", f"run.experiment={experiment}", f"run.name={name}"]
        command = [sys.executable, "-m", "recipe.train", *words, *measured]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return run


def median_of(run: RunDirectory, metric: str) -> float:
    """Of the steps that count; 0 where it was not measured."""
    values = [row[metric] for row in run.metrics() if row["step"] > SKIPPED and metric in row]
    return statistics.median(values) if values else 0.0


def phases(run: RunDirectory) -> list[str]:
    """The phases of a step that verl times, the longest first."""
    names = {name for row in run.metrics() for name in row if name.startswith("timing_s/") and name != STEP}
    return sorted(names, key=lambda name: -median_of(run, name))


if __name__ == "__main__":
    main()
