"""The claims of both papers on a pretrained model: docs/evidence/pretrained_plan.md.

All runs start from the weights of scripts/pretrained.sh. `rates` and `tune` find the learning rate and the strengths
on seeds that the evidence does not use; `credit` compares ways to assign credit, `safe` ways to keep skills, `both`
credit and projection together with each alone; `general` measures what training did to text that it never names. A
study that was stopped resumes.
"""

from collections.abc import Callable
from dataclasses import dataclass

from recipe.studies.arm_options import (
    ARM,
    RATE,
    SAMPLES,
    SEED,
    known_stage,
    listed,
    orders_of,
    stop_if_a_run_failed,
    tuning_runs,
)
from recipe.studies.pretrained import DATA, EXPERIMENT, OUT, base_model, make_english, supervised_start
from recipe.studies.steps import MadeWith, Steps, Stopped

ORDERS = {"forward": "[write,repair,sql]", "backward": "[sql,repair,write]"}
MORE_SAMPLES = "10"  # per prompt, of grpo_more_samples: a quarter more than the others', above what credit may cost
TUNED = "rehearsal ewc closed_loop"
HELD_OUT = "docs"  # text of our own, which no row of the suite holds

Words = tuple[str, ...]


@dataclass(frozen=True)
class Stage:
    """A stage of the study: its experiment, skills, arms and seeds, and the report that compares its runs."""

    experiment: str
    data: str
    skills: Words
    arms: str
    seeds: str
    runs: Callable[["Stage", Steps], list[Words]]
    report: Words


def _one_order(stage: Stage, steps: Steps) -> list[Words]:
    """The overrides of each multirun: seeds outside, so that a stopped study has whole pairs."""
    given = steps.options
    arms = (given.arms or stage.arms).split()
    changed = {"grpo_more_samples": ("arm=grpo", f"{SAMPLES}={given.samples or MORE_SAMPLES}")}
    plain = ",".join(arm for arm in arms if arm not in changed)
    runs: list[Words] = []
    for seed in _seeds(stage, steps):
        runs += [(seed, f"arm={plain}", f"run.name={ARM}.{SEED}")] if plain else []
        runs += [(seed, *changed[arm], f"run.name={arm}.{SEED}") for arm in arms if arm in changed]
    return runs


def _both_orders(stage: Stage, steps: Steps) -> list[Words]:
    """Every arm in both orders of a seed before the next seed."""
    given = steps.options
    orders, arms = orders_of(given.orders or " ".join(ORDERS), ORDERS), listed(given.arms or stage.arms)
    return [
        (seed, f"protocol.skill_sequence={ORDERS[order]}", f"arm={arms}", f"run.name={ARM}.{order}.{SEED}")
        for seed in _seeds(stage, steps)
        for order in orders
    ]


def _rates(stage: Stage, steps: Steps) -> list[Words]:
    """Plain GRPO at each rate."""
    rates = listed(steps.options.rates or "1e-4 3e-4 1e-3")
    return [
        (seed, "arm=grpo", f"{RATE}={rates}", f"run.name=grpo_lr${{{RATE}}}.{SEED}") for seed in _seeds(stage, steps)
    ]


def _strengths(stage: Stage, steps: Steps) -> list[Words]:
    """Every arm that has a strength, at three values of it."""
    runs = [(f"protocol.skill_sequence={ORDERS['forward']}", *run) for run in tuning_runs(steps.options.arms, TUNED)]
    return [(seed, *run) for seed in _seeds(stage, steps) for run in runs]


def _seeds(stage: Stage, steps: Steps) -> list[str]:
    return [f"data.seed={seed}" for seed in (steps.options.seeds or stage.seeds).split()]


_A = ("pretrained_credit", "data/english_credit", ("write", "word"))
_B = ("pretrained_safe", "data/english_safe", ("write", "repair", "sql"))
_CONTRASTS = ("--contrasts", "credit:grpo", "credit:credit_shuffled", "credit:grpo_more_samples")
STAGES = {
    "rates": Stage(*_A, "grpo", "100 101", _rates, ("online", "--reach", "0.5")),
    "credit": Stage(
        *_A, "grpo credit credit_shuffled grpo_more_samples", "30 31 32 33 34 35", _one_order,
        ("online", "--reach", "0.5", *_CONTRASTS),
    ),
    "tune": Stage(*_B, TUNED, "100", _strengths, ("skills",)),
    "safe": Stage(*_B, "grpo rehearsal ewc closed_loop", "30 31 32 33", _both_orders, ("skills",)),
    "both": Stage(*_B, "credit credit_closed_loop", "30 31 32 33", _both_orders, ("skills",)),
}  # fmt: skip
FOLDERS = {"both": "safe"}
"""`both` adds its arms to the runs of `safe`, which holds each alone."""


def evidence_pretrained(steps: Steps, stage: str = "", *overrides: str) -> None:
    """STAGE `rates` and `tune`, then `credit`, `safe` and `both`; then `general RUN ...`."""
    if stage == "general":
        return _general(steps, overrides)
    chosen = STAGES[known_stage(stage, [*STAGES, "general"])]
    steps = steps.with_length(EXPERIMENT)
    folder = f"evidence_pretrained.{FOLDERS.get(stage, stage)}"
    out = f"outputs/{folder}"
    start = _start(steps)
    make_english(steps, chosen.data, *chosen.skills)
    steps.take_kept(out)
    rows = {split: f"{chosen.data}/{split}.parquet" for split in ("train", "val")}
    settings = {"train": f"{' '.join(overrides)} {steps.options.train}"}
    steps.study = MadeWith(out, {"start": start}, rows, settings)
    for words in chosen.runs(chosen, steps):
        steps.multirun(
            f"experiment={chosen.experiment}", f"run.experiment={folder}", f"actor_rollout_ref.model.path={start}",
            *words, *overrides,
        )  # fmt: skip
    steps.keep_runs(out)
    report, *options = chosen.report
    steps.module("recipe.report", report, out, *options)
    if report == "online":
        steps.module("recipe.report", "speed", out, "--reach", "0.5")
    stop_if_a_run_failed(steps.failed)


def _start(steps: Steps) -> str:
    """The model that every run starts from: that of scripts/pretrained.sh."""
    steps.run("bash", "scripts/setup.sh", steps.serving)
    model = base_model(steps, steps.options.model, OUT)
    make_english(steps, DATA)
    return supervised_start(steps, model, DATA, f"{OUT}/start")


def _general(steps: Steps, runs: Words) -> None:
    """Perplexity of held-out text before training and after each run; RUNS: their folders."""
    if not runs:
        raise Stopped("general: name run directories, such as outputs/evidence_pretrained.safe/grpo.forward.s30")
    for run in runs:
        if not steps.have(f"{run}/model"):
            steps.module("recipe.export", run, "--out", f"{run}/model", "--platform", steps.serving, "--prompts", "0")
    steps.module("recipe.report", "perplexity", "--models", f"{OUT}/start/model", *(f"{run}/model" for run in runs),
                 "--text", HELD_OUT, "--out", "outputs/evidence_pretrained.general")  # fmt: skip
