"""The claims of both papers on a pretrained model: docs/evidence/pretrained_plan.md.

All runs of a task start from the same weights and have one learning rate: for skills the start and rate of
scripts/pretrained.sh, for credit the best of GRPO. `rates` finds it and `tune` the strengths on seeds that the evidence
does not use, `sequence` shows whether GRPO forgets at all; `credit` compares ways to assign credit, `safe` ways to keep
skills, `both` credit and projection together with each alone. As each of their runs ends, what it did to text that it
never names is measured, and its checkpoint is removed. A study that was stopped resumes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from recipe.records.arms import finished_runs
from recipe.records.kept_runs import is_file
from recipe.records.run_directory import RunDirectory
from recipe.runtime.options import PretrainedEvidenceOptions
from recipe.studies.arm_options import (
    CLOSED_LOOP,
    RATE,
    SAMPLES,
    SEED,
    STRENGTHS,
    Overrides,
    check_values,
    known,
    stop_if_a_run_failed,
    tuning_runs,
)
from recipe.studies.pretrained import DATA, EXPERIMENT, OUT, base_model, make_english, supervised_start
from recipe.studies.steps import MadeWith, Steps, Stopped

ORDERS = {"forward": "[write,repair,sql]", "backward": "[sql,repair,write]"}
# Per prompt, of grpo_more_samples: half more than the others', above what credit may cost. Micro-batches of 4 divide
# 2 x 6 samples.
MORE_SAMPLES = "6"
REACH = "0.35"  # the accuracy whose cost is compared: the start has about 13%
WINDOW = "16"  # updates whose mean has to reach it: one of 8 samples scatters by 33 points
GRPO_RATE = ""
"""Learning rate of the arms of `credit`, GRPO's best of stage `rates`; filled before."""
TUNED_STRENGTHS: Mapping[str, str] = {}
"""Strength by arm, the best of stage `tune`; filled before `safe`."""
MORE = "grpo_more_samples"
TUNED = "rehearsal ewc closed_loop"
# 1000 protected nothing in the micro study, where 1e6 was best.
GRIDS = {**STRENGTHS, "ewc": (STRENGTHS["ewc"][0], "10000.0,100000.0,1000000.0")}
TOGETHER = "credit_closed_loop"
TEXT_COMMIT, HELD_OUT = "c567f3fca23f8eb5521ceb032a321882dd207162", "data/held_out"
"""Text of our own, which no row of the suite holds: docs/ as it was before these studies changed it."""
HELD_OUT_TEXT = ("docs/how-to", "docs/tutorial.md")  # prose and commands; elsewhere tables prevail
HELD_OUT_BLOCKS = "24"  # of 512 tokens


@dataclass(frozen=True)
class Stage:
    """A stage of the study: its experiment, skills, arms and seeds, and the reports that compare its runs.

    start: of scripts/pretrained.sh, or one trained on the demonstrations of the stage's own rows. validated: the rows
    of validations; tuning chose by those of `val`.
    """

    experiment: str
    data: str
    skills: tuple[str, ...]
    start: str
    arms: str
    seeds: str
    runs: Callable[["Stage", Steps[PretrainedEvidenceOptions], Overrides], list[Overrides]]
    reports: tuple[tuple[str, ...], ...]
    validated: str = "val"


def _one_order(stage: Stage, steps: Steps[PretrainedEvidenceOptions], named: Overrides) -> list[Overrides]:
    """The overrides of each run: seeds outside, so that a stopped study has whole pairs."""
    return [
        (seed, *_arm(arm, steps), *tuned, f"run.name={arm}.{SEED}")
        for seed in _seeds(stage, steps)
        for arm, tuned in _tuned_arms(stage, steps, named)
    ]


def _arm(arm: str, steps: Steps[PretrainedEvidenceOptions]) -> Overrides:
    """The overrides of an arm; `MORE` is no file of configs/arm."""
    return ("arm=grpo", f"{SAMPLES}={steps.options.samples or MORE_SAMPLES}") if arm == MORE else (f"arm={arm}",)


def _in_orders(stage: Stage, steps: Steps[PretrainedEvidenceOptions], named: Overrides) -> list[Overrides]:
    """Every arm in the orders of a seed before the next seed."""
    return [
        (f"data.seed={seed}", f"protocol.skill_sequence={ORDERS[order]}", f"arm={arm}", *tuned,
         f"run.name={arm}.{order}.{SEED}")
        for seed, order in _seeds_and_orders(stage, steps)
        for arm, tuned in _tuned_arms(stage, steps, named)
    ]  # fmt: skip


def _seeds_and_orders(stage: Stage, steps: Steps[PretrainedEvidenceOptions]) -> list[tuple[str, str]]:
    """Each seed with one order, the two in turn, or with those that the user names."""
    given = known("order", (steps.options.orders or "").split(), ORDERS)
    seeds = (steps.options.seeds or stage.seeds).split()
    return [(seed, order) for seed in seeds for order in given or [tuple(ORDERS)[int(seed) % len(ORDERS)]]]


