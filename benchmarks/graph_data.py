"""Time to make hard graph problems: processor seconds per task, and share of proved optima.

    python -m benchmarks.graph_data
    python -m benchmarks.graph_data --tasks ged --problems 100

The figure for 1,000 problems is for one core; `data_prep.graphs.suite` uses all cores. Levels 4 and 5 alternate.
"""

import argparse
import random
import time

from data_prep.graphs.problems import TASKS

HARD_LEVELS = (4, 5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--problems", type=int, default=40, help="problems per task")
    arguments = parser.parse_args()
    print(f"{'':22}{'seconds for 1,000':>20}{'slowest':>10}{'proved':>9}")
    for name in arguments.tasks:
        TASKS[name](random.Random(0), 1)  # warm-up: compilation does not count
        times, proved = [], 0
        for number in range(arguments.problems):
            start = time.process_time()
            problem = TASKS[name](random.Random(number), HARD_LEVELS[number % 2])
            times.append(time.process_time() - start)
            proved += problem.truth.get("optimal", True)
        mean = sum(times) / len(times)
        print(f"{name:22}{1000 * mean:>20.1f}{max(times):>10.2f}{proved / len(times):>9.0%}", flush=True)


if __name__ == "__main__":
    main()
