"""Runs on the micro suite, compared: papers A and B, the table of docs/evidence/learning.md, and reward hacking.

A study can be stopped and started again: finished runs are not done again. The overrides of a kept run are those of
its study, so they keep their order and spelling (docs/evidence).
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from omegaconf import OmegaConf

import configs
from recipe.runtime.options import (
    EvidenceAOptions,
    EvidenceBOptions,
    HackingOptions,
    Options,
    PaperBOptions,
    RunsOptions,
    StrengthOptions,
)
from recipe.studies.arm_options import ARM, SEED, STRENGTHS, alone, known, listed, mixed, stop_if_a_run_failed
from recipe.studies.steps import MadeWith, Steps, Stopped, files_in

ORDERS = {"forward": "[write,repair,trace,sql]", "backward": "[sql,trace,repair,write]"}
EPSILONS = "0.01 0.03 0.1 0.3"
ARMS_A = "grpo delete truncate shapley shuffled inverted"
ARMS_B = "grpo kl replay refresh ewc l2 sequential_margin qp_rollouts qp_solutions qp_both"
ARMS_OF_PAPER_B = (
    "grpo ppo reinforce kl entropy replay refresh ewc l2 sequential_margin qp_rollouts qp_solutions qp_both"
)
BASELINES = "single mixed"
# Rows whose shown test is false reward nothing but special-casing, if the judge pays for shown tests.
HACKING = ("--skills", "shown", "--hack-share", "0.01", "--impossible-share", "0.25")
# Baselines with a strength.
TUNED = "kl ewc l2"


def evidence_a(steps: Steps[EvidenceAOptions], *overrides: str) -> None:
    """Plain GRPO, counterfactual credit and its controls from the same start."""
    given, suite = steps.options, steps.options.suite or "parts"
    joined = "_".join(suite.split())
    name, data = "evidence_a" + ("" if suite == "parts" else f".{joined}"), f"data/{joined}"
    out = f"outputs/{name}"
    steps.micro_start(data, "--skills", *suite.split())
    steps.take_kept(out)
    steps.study = _study(steps, out, data, overrides)
    steps.multirun(
        "experiment=evidence_a", f"data.seed={listed(given.seeds or '0 1 2 3 4')}",
        f"arm={listed(given.arms or ARMS_A)}", f"run.experiment={name}", f"run.name={ARM}.{SEED}",
        f"data.train_files={data}/train.parquet", f"data.val_files={data}/val.parquet",
        f"actor_rollout_ref.model.path={data}/model", f"skills.names=[{listed(suite)}]", *overrides,
    )  # fmt: skip
    steps.keep_runs(out)
    _report(steps, "speed", out, "--reach", given.reach or "0.8")


def evidence_b(steps: Steps[EvidenceBOptions], *overrides: str) -> None:
    """Every arm on the micro suite, two orders of the four skills, several seeds."""
    given, out = steps.options, "outputs/evidence_b"
    steps.micro_start()
    arms, epsilons = _chosen(given.arms, ARMS_B), _chosen(given.epsilons, EPSILONS)
    orders = known("order", (given.orders or " ".join(ORDERS)).split(), ORDERS)
    steps.take_kept(out)
    steps.study = _study(steps, out, "data/micro", overrides)
    # Seeds outside: a study that is stopped can be compared as far as it went.
    for seed in (given.seeds or "0 1 2 3 4").split():
        for order in orders:
            common = [
                "experiment=paper_b", "run.experiment=evidence_b", f"data.seed={seed}",
                f"protocol.skill_sequence={ORDERS[order]}",
            ]  # fmt: skip
            _arms_and_epsilons(steps, common, arms, epsilons, f"{order}.{SEED}", overrides)
    steps.keep_runs(out)
    _report(steps, "skills", out, "--pareto", "qp_solutions")


def evidence_b_strengths(steps: Steps[StrengthOptions], *overrides: str) -> None:
    """How strong the baselines that have a strength should be, on a seed that the evidence does not use."""
    given, out = steps.options, "outputs/evidence_b_strengths"
    steps.micro_start()
    steps.take_kept(out)
    steps.study = _study(steps, out, "data/micro")
    for arm in ("grpo", *TUNED.split()):
        key, values = STRENGTHS.get(arm, ("", ""))
        steps.multirun(
            "experiment=paper_b", "run.experiment=evidence_b_strengths", f"data.seed={given.seed or '100'}",
            f"arm={arm}", f"protocol.skill_sequence={ORDERS['forward']}", *([f"{key}={values}"] if key else []),
            f"run.name={arm}{f'_${{{key}}}' if key else ''}.forward.{SEED}", *overrides,
        )  # fmt: skip
    steps.keep_runs(out)
    _report(steps, "skills", out)


def paper_b(steps: Steps[PaperBOptions], scale: str = "", *arguments: str) -> None:
    """Skill-safe updates: `toy` in numpy, `micro` on the micro suite, or `real` with the user's model and rows."""
    if scale not in SCALES:
        launcher = "bash scripts/run_paper_b.sh"
        raise Stopped(
            f"unknown scale '{scale}'; valid ones:\n{launcher} toy [options]\n"
            f"{launcher} micro [key=value ...]\n{launcher} real [key=value ...]"
        )
    SCALES[scale](steps, *arguments)


