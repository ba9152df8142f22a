"""The evidence of bounded forgetting: docs/evidence/skill_safe_plan.md.

`tune` finds the strength of each arm that has one, on seeds and prompts that the evidence does not use; `arms` compares
the confirmatory arms at the strengths that their files state; `estimates` runs the others, `memory` three arms whose
larger batch holds 8 memory prompts per skill, and `baselines` each skill alone (and the merged models of these), all
mixed, and one after the other; `six` has six skills. A stopped study resumes.
"""

from collections.abc import Sequence
from pathlib import Path

from recipe.runtime.options import RunsOptions, SafeOptions
from recipe.studies.arm_options import (
    ARM,
    CLOSED_LOOP,
    SEED,
    Overrides,
    alone,
    check_values,
    known,
    listed,
    mixed,
    stop_if_a_run_failed,
    tuning_runs,
)
from recipe.studies.files import MICRO_ROWS
from recipe.studies.papers import ORDERS
from recipe.studies.steps import MadeWith, Steps, Stopped, say

ARMS = "grpo ewc replay rehearsal random_gradients qp_solutions closed_loop"
ESTIMATES = (
    "grpo closed_loop_adam credit_closed_loop agem_solutions pcgrad_solutions sequential_margin_solutions "
    "qp_gradient review trigger_forgetting"
)
MEMORY = "grpo qp_rollouts qp_both"
# 3 protected skills x 8 memory prompts leave 16 prompts to train on in the last stage; an arm without memory gets 40.
ENLARGED = (
    "protocol.memory_per_protected=8",
    "data.train_batch_size=40",
    "actor_rollout_ref.actor.ppo_mini_batch_size=40",
)
MIXED = "grpo closed_loop worst_skill"
SIX = "grpo rehearsal closed_loop"
SKILLS = ("write", "repair", "trace", "sql")
# As many demonstrations of each of the four as in their own start (weights 9 in place of 7), in batches of 64.
SIX_START = (
    *("data/micro6", "--skills", *SKILLS, "parts", "countdown"),
    *("--demonstrations", "44416", "trainer.total_training_steps=694"),
)
# As many updates as the four stages of 8 together.
MIXED_STEPS = 32
# The model is the study's, so the rows need no demonstrations.
TUNING_ROWS = "data/micro_tune"
# More rows than the study's: of sql, whose prompts are few, most are in data/micro.
TUNING_OPTIONS = ("--seed", "1", "--limit", "400", "--without", "data/micro", "--demonstrations", "8")
SEEDS, FEW_SEEDS, TUNING_SEEDS = "40 41 42 43 44", "40 41", "100 101"
# 51 prompts x 2 = 102 samples of the skills that a stage in the middle did not train; else 663.
FEWER = "protocol.val_n_of_others=2"
TUNED = "ewc replay rehearsal qp_solutions closed_loop"
# What tuning chose for arms whose files keep the strength of paper B's kept runs, which continue only at the same one.
_GAIN = "projection.epsilon=-0.003"
CHOSEN = {"ewc": "penalty.strength=1000000.0"} | dict.fromkeys(
    ("qp_solutions", "random_gradients", "sequential_margin_solutions", "trigger_forgetting"), _GAIN
)


def evidence_safe(steps: Steps[SafeOptions], stage: str = "", *overrides: str) -> None:
    """STAGE `tune`, then `arms`, then the others."""
    known("stage", [stage], STAGES)
    check_values(steps.options.values, stage)
    out = f"outputs/evidence_safe.{stage}"
    (data, *start), experiment = (SIX_START, "paper_b6") if stage == "six" else (("data/micro",), "paper_b")
    model = f"{data}/model"
    if start and steps.options.start:
        raise Stopped("START has four skills; the stage six trains its own: unset START")
    earlier = ("--model", steps.options.start) if steps.options.start else ()
    steps.micro_start(data, *start, *earlier)
    steps.take_kept(out)
    rows = _rows_of(TUNING_ROWS if stage == "tune" else data)
    if stage == "tune":
        steps.make_rows(TUNING_ROWS, "micro", *TUNING_OPTIONS, files=MICRO_ROWS)
        overrides = (*(f"data.{split}_files={path}" for split, path in rows.items()), *overrides)
    settings = {"train": f"{' '.join(overrides)} {steps.options.train}"}
    steps.study = MadeWith(out, {"start": model}, rows, settings)
    for seed, chosen in STAGES[stage](steps):
        steps.multirun(
            f"experiment={experiment}",
            f"run.experiment=evidence_safe.{stage}",
            f"data.seed={seed}",
            *chosen,
            *overrides,
        )
    steps.keep_runs(out)
    steps.module("recipe.report", "skills", out)
    if stage == "arms" and CLOSED_LOOP in (steps.options.arms or ARMS).split():
        steps.module("recipe.report", "bars", out)
    stop_if_a_run_failed(steps.failed)
    if stage == "baselines":
        merge_single_runs(steps, out)


