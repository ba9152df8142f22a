"""How long does a run's page take to write, to paint and to filter? ``python -m benchmarks.run_page [--samples N]``

Makes a run of 100 updates with metrics and samples of made-up programs with credit and replays, writes its page, and
opens it in headless Chromium from the disk. Aim: the first paint within 2 seconds with 10,000 samples.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_module

from recipe.pages.run_page import write_run_page
from recipe.records.run_directory import STEP_TIME, RunDirectory
from scripts.browser import browser_page

STEPS = 100
_FILTER = """(() => {
  const box = document.getElementById("filter-verdict"), start = performance.now();
  box.value = "right";
  box.dispatchEvent(new Event("change"));
  document.body.getBoundingClientRect();
  return performance.now() - start;
})()"""


def rows_of(step: int, count: int) -> Iterator[dict[str, Any]]:
    """Samples of one step: programs of twelve lines, each line a step with credit."""
    for number in range(count):
        lines = [f"    value_{line} = value_{line - 1} * {number + line} + {step}\n" for line in range(12)]
        ends = [sum(map(len, lines[:line])) for line in range(13)]
        right = float((number + step) % 3 == 0)
        yield {
            "prompt": f"Write the function number {number // 8} of update {step}. " + "It has a description. " * 20,
            "response": "".join(lines), "ground_truth": "assert f(1) == 2\n" * 8, "score": right, "acc": right,
            "error": "none" if right else "wrong_answer", "guard": "none", "pass_ratio": right, "skill": "write",
            "credit_spans": [list(span) for span in pairwise(ends)],
            "credit_values": [(line - 6) / 6 for line in range(12)], "credit_tests": [[1.0, 0.0, -1.0, 0.0]] * 12,
            "credit_replayed": [
                {"change": "step", "step": line, "without": lines[line][:-1], "instead": "", "score": 0.5}
                for line in range(4)
            ],
        }  # fmt: skip


def make(folder: str, samples: int) -> RunDirectory:
    """A run with so many samples, and 200 metrics in each update."""
    run = RunDirectory.prepare(folder, "benchmark", "run")
    with initialize_config_module("configs", version_base=None):
        run.write_config(compose("train", ["experiment=quickstart"]))
    for step in range(1, STEPS + 1):
        metrics = {f"made/up/{name}": step * name / 3 for name in range(200)} | {"reward/acc": step / STEPS}
        run.log_metrics(step, metrics | {"critic/score/mean": step / STEPS, STEP_TIME: 10.0})
        run.log_generations(step, "train", rows_of(step, -(-samples // STEPS)))
    run.log_event("end")
    return run


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=10_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = make(folder, options.samples)
        start = time.process_time()
        path = write_run_page([run], Path(folder) / "page.html", options.samples)
        print(f"written in {time.process_time() - start:.1f} s of CPU: {path.stat().st_size / 1e6:.1f} MB")
        with browser_page(seconds=600) as page:
            page.open(path, "document.documentElement.dataset.ready")
            print(f"seconds to the first paint: {page.seconds_to_first_paint():.2f}")
            listed = int(page.value("document.documentElement.dataset.ready")) / 1000
            print(f"seconds until samples are listed: {listed:.2f}")
            print(f"seconds to filter them: {page.value(_FILTER) / 1000:.3f}")


if __name__ == "__main__":
    main()
