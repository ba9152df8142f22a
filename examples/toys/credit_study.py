"""Number of updates that each arm needs on each planted problem: the study of `python -m examples.toys credit`."""

from collections.abc import Iterator
from dataclasses import dataclass

from examples.toys.credit_training import ARMS, PROBLEMS, CreditRun, steps_to_solve
from recipe.records.intervals import Interval, bootstrap_interval, share_interval

BASELINE = "GRPO"


@dataclass(frozen=True)
class CreditResult:
    """Result of one arm on one problem, over seeds.

    steps: mean updates to solve; an unsolved run counts as limit + 1. difference: paired difference from GRPO with the
    same random numbers. solved: share of solved runs. verifier_calls: mean up to the solution.
    """

    problem: str
    arm: str
    steps: Interval
    difference: Interval
    solved: Interval
    verifier_calls: float


def study(run: CreditRun) -> Iterator[CreditResult]:
    """All arms on all problems, in order."""
    for problem in PROBLEMS:
        baseline = steps_to_solve(problem, ARMS[BASELINE], run)
        for name, arm in ARMS.items():
            steps = baseline if name == BASELINE else steps_to_solve(problem, arm, run)
            yield CreditResult(
                problem.name,
                name,
                bootstrap_interval(steps),
                bootstrap_interval(steps - baseline),
                share_interval(int((steps <= run.limit).sum()), run.seeds),
                float(steps.mean()) * run.group * arm.verifier_calls,
            )


def table(results: list[CreditResult]) -> str:
    """The results as a Markdown table."""
    lines = [
        "| problem | arm | steps to solve | against GRPO, paired | solved (%) | verifier calls |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for row in results:
        difference = "" if row.arm == BASELINE else row.difference.text(sign="+")
        solved = row.solved.scaled(100).text(0)
        cells = [row.problem, row.arm, row.steps.text(), difference, solved, f"{row.verifier_calls:.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