def _rates(stage: Stage, steps: Steps[PretrainedEvidenceOptions], named: Overrides) -> list[Overrides]:
    """Each arm at each rate."""
    return [
        (seed, f"arm={arm}", f"{RATE}={rate}", f"run.name={arm}_lr${{{RATE}}}.{SEED}")
        for seed in _seeds(stage, steps)
        for arm in (steps.options.arms or stage.arms).split()
        for rate in (steps.options.rates or "1e-4 3e-4 1e-3").split()
    ]


def _strengths(stage: Stage, steps: Steps[PretrainedEvidenceOptions], named: Overrides) -> list[Overrides]:
    """Every arm that has a strength, at three values of it."""
    runs = tuning_runs(steps.options.arms, stage.arms, steps.options.values, GRIDS)
    order = f"protocol.skill_sequence={ORDERS['forward']}"
    return [(seed, order, *run) for seed in _seeds(stage, steps) for run in runs]


def _seeds(stage: Stage, steps: Steps[PretrainedEvidenceOptions]) -> list[str]:
    return [f"data.seed={seed}" for seed in (steps.options.seeds or stage.seeds).split()]


def _tuned_arms(stage: Stage, steps: Steps[PretrainedEvidenceOptions], named: Overrides) -> list[tuple[str, Overrides]]:
    """The arms with the overrides that tuning chose for them."""
    arms = (steps.options.arms or stage.arms).split()
    return [(arm, _overrides(_chosen(stage, arm), named, steps.dry)) for arm in arms]


def _chosen(stage: Stage, arm: str) -> dict[str, str]:
    """What tuning chose for an arm, by key; "" where it has chosen nothing yet."""
    if stage.experiment == _CREDIT:
        return {RATE: GRPO_RATE}
    arm = CLOSED_LOOP if arm == TOGETHER else arm
    return {STRENGTHS[arm][0]: TUNED_STRENGTHS.get(arm, "")} if arm in TUNED.split() else {}


def _overrides(chosen: Mapping[str, str], named: Overrides, dry: bool) -> Overrides:
    """The choices as overrides; Stopped for a missing one that the user does not name."""
    missing = [key for key, value in chosen.items() if not value and not _is_named(key, named)]
    if missing and not dry:
        raise Stopped(
            f"no {missing[0]} was chosen: run `rates`, then `tune`, and write the best into GRPO_RATE and "
            f"TUNED_STRENGTHS of recipe/studies/pretrained_evidence.py; or name it for all arms: {missing[0]}=VALUE"
        )
    return tuple(f"{key}={value}" for key, value in chosen.items() if value)


def _is_named(key: str, named: Overrides) -> bool:
    return any(word.startswith(f"{key}=") for word in named)


FOLDER = "evidence_pretrained"
_SAFE = f"outputs/{FOLDER}.safe"
_SHARED = "start"
_CREDIT = "pretrained_credit"
_A = (_CREDIT, "data/english_credit", ("ledger",), "start_credit")
_B = ("pretrained_safe", "data/english_safe", ("write", "repair", "sql"), _SHARED)
_CONTRASTS = ("credit:grpo", "credit:partial", "credit:grpo_more_samples", "credit_shuffled:grpo")
_GOAL = ("--reach", REACH, "--window", WINDOW)
_BLOCKS = ("--blocks", "order")  # each seed has one order
_SAFE_ARMS = "grpo rehearsal ewc closed_loop"
STAGES = {
    "rates": Stage(*_A, "grpo", "100 101", _rates, (("online", *_GOAL, "--each"),)),
    "credit": Stage(
        *_A, "grpo partial credit credit_shuffled grpo_more_samples", "30 31 32 33 34 35", _one_order,
        (("online", *_GOAL, "--each", "--contrasts", *_CONTRASTS), ("speed", "--reach", REACH), ("general",)),
    ),
    "sequence": Stage(*_B, "grpo", "100 101", _in_orders, (("skills",),)),
    "tune": Stage(*_B, TUNED, "100 101", _strengths, (("skills",),)),
    "safe": Stage(
        *_B, _SAFE_ARMS, "30 31 32 33 34 35 36 37", _in_orders,
        (
            ("skills",),
            ("bars", *_BLOCKS, "--controls", "grpo", "rehearsal", "ewc", "--family", "grpo", "rehearsal", "ewc"),
            ("general",),
        ),
        validated="test",
    ),
    "both": Stage(
        *_B, f"credit {TOGETHER}", "30 31 32 33", _in_orders,
        (
            ("skills",),
            ("skills", "--against", "credit", "--out", f"{_SAFE}/against_credit"),
            ("skills", "--against", "closed_loop", "--out", f"{_SAFE}/against_closed_loop"),
            ("general",),
        ),
        validated="test",
    ),
}  # fmt: skip
TUNING = ("rates", "sequence", "tune")
FOLDERS = {"both": "safe"}
"""`both` adds its arms to the runs of `safe`, which holds each alone."""


