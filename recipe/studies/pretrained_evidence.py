"""The claims of both papers on a pretrained model: docs/evidence/pretrained_plan.md.

All runs start from the weights of scripts/pretrained.sh. `rates` and `tune` find learning rates and strengths on seeds
that the evidence does not use; `credit` compares ways to assign credit, `safe` ways to keep skills, `both` credit and
projection together with each alone; `general` measures what training did to text that it never names. A study that was
stopped resumes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from recipe.records.arms import finished_runs
from recipe.records.kept_runs import is_file
from recipe.records.run_directory import RunDirectory
from recipe.studies.arm_options import (
    RATE,
    SAMPLES,
    SEED,
    STRENGTHS,
    known,
    stop_if_a_run_failed,
    tuning_runs,
)
from recipe.studies.pretrained import DATA, EXPERIMENT, OUT, base_model, make_english, supervised_start
from recipe.studies.steps import MadeWith, Steps, Stopped

ORDERS = {"forward": "[write,repair,sql]", "backward": "[sql,repair,write]"}
# Per prompt, of grpo_more_samples: half more than the others', above what credit may cost. Micro-batches of 32 divide
# 8 x 12 samples.
MORE_SAMPLES = "12"
REACH = "0.35"  # the accuracy whose cost is compared: the start has about 22%, 25 updates about 38%
RATES: Mapping[str, str] = {}
"""Learning rate by arm, the best of stage `rates`; filled before the stages that need it."""
TUNED_STRENGTHS: Mapping[str, str] = {}
"""Strength by arm, the best of stage `tune`; filled before `safe`."""
RATE_OF = {"credit_shuffled": "credit", "grpo_more_samples": "grpo"}
"""Arms that take the rate of another."""
TUNED = "rehearsal ewc"
GENERAL_SEED = "s30"
TEXT_COMMIT, HELD_OUT = "c567f3fca23f8eb5521ceb032a321882dd207162", "data/held_out"
"""Text of our own, which no row of the suite holds: docs/ as it was before these studies changed it."""

Words = tuple[str, ...]


@dataclass(frozen=True)
class Stage:
    """A stage of the study: its experiment, skills, arms and seeds, and the reports that compare its runs.

    own_rates: each arm has its rate; else all have that of grpo.
    """

    experiment: str
    data: str
    skills: Words
    arms: str
    seeds: str
    runs: Callable[["Stage", Steps, Words], list[Words]]
    reports: tuple[Words, ...]
    own_rates: bool = False


def _one_order(stage: Stage, steps: Steps, named: Words) -> list[Words]:
    """The overrides of each run: seeds outside, so that a stopped study has whole pairs."""
    more = ("arm=grpo", f"{SAMPLES}={steps.options.samples or MORE_SAMPLES}")
    return [
        (seed, *(more if arm == "grpo_more_samples" else (f"arm={arm}",)), *tuned, f"run.name={arm}.{SEED}")
        for seed in _seeds(stage, steps)
        for arm, tuned in _tuned_arms(stage, steps, named)
    ]


def _both_orders(stage: Stage, steps: Steps, named: Words) -> list[Words]:
    """Every arm in both orders of a seed before the next seed."""
    return [
        (seed, f"protocol.skill_sequence={ORDERS[order]}", f"arm={arm}", *tuned, f"run.name={arm}.{order}.{SEED}")
        for seed in _seeds(stage, steps)
        for order in known("order", (steps.options.orders or " ".join(ORDERS)).split(), ORDERS)
        for arm, tuned in _tuned_arms(stage, steps, named)
    ]


def _rates(stage: Stage, steps: Steps, named: Words) -> list[Words]:
    """Each arm at each rate."""
    return [
        (seed, f"arm={arm}", f"{RATE}={rate}", f"run.name={arm}_lr${{{RATE}}}.{SEED}")
        for seed in _seeds(stage, steps)
        for arm in (steps.options.arms or stage.arms).split()
        for rate in (steps.options.rates or "1e-4 3e-4 1e-3").split()
    ]


def _strengths(stage: Stage, steps: Steps, named: Words) -> list[Words]:
    """Every arm that has a strength, at three values of it and the rate of grpo."""
    order, rate = f"protocol.skill_sequence={ORDERS['forward']}", _words(_chosen(stage, "grpo"), named, steps.dry)
    runs = tuning_runs(steps.options.arms, stage.arms)
    return [(seed, order, *rate, *run) for seed in _seeds(stage, steps) for run in runs]


def _seeds(stage: Stage, steps: Steps) -> list[str]:
    return [f"data.seed={seed}" for seed in (steps.options.seeds or stage.seeds).split()]


def _tuned_arms(stage: Stage, steps: Steps, named: Words) -> list[tuple[str, Words]]:
    """The arms with the overrides that tuning chose for them."""
    arms = (steps.options.arms or stage.arms).split()
    return [(arm, _words(_chosen(stage, arm), named, steps.dry)) for arm in arms]


def _chosen(stage: Stage, arm: str) -> dict[str, str]:
    """What tuning chose for an arm, by key; "" where it has chosen nothing yet."""
    chosen = {RATE: RATES.get(RATE_OF.get(arm, arm) if stage.own_rates else "grpo", "")}
    return chosen | ({STRENGTHS[arm][0]: TUNED_STRENGTHS.get(arm, "")} if arm in TUNED.split() else {})


def _words(chosen: Mapping[str, str], named: Words, dry: bool) -> Words:
    """The choices as overrides; Stopped for a missing one that the user does not name."""
    missing = [key for key, value in chosen.items() if not value and not _is_named(key, named)]
    if missing and not dry:
        raise Stopped(
            f"no {missing[0]} was chosen: run `rates`, then `tune`, and write the best into RATES and "
            f"TUNED_STRENGTHS of recipe/studies/pretrained_evidence.py; or name it for all arms: {missing[0]}=VALUE"
        )
    return tuple(f"{key}={value}" for key, value in chosen.items() if value)


def _is_named(key: str, named: Words) -> bool:
    return any(word.startswith(f"{key}=") for word in named)


FOLDER = "evidence_pretrained"
_SAFE = f"outputs/{FOLDER}.safe"
_A = ("pretrained_credit", "data/english_credit", ("write", "word"))
_B = ("pretrained_safe", "data/english_safe", ("write", "repair", "sql"))
_CONTRASTS = ("credit:grpo", "credit:credit_shuffled", "credit:grpo_more_samples", "credit_shuffled:grpo")
_SAFE_ARMS, _TOGETHER = "grpo rehearsal ewc closed_loop", "credit_closed_loop"
STAGES = {
    "rates": Stage(*_A, "grpo credit", "100 101", _rates, (("online", "--reach", REACH),)),
    "credit": Stage(
        *_A, "grpo credit credit_shuffled grpo_more_samples", "30 31 32 33 34 35", _one_order,
        (("online", "--reach", REACH, "--contrasts", *_CONTRASTS), ("speed", "--reach", REACH)), own_rates=True,
    ),
    "tune": Stage(*_B, TUNED, "100 101", _strengths, (("skills",),)),
    "safe": Stage(
        *_B, _SAFE_ARMS, "30 31 32 33", _both_orders,
        (("skills",), ("bars", "--controls", "rehearsal", "ewc", "--family", "grpo", "rehearsal", "ewc")),
    ),
    "both": Stage(
        *_B, f"credit {_TOGETHER}", "30 31 32 33", _both_orders,
        (
            ("skills",),
            ("skills", "--against", "credit", "--out", f"{_SAFE}/against_credit"),
            ("skills", "--against", "closed_loop", "--out", f"{_SAFE}/against_closed_loop"),
            ("bars", "--arm", _TOGETHER, "--controls", "credit", "closed_loop", "--family", "credit", "closed_loop",
             "--out", f"{_SAFE}/both"),
        ),
    ),
}  # fmt: skip
FOLDERS = {"both": "safe"}
"""`both` adds its arms to the runs of `safe`, which holds each alone."""


def evidence_pretrained(steps: Steps, stage: str = "", *overrides: str) -> None:
    """STAGE `rates`, `tune`, then `credit`, `safe` and `both`; then `general [RUN ...]`."""
    if stage == "general":
        return _general(steps, overrides)
    known("stage", [stage], [*STAGES, "general"])
    chosen, title = STAGES[stage], FOLDERS.get(stage, stage)
    steps = _with_kept(steps.with_length(EXPERIMENT), title)
    out = f"outputs/{FOLDER}.{title}"
    named = (*overrides, *steps.options.train.split())
    runs = chosen.runs(chosen, steps, named)  # first: it stops a study without tuning
    start = _start(steps)
    make_english(steps, chosen.data, *chosen.skills)
    steps.take_kept(out)
    rows = {split: f"{chosen.data}/{split}.parquet" for split in ("train", "val")}
    steps.study = MadeWith(out, {"start": start}, rows, {"train": f"{' '.join(overrides)} {steps.options.train}"})
    common = (
        f"experiment={chosen.experiment}", f"run.experiment={FOLDER}.{title}",
        f"actor_rollout_ref.model.path={start}", f"data.max_response_length={steps.options.length}",
    )  # fmt: skip
    for words in runs:
        steps.multirun(*common, *words, *overrides)
        steps.keep_runs(out)
        _drop_checkpoints(steps, out)
    for report, *options in chosen.reports:
        steps.module("recipe.report", report, out, *options, *_expected(stage, chosen, steps, named))
    stop_if_a_run_failed(steps.failed)


def _with_kept(steps: Steps, title: str) -> Steps:
    """Steps whose KEPT is the file of this folder of runs within the folder that the user named."""
    kept = steps.options.kept
    if kept and is_file(Path(kept)):
        raise Stopped(f"KEPT={kept} is a file; name a folder, which gets one file per stage, such as KEPT=kept")
    return steps.changed(kept=str(Path(kept, f"{title}.jsonl.xz"))) if kept else steps


def _expected(stage: str, chosen: Stage, steps: Steps, named: Words) -> Words:
    """Options of a report: the arms and repeats that should have runs, and which arms lack their tuning."""
    if stage in ("rates", "tune"):
        return ()
    arms = (steps.options.arms or chosen.arms).split()
    arms = [*_SAFE_ARMS.split(), *arms] if stage == "both" else arms
    seeds = [f"s{seed}" for seed in (steps.options.seeds or chosen.seeds).split()]
    orders = (steps.options.orders or " ".join(ORDERS)).split()
    repeats = seeds if chosen.own_rates else [f"{order}.{seed}" for seed in seeds for order in orders]
    untuned = [
        arm for arm in arms if any(not value or _is_named(key, named) for key, value in _chosen(chosen, arm).items())
    ]
    return ("--expect", *arms, "--repeats", *repeats, *(("--untuned", *untuned) if untuned else ()))


def general_runs() -> list[str]:
    """The runs that `general` measures: of every arm the first seed, forward."""
    alone = [f"outputs/{FOLDER}.credit/{arm}.{GENERAL_SEED}" for arm in STAGES["credit"].arms.split()]
    arms = f"{STAGES['safe'].arms} {STAGES['both'].arms}".split()
    return alone + [f"{_SAFE}/{arm}.forward.{GENERAL_SEED}" for arm in arms]


def _drop_checkpoints(steps: Steps, out: str) -> None:
    """Remove the checkpoints, 0.6 GB each, of finished runs that `general` does not measure."""
    measured = general_runs()
    for run in finished_runs(Path(out)):
        if str(run.path) not in measured and run.checkpoints.exists():
            steps.run("rm", "-r", str(run.checkpoints))


def _start(steps: Steps) -> str:
    """The model that every run starts from: that of scripts/pretrained.sh."""
    steps.run("bash", "scripts/setup.sh", steps.serving)
    model = base_model(steps, steps.options.model, OUT)
    make_english(steps, DATA)
    return supervised_start(steps, model, DATA, f"{OUT}/start")


def _general(steps: Steps, runs: Words) -> None:
    """Perplexity of held-out text before training and after each run; RUNS: their folders, or those of every arm."""
    runs = runs or tuple(general_runs())
    if unfinished := [run for run in runs if not RunDirectory(run).finished and not steps.dry]:
        raise Stopped(f"general: {unfinished[0]} is no finished run; finish its stage, or name the runs to measure")
    for run in runs:
        if not steps.dry and not Path(run, "model").exists() and RunDirectory(run).last_checkpoint is None:
            raise Stopped(f"general: {run} has no weights here; remove the folder and run it again")
        if not steps.have(f"{run}/model"):
            steps.module("recipe.export", run, "--out", f"{run}/model", "--platform", steps.serving, "--prompts", "0")
    steps.run("mkdir", "-p", HELD_OUT)
    steps.run("git", "archive", "--output", f"{HELD_OUT}/docs.tar", TEXT_COMMIT, "docs")
    steps.run("tar", "-xf", f"{HELD_OUT}/docs.tar", "-C", HELD_OUT)
    steps.module("recipe.report", "perplexity", "--models", f"{OUT}/start/model", *(f"{run}/model" for run in runs),
                 "--text", f"{HELD_OUT}/docs", "--out", f"outputs/{FOLDER}.general")  # fmt: skip
