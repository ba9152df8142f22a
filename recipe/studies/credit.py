"""The evidence that credit helps where a trajectory's reward says little: docs/evidence/credit_plan.md.

`rates` finds the learning rate of plain GRPO on seeds that the evidence does not use; `arms` compares the arms at the
rate that the task's experiment states. A study that was stopped resumes.
"""

from dataclasses import dataclass
from pathlib import Path

from recipe.studies.papers import ARM, SEED
from recipe.studies.steps import CommandFailed, MadeWith, Steps, Stopped

RATE = "actor_rollout_ref.actor.optim.lr"
RATES, TUNING_SEEDS = "2e-3 4e-3 8e-3", "100 101"


@dataclass(frozen=True)
class CreditTask:
    """A task of the study: its rows and start, its arms, seeds and contrasts, and the accuracy to reach.

    data: the folder. start: options of recipe.micro_start. The experiment is configs/experiment/credit_<name>.yaml.
    """

    data: str
    start: tuple[str, ...]
    arms: str
    seeds: str
    contrasts: tuple[str, ...]
    reach: str


# Demonstrations of fewer lines beside those of the task: on sixteen lines alone 540 updates do not teach to copy.
TASKS = {
    "parts16": CreditTask(
        "data/parts16",
        ("--skills", "parts", "--difficulty", "3", "--line-wrong-share", "0.12", "--easier",
         "--demonstrations", "34560", "data.max_length=512", "data.train_batch_size=32",
         "data.micro_batch_size_per_gpu=16", "trainer.total_training_steps=1080"),
        "grpo partial credit credit_shuffled",
        "10 11 12 13 14 15 16 17",
        ("credit:grpo", "credit:partial", "credit_shuffled:grpo"),
        "0.5",
    ),
    "parts4": CreditTask(
        "data/parts",
        ("--skills", "parts"),
        "grpo credit credit_shuffled",
        "10 11 12 13 14 15 16 17",
        ("credit:grpo", "credit_shuffled:grpo"),
        "0.8",
    ),
    "chain8": CreditTask(
        "data/chain8",
        ("--skills", "chain", "--difficulty", "2", "--line-wrong-share", "0.08", "--easier",
         "--demonstrations", "34560", "data.max_length=384"),
        "grpo credit",
        "10 11 12 13 14",
        ("credit:grpo",),
        "0.8",
    ),
}  # fmt: skip


def evidence_credit(steps: Steps, stage: str = "", *overrides: str) -> None:
    """STAGE `rates`, then `arms`, on every task."""
    if stage not in STAGES:
        raise Stopped(f"unknown stage '{stage}'; valid ones: {', '.join(STAGES)}")
    names = (steps.options.tasks or " ".join(TASKS)).split()
    if unknown := set(names) - set(TASKS):
        raise Stopped(f"unknown task '{min(unknown)}'; valid ones: {', '.join(TASKS)}")
    failed = 0
    for name in names:
        failed = STAGES[stage](steps, name, TASKS[name], overrides) or failed
    if failed:
        raise CommandFailed("a run failed: its message is above; start the study again to run what is missing", failed)


def _rates(steps: Steps, name: str, task: CreditTask, overrides: tuple[str, ...]) -> int:
    """Plain GRPO at each rate; the best one goes into the task's experiment."""
    given = steps.options
    chosen = (
        f"{RATE}={_listed(given.rates or RATES)}", f"data.seed={_listed(given.seeds or TUNING_SEEDS)}", "arm=grpo",
        f"run.name=grpo_lr${{{RATE}}}.{SEED}",
    )  # fmt: skip
    return _compare(steps, name, f"{name}_rates", chosen, overrides)


def _arms(steps: Steps, name: str, task: CreditTask, overrides: tuple[str, ...]) -> int:
    """Every arm and seed, from one start; seeds outside, so that a stopped study has whole pairs."""
    given = steps.options
    chosen = (
        f"data.seed={_listed(given.seeds or task.seeds)}", f"arm={_listed(given.arms or task.arms)}",
        f"run.name={ARM}.{SEED}",
    )  # fmt: skip
    return _compare(steps, name, name, chosen, overrides, "--contrasts", *task.contrasts)


STAGES = {"rates": _rates, "arms": _arms}


def _compare(
    steps: Steps, name: str, title: str, chosen: tuple[str, ...], overrides: tuple[str, ...], *report: str
) -> int:
    """Run what is missing and print the table; returns the status of a run that failed, 0 if none did.

    chosen: the overrides that tell the runs apart. report: options of the table.
    """
    task, experiment = TASKS[name], f"evidence_credit.{title}"
    out = f"outputs/{experiment}"
    if steps.options.kept:
        steps = steps.changed(kept=str(Path(steps.options.kept, f"{title}.jsonl.gz")))
    steps.micro_start(task.data, *task.start)
    steps.take_kept(out)
    rows = {"train": f"{task.data}/train.parquet", "val": f"{task.data}/val.parquet"}
    settings = {"train": f"{' '.join(overrides)} {steps.options.train}"}
    steps.study = MadeWith(out, {"start": f"{task.data}/model"}, rows, settings)
    steps.multirun(f"experiment=credit_{name}", f"run.experiment={experiment}", *chosen, *overrides)
    steps.keep_runs(out)
    steps.module("recipe.report", "online", out, "--reach", steps.options.reach or task.reach, *report)
    return steps.failed


def _listed(words: str) -> str:
    return ",".join(words.split())