def _rows_of(folder: str) -> dict[str, str]:
    return {split: f"{folder}/{split}.parquet" for split in ("train", "val")}


Runs = list[tuple[str, tuple[str, ...]]]


def _tune(steps: Steps[SafeOptions]) -> Runs:
    """Seed and overrides of the runs that tune each arm."""
    runs = [(*_in_order("forward"), *run) for run in tuning_runs(steps.options.arms, TUNED, steps.options.values)]
    return [(seed, run) for seed in (steps.options.seeds or TUNING_SEEDS).split() for run in runs]


def _arms(steps: Steps[SafeOptions]) -> Runs:
    """Both orders of a seed in turn: a study that is stopped has whole blocks."""
    return _of_arms(steps, ARMS, SEEDS, " ".join(ORDERS))


def _estimates(steps: Steps[SafeOptions]) -> Runs:
    return _of_arms(steps, ESTIMATES, FEW_SEEDS, "forward")


def _memory(steps: Steps[SafeOptions]) -> Runs:
    return _of_arms(steps, MEMORY, FEW_SEEDS, "forward", *ENLARGED)


def _six(steps: Steps[SafeOptions]) -> Runs:
    """Six skills, in the order of their experiment."""
    named = listed(steps.options.arms or SIX)
    return [
        (seed, (FEWER, f"arm={named}", f"run.name={ARM}.forward.{SEED}"))
        for seed in (steps.options.seeds or FEW_SEEDS).split()
    ]


def _baselines(steps: Steps[SafeOptions]) -> Runs:
    """GRPO on each skill alone for a stage's updates, on all of them mixed for a run's, and on one after another."""
    runs: Runs = []
    for seed in (steps.options.seeds or FEW_SEEDS).split():
        for skill in SKILLS:
            runs.append((seed, (*alone(skill), f"run.name=single_{skill}.forward.{SEED}")))
        name = f"run.name={ARM}_mixed.forward.{SEED}"
        once = f"trainer.test_freq={MIXED_STEPS}"
        runs.append((seed, (*mixed(MIXED_STEPS), once, f"arm={listed(steps.options.arms or MIXED)}", name)))
        runs.append((seed, (*_in_order("forward"), "arm=grpo", f"run.name={ARM}.forward.{SEED}")))
    return runs


def merge_single_runs(steps: Steps[RunsOptions], out: str) -> None:
    """Merge the models of a seed's single-skill runs, and validate the result as the runs were."""
    folder, validated = f"{out}.merged", []
    for seed in (steps.options.seeds or FEW_SEEDS).split():
        runs = [f"{out}/single_{skill}.forward.s{seed}" for skill in SKILLS]
        if kept := [run for run in runs if Path(run).exists() and not (Path(run) / "checkpoints").exists()]:
            say(f"seed {seed} is not merged: {', '.join(kept)} came from KEPT, without a checkpoint")
            continue
        for run in runs:
            if not steps.have(f"{run}/model"):
                steps.module("recipe.export", run, "--out", f"{run}/model", "--prompts", "0")
        model = f"{folder}/s{seed}.model"
        if not steps.have(model):
            steps.module("recipe.merge", "data/micro/model", *(f"{run}/model" for run in runs), "--out", model)
        steps.module(
            "recipe.train", "experiment=paper_b", "protocol=mixed", f"run.experiment={folder.removeprefix('outputs/')}",
            f"run.name=s{seed}", f"data.seed={seed}", f"actor_rollout_ref.model.path={model}", "trainer.val_only=true",
        )  # fmt: skip
        validated.append(f"{folder}/s{seed}")
    if validated:
        steps.module("recipe.report", "summary", *validated)


def _of_arms(steps: Steps[SafeOptions], arms: str, seeds: str, orders: str, *overrides: str) -> Runs:
    given = steps.options
    chosen = known("order", (given.orders or orders).split(), ORDERS)
    return [
        (seed, (*_in_order(order), *overrides, *strength, f"arm={','.join(named)}", f"run.name={ARM}.{order}.{SEED}"))
        for seed in (given.seeds or seeds).split()
        for order in chosen
        for strength, named in _by_strength((given.arms or arms).split())
    ]


def _by_strength(arms: Sequence[str]) -> list[tuple[Overrides, list[str]]]:
    """The arms of each multirun, and what `CHOSEN` sets for them, each alone.

    Hydra refuses a key of an arm beside a list of arms, of which it knows none yet.
    """
    plain = [arm for arm in arms if arm not in CHOSEN]
    return [*([((), plain)] if plain else ()), *(((CHOSEN[arm],), [arm]) for arm in arms if arm in CHOSEN)]


def _in_order(order: str) -> tuple[str, str]:
    return f"protocol.skill_sequence={ORDERS[order]}", FEWER


STAGES = {
    "tune": _tune,
    "arms": _arms,
    "estimates": _estimates,
    "memory": _memory,
    "baselines": _baselines,
    "six": _six,
}