def evidence_pretrained(steps: Steps[PretrainedEvidenceOptions], stage: str = "", *overrides: str) -> None:
    """STAGE `rates`, `sequence`, `tune`, then `credit`, `safe` and `both`."""
    known("stage", [stage], STAGES)
    check_values(steps.options.values, stage)
    chosen, title = STAGES[stage], FOLDERS.get(stage, stage)
    steps = _with_kept(steps.with_length(EXPERIMENT), title)
    out = f"outputs/{FOLDER}.{title}"
    named = (*overrides, *steps.options.train.split())
    runs = chosen.runs(chosen, steps, named)  # first: it stops a study without tuning
    start = _start(chosen, steps, overrides)
    make_english(steps, chosen.data, *chosen.skills)
    steps.take_kept(out)
    rows = {"train": f"{chosen.data}/train.parquet", "val": f"{chosen.data}/{chosen.validated}.parquet"}
    steps.study = MadeWith(out, {"start": start}, rows, {"train": f"{' '.join(overrides)} {steps.options.train}"})
    common = (
        f"experiment={chosen.experiment}", f"run.experiment={FOLDER}.{title}",
        f"actor_rollout_ref.model.path={start}", f"data.max_response_length={steps.options.length}",
        f"data.val_files={rows['val']}",
    )  # fmt: skip
    tuning = stage in TUNING
    if not tuning:
        _held_out(steps)
    for own in runs:
        steps.multirun(*common, *own, *overrides)
        if tuning:
            for run in finished_runs(Path(out)):
                _drop_checkpoints(steps, run)
        else:
            _measure_general(steps, out, start)
        steps.keep_runs(out)
    for report, *options in chosen.reports:
        if report == "bars" and CLOSED_LOOP not in (steps.options.arms or chosen.arms).split():
            continue
        steps.attempt("recipe.report", report, out, *options, *_expected(stage, chosen, steps, named))
    stop_if_a_run_failed(steps.failed)


def _with_kept(steps: Steps[PretrainedEvidenceOptions], title: str) -> Steps[PretrainedEvidenceOptions]:
    """Steps whose KEPT is the file of this folder of runs within the folder that the user named."""
    kept = steps.options.kept
    if kept and is_file(Path(kept)):
        raise Stopped(f"KEPT={kept} is a file; name a folder, which gets one file per stage, such as KEPT=kept")
    return steps.changed(kept=str(Path(kept, f"{title}.jsonl.xz"))) if kept else steps


def _expected(stage: str, chosen: Stage, steps: Steps[PretrainedEvidenceOptions], named: Overrides) -> tuple[str, ...]:
    """Options of a report: the arms and repeats that should have runs, and which arms lack their tuning."""
    if stage in TUNING:
        return ()
    arms = (steps.options.arms or chosen.arms).split()
    arms = [*_SAFE_ARMS.split(), *arms] if stage == "both" else arms
    seeds = [f"s{seed}" for seed in (steps.options.seeds or chosen.seeds).split()]
    ordered = [f"{order}.s{seed}" for seed, order in _seeds_and_orders(chosen, steps)]
    repeats = seeds if chosen.runs is _one_order else ordered
    untuned = [
        arm for arm in arms if any(not value or _is_named(key, named) for key, value in _chosen(chosen, arm).items())
    ]
    return ("--expect", *arms, "--repeats", *repeats, *(("--untuned", *untuned) if untuned else ()))


def _measure_general(steps: Steps[PretrainedEvidenceOptions], out: str, start: str) -> None:
    """Measure the held-out text under each finished run that still has its checkpoint, and remove the checkpoint.

    A checkpoint takes 0.6 GB.
    """
    for run in finished_runs(Path(out)):
        if run.last_checkpoint is not None:
            measured = steps.attempt("recipe.report", "perplexity", "--models", start, "--runs", str(run.path),
                                     "--text", f"{HELD_OUT}/docs", "--blocks", HELD_OUT_BLOCKS)  # fmt: skip
            if measured:
                _drop_checkpoints(steps, run)


def _drop_checkpoints(steps: Steps[PretrainedEvidenceOptions], run: RunDirectory) -> None:
    if run.checkpoints.exists():
        steps.run("rm", "-r", str(run.checkpoints))


def _start(stage: Stage, steps: Steps[PretrainedEvidenceOptions], overrides: Overrides) -> str:
    """The model that every run of the stage starts from."""
    steps.run("bash", "scripts/setup.sh", steps.serving)
    arms = (steps.options.arms or stage.arms).split()
    planned = [
        (f"experiment={stage.experiment}", *_arm(arm, steps), *overrides, *steps.options.train.split()) for arm in arms
    ]
    start = f"{OUT}/{stage.start}"
    model = base_model(steps, steps.options.model, start, planned)
    data, skills = (DATA, ()) if stage.start == _SHARED else (stage.data, stage.skills)
    make_english(steps, data, *skills)
    return supervised_start(steps, model, data, start)


def _held_out(steps: Steps[PretrainedEvidenceOptions]) -> None:
    """The held-out text, from the history of this repository."""
    steps.run("mkdir", "-p", HELD_OUT)
    steps.run("git", "archive", "--output", f"{HELD_OUT}/docs.tar", TEXT_COMMIT, *HELD_OUT_TEXT)
    steps.run("tar", "-xf", f"{HELD_OUT}/docs.tar", "-C", HELD_OUT)
