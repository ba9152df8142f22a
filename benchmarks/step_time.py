"""What credit and projection cost a training step on the real stack: whole runs of each, in turn.

    python benchmarks/step_time.py [--rounds 3] [--steps 12] [--platform cpu] [--out outputs/step_time]

Arms are plain GRPO, credit with K=4, and projection (all skills in each batch, constraints from the batch itself), each
with the same seed and number of samples. Prints the median seconds of a step over all rounds, its quartiles, and the
ratio to plain GRPO as the median over rounds of each round's ratio (and their range). The first steps of a run warm
caches up and are left out. Finished runs are not done again.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np

from recipe.records.pictures import series
from recipe.records.run_directory import RunDirectory

ARMS = {
    "GRPO": [],
    "credit, K=4": ["credit=counterfactual", "credit.budget=4"],
    "projection, mixed": ["projection=qp"],
}
WARM_UP = 2
PARTS = ("step", "gen", "update_actor")


def measured(folder: Path, name: str, words: list[str], steps: int, platform: str) -> dict[str, list[float]]:
    """Seconds of each step of a run after the first ones, and of its parts."""
    run = RunDirectory(folder / "step_time" / name)
    if len(run.metrics()) < steps:
        subprocess.run(
            [
                sys.executable, "-m", "recipe.train", "experiment=quickstart", f"platform={platform}",
                f"run.root={folder}", "run.experiment=step_time", f"run.name={name}",
                f"trainer.total_training_steps={steps}", "trainer.val_before_train=false", "trainer.test_freq=-1",
                "trainer.save_freq=-1", *words,
            ],
            check=True,
        )  # fmt: skip
    return {part: series(run.metrics(), f"timing_s/{part}")[1][WARM_UP:] for part in PARTS}


def main() -> None:
    """Run and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--platform", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("outputs"))
    options = parser.parse_args()
    rounds = [
        {
            arm: measured(options.out, f"{number}-{place}", words, options.steps, options.platform)
            for place, (arm, words) in enumerate(ARMS.items())
        }
        for number in range(options.rounds)
    ]
    print("| arm | seconds a step, median (quartiles) | generation | update | ratio to GRPO (range over rounds) |")
    print("|---|---:|---:|---:|---:|")
    for arm in ARMS:
        times = {part: np.concatenate([found[arm][part] for found in rounds]) for part in PARTS}
        low, middle, high = np.quantile(times["step"], [0.25, 0.5, 0.75])
        ratios = [np.median(found[arm]["step"]) / np.median(found["GRPO"]["step"]) for found in rounds]
        parts = " | ".join(f"{np.median(times[part]):.2f}" for part in PARTS[1:])
        spread = f"{np.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
        print(f"| {arm} | {middle:.2f} ({low:.2f}-{high:.2f}) | {parts} | {spread} |")


if __name__ == "__main__":
    main()