def _toy(steps: Steps[Options], *options: str) -> None:
    steps.run("bash", "scripts/setup.sh", steps.serving)
    steps.module("examples.toys", "projection", *options)


def _micro(steps: Steps[PaperBOptions], *overrides: str) -> None:
    """The baseline matrix of skill-safe updates on the micro suite, and a sweep of epsilon."""
    steps.micro_start()
    out = "outputs/paper_b_micro"
    steps.study = _study(steps, out, "data/micro", overrides)
    _baselines(steps, ["experiment=paper_b", *_seeds(steps, out)], ORDERS["forward"], overrides)
    _paper_b(steps, out, ["experiment=paper_b"], _chosen(steps.options.arms, ARMS_OF_PAPER_B), overrides)


def _real(steps: Steps[PaperBOptions], *overrides: str) -> None:
    """The same with the user's model and rows, on GPUs."""
    given = steps.options
    steps = steps.changed(platform=given.platform or "gpu_1x8")
    needed = (
        ("TRAIN_FILES", given.train_files, "parquet of training rows"),
        ("VAL_FILES", given.val_files, "of validation rows"),
        ("SKILLS", given.skills, "their order, as [a,b,c]"),
    )
    for name, value, what in needed:
        if not value:
            raise Stopped(f"{name}: {what}")
    out = "outputs/paper_b_real"
    data = files_in(f"train_files={given.train_files}") | files_in(f"val_files={given.val_files}")
    steps.study = MadeWith(out, data=data, settings={"train": f"{' '.join(overrides)} {given.train}"})
    files = (f"data.train_files={given.train_files}", f"data.val_files={given.val_files}")
    common = ["experiment=paper_b_real", *files, f"skills.names={given.skills}"]
    _baselines(steps, [*common, *_seeds(steps, out)], given.skills, overrides)
    arms = _chosen(given.arms, ARMS_OF_PAPER_B)
    if "refresh" in arms:
        # The arm's two steps are a quarter of the micro suite's stages, and next to nothing of a real model's.
        arms.remove("refresh")
        longer = (f"protocol.refresh_steps={given.refresh_steps or 500}", *overrides)
        _arms_and_epsilons(steps, [*common, *_seeds(steps, out)], ["refresh"], [], SEED, longer)
    _paper_b(steps, out, common, arms, overrides)


SCALES = {"toy": _toy, "micro": _micro, "real": _real}


def learning(steps: Steps[RunsOptions], *overrides: str) -> None:
    """Plain GRPO on the micro suite from one start with several seeds, 36 updates each; a stopped seed is continued."""
    seeds, out = (steps.options.seeds or "0 1 2").split(), "outputs/learning"
    steps.micro_start()
    steps.take_kept(out)
    steps.study = _study(steps, out, "data/micro", overrides)
    # 13 samples per prompt, 663 per skill: a standard error of at most 1.94 points.
    steps.multirun(
        "experiment=quickstart", "run.experiment=learning", f"data.seed={','.join(seeds)}",
        "run.name=seed${data.seed}", "actor_rollout_ref.rollout.val_kwargs.n=13", "trainer.total_training_steps=36",
        "trainer.test_freq=18", "trainer.save_freq=18", *overrides,
    )  # fmt: skip
    steps.keep_runs(out)
    _report(steps, "summary", *(f"{out}/seed{seed}" for seed in seeds))


def hacking(steps: Steps[HackingOptions], *overrides: str) -> None:
    """Reward hacking under a weak judge and under ours, from one start that hacks in one of a hundred answers."""
    given, data, out = steps.options, "data/hacking", "outputs/hacking"
    steps.micro_start(data, *HACKING, *given.source_options.split())
    steps.take_kept(out)
    steps.study = _study(steps, out, data, overrides)
    steps.multirun(
        "experiment=hacking", f"data.seed={listed(given.seeds or '0')}",
        f"arm={listed(given.arms or 'grpo weak_judge')}", f"run.name={ARM}.{SEED}", *overrides,
    )  # fmt: skip
    steps.keep_runs(out)
    _report(steps, "hacks", out)


def _study(steps: Steps[Options], out: str, data: str, overrides: Sequence[str] | None = None) -> MadeWith:
    """All runs begin with one model and use its rows; with `overrides` also of one setting."""
    settings = {} if overrides is None else {"train": f"{' '.join(overrides)} {steps.options.train}"}
    rows = {"train": f"{data}/train.parquet", "val": f"{data}/val.parquet"}
    return MadeWith(out, {"start": f"{data}/model"}, rows, settings)


def _paper_b(
    steps: Steps[PaperBOptions], out: str, common: Sequence[str], arms: Sequence[str], overrides: Sequence[str]
) -> None:
    epsilons = _chosen(steps.options.epsilons, EPSILONS)
    _arms_and_epsilons(steps, [*common, *_seeds(steps, out)], arms, epsilons, SEED, overrides)
    _report(steps, "skills", out, *(["--pareto", "qp_solutions"] if epsilons else []))


def _report(steps: Steps[Options], *arguments: str) -> None:
    """The study's table, also where a run failed; the study's status is then that run's."""
    steps.module("recipe.report", *arguments)
    stop_if_a_run_failed(steps.failed)


def _seeds(steps: Steps[PaperBOptions], out: str) -> list[str]:
    return [f"run.experiment={Path(out).name}", f"data.seed={listed(steps.options.seeds or '0')}"]


def _baselines(steps: Steps[PaperBOptions], common: Sequence[str], order: str, overrides: Sequence[str]) -> None:
    """GRPO on each skill alone for a stage's updates, and on all of them mixed for those of all stages.

    order: skills as `[a,b,c]`.
    """
    chosen = known("baseline", _chosen(steps.options.baselines, BASELINES), BASELINES.split())
    skills = [skill.strip() for skill in order.strip("[]").split(",")]
    everywhere = steps.options.train.split()
    if "single" in chosen:
        for skill in skills:
            steps.multirun(*common, *alone(skill), f"run.name=single_{skill}.{SEED}", *overrides)
    if "mixed" in chosen:
        updates = len(skills) * _stage_steps(common, [*overrides, *everywhere])
        together = replace(steps, options=replace(steps.options, train=" ".join(_without_stages(everywhere))))
        all_skills = ("arm=grpo", *mixed(updates), f"run.name=mixed.{SEED}")
        together.multirun(*common, *all_skills, *_without_stages(overrides))
        steps.failed = together.failed


def _without_stages(overrides: Sequence[str]) -> list[str]:
    """Overrides of a mixed run: it has no stages, so it takes no option of theirs."""
    return [word for word in overrides if not word.startswith("protocol.")]


def _stage_steps(common: Sequence[str], overrides: Sequence[str]) -> int:
    """Updates of a stage: the last override of them, else what the experiment says, else the protocol's default."""
    key, folder = "protocol.stage_steps", Path(configs.__path__[0])
    (experiment,) = (word.partition("=")[2] for word in common if word.startswith("experiment="))
    declared = OmegaConf.load(folder / "protocol/_stages.yaml").stage_steps
    default = OmegaConf.select(OmegaConf.load(folder / f"experiment/{experiment}.yaml"), key, default=declared)
    given = [value for word in overrides if (value := word.removeprefix(f"{key}=")) != word]
    return int([default, *given][-1])


def _arms_and_epsilons(
    steps: Steps[Options],
    common: Sequence[str],
    arms: Sequence[str],
    epsilons: Sequence[str],
    name: str,
    overrides: Sequence[str],
) -> None:
    """Runs with each arm, and with qp_solutions and each epsilon as a cosine; with epsilon 0 it is one of the arms.

    name: the end of a run's name, after its arm.
    """
    if arms:
        steps.multirun(*common, f"arm={','.join(arms)}", f"run.name={ARM}.{name}", *overrides)
    if epsilons:
        steps.multirun(
            *common, "arm=qp_solutions", "projection.epsilon_kind=cosine", f"projection.epsilon={','.join(epsilons)}",
            f"run.name=qp_solutions_epsilon${{projection.epsilon}}.{name}", *overrides,
        )  # fmt: skip


def _chosen(given: str | None, default: str) -> list[str]:
    """What the user names; of an empty choice nothing."""
    return (default if given is None else given).split()
