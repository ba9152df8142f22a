"""The study of bounded forgetting: what its stages would run, in a dry run."""

import re
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from recipe.reports.bars import ARM as JUDGED
from recipe.reports.bars import CONFIRMATORY
from recipe.runtime.options import SafeOptions
from recipe.settings import read_settings
from recipe.studies.arm_options import CLOSED_LOOP, STRENGTHS
from recipe.studies.safe import ARMS, ENLARGED, ESTIMATES, TUNED, merge_single_runs
from recipe.studies.steps import Steps
from recipe.training.schedule import make_plan
from tests.composing import composed
from tests.scripts.test_papers import ARM, BACKWARD, FORWARD, MICRO, SEED, STARTED, dry
from tests.studying import ROOT, of_module, shown, study


def test_arms_run_both_orders_of_a_seed_before_the_next_seed():
    commands = dry("evidence_safe", "arms", "trainer.save_freq=4", SEEDS="20 21", ARMS="grpo closed_loop")
    begin = "recipe.train --multirun experiment=paper_b run.experiment=evidence_safe.arms"
    assert commands == [
        STARTED[0],
        f"{STARTED[1]} data/micro",
        *(
            command
            for seed in ("20", "21")
            for order, sequence in (("forward", FORWARD), ("backward", BACKWARD))
            for command in (
                f"claim outputs/evidence_safe.arms {MICRO} --set train=trainer.save_freq=4 ",
                f"{begin} data.seed={seed} protocol.skill_sequence={sequence} "
                f"protocol.val_n_of_others=2 arm=grpo,closed_loop run.name={ARM}.{order}.{SEED} trainer.save_freq=4",
            )
        ),
        "recipe.report skills outputs/evidence_safe.arms",
        "recipe.report bars outputs/evidence_safe.arms",
    ]


def test_each_arm_with_a_strength_gets_equally_many_tuning_runs_on_seeds_that_no_arm_uses():
    runs = of_module(dry("evidence_safe", "tune"), "recipe.train")
    assert len(runs) == 2 * len(TUNED.split())
    assert {len(values.split(",")) for _, values in STRENGTHS.values()} == {3}
    assert all("data.seed=100 " in run or "data.seed=101 " in run for run in runs)
    name = "run.name=closed_loop_${projection.gain}.forward." + SEED
    assert any(f"arm=closed_loop projection.gain=0.1,0.3,1.0 {name}" in run for run in runs)


def test_bars_are_not_judged_without_the_arm_that_they_judge():
    assert CLOSED_LOOP == JUDGED
    assert not any(" bars " in one for one in dry("evidence_safe", "arms", ARMS="grpo ewc", SEEDS="20"))
    assert any(" bars " in one for one in dry("evidence_safe", "arms", ARMS="grpo closed_loop", SEEDS="20"))


def test_an_earlier_start_takes_the_place_of_one_trained_here():
    assert "bash scripts/micro_start.sh data/micro --model earlier" in dry("evidence_safe", "arms", START="earlier")
    status, _, printed = study("evidence_safe", "six", START="earlier")
    assert (status, "START has four skills" in printed) == (2, True)


def test_tuning_reads_prompts_that_the_study_does_not():
    commands = dry("evidence_safe", "tune", ARMS="closed_loop", SEEDS="100")
    making = "data_prep.micro --out data/micro_tune --seed 1 --limit 400 --without data/micro --demonstrations 8"
    assert making in commands
    (run,) = of_module(commands, "recipe.train")
    assert run.endswith("data.train_files=data/micro_tune/train.parquet data.val_files=data/micro_tune/val.parquet")


def test_the_plan_names_the_arms_and_all_of_them_have_files():
    plan = Path(ROOT, "docs/evidence/skill_safe_plan.md").read_text()
    assert ARMS.replace(" ", ", ") in plan
    assert tuple(ARMS.split()) == CONFIRMATORY
    assert ESTIMATES.replace(" ", ", ") in plan
    assert all(Path(ROOT, f"configs/arm/{arm}.yaml").is_file() for arm in (ARMS + " " + ESTIMATES).split())


def compose_beside_lists(run: str) -> None:
    """What a multirun composes first: the overrides of one value."""
    words = [word for word in run.partition("--multirun ")[2].split() if "," not in word or "=[" in word]
    with initialize_config_module("configs", version_base=None):
        compose("train", [word for word in words if not word.startswith("run.name=")])


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["arms", "estimates"])
def test_arms_run_at_the_strengths_that_tuning_chose(stage: str):
    plan = Path(ROOT, "docs/evidence/skill_safe_plan.md").read_text()
    (row,) = (line for line in plan.splitlines() if line.startswith("| chosen |"))
    chosen = {arm: (key, float(value)) for arm, key, value in re.findall(r"(\w+) `([\w.]+)=([^`]+)`", row)}
    assert {arm: key for arm, (key, _) in chosen.items()} == {arm: STRENGTHS[arm][0] for arm in TUNED.split()}
    for arm in ("random_gradients", "sequential_margin_solutions", "trigger_forgetting"):
        chosen[arm] = chosen["qp_solutions"]
    for arm in ("closed_loop_adam", "credit_closed_loop"):
        chosen[arm] = chosen["closed_loop"]
    runs = of_module(dry("evidence_safe", stage, SEEDS="20", ORDERS="forward"), "recipe.train")
    for run in runs:
        compose_beside_lists(run)
    arms = {arm: run for run in runs for arm in run.partition(" arm=")[2].split()[0].split(",")}
    assert set(arms) == set((ARMS if stage == "arms" else ESTIMATES).split())
    for arm in arms.keys() & chosen.keys():
        key, value = chosen[arm]
        given = [word for word in arms[arm].split() if word.startswith(f"{key}=")]
        assert OmegaConf.select(composed("experiment=paper_b", f"arm={arm}", *given), key) == value


@pytest.mark.slow
def test_memory_prompts_come_on_top_of_a_batch_that_is_as_large_in_every_arm():
    runs = of_module(dry("evidence_safe", "memory"), "recipe.train")
    assert len(runs) == 2
    for run in runs:
        assert "protocol.memory_per_protected=8 data.train_batch_size=40 " in run
        assert "arm=grpo,qp_rollouts,qp_both " in run
    config = composed("experiment=paper_b", "arm=qp_rollouts", *ENLARGED)
    made = make_plan(read_settings(config), 40)
    assert made is not None
    assert [made.fresh[step].sum() for step in (0, 8, 16, 24)] == [40, 32, 24, 16]


@pytest.mark.slow
def test_baselines_are_each_skill_alone_all_mixed_and_one_after_another():
    runs = of_module(dry("evidence_safe", "baselines", SEEDS="20"), "recipe.train")
    *runs, merged = runs
    names = [run.partition("run.name=")[2].split()[0] for run in runs]
    alone = [f"single_{skill}.forward.{SEED}" for skill in ("write", "repair", "trace", "sql")]
    assert names == [*alone, f"{ARM}_mixed.forward.{SEED}", f"{ARM}.forward.{SEED}"]
    assert (
        "protocol=mixed protocol.every_skill=true trainer.total_training_steps=32 trainer.test_freq=32 "
        "arm=grpo,closed_loop,worst_skill " in runs[4]
    )
    assert "val_n_of_others" not in runs[4]
    assert "model.path=outputs/evidence_safe.baselines.merged/s20.model trainer.val_only=true" in merged
    mixed = read_settings(composed("experiment=paper_b", "arm=closed_loop", "protocol=mixed"))
    assert (mixed.stages, mixed.protected) == (None, ["write", "repair", "trace", "sql"])


def test_the_models_of_a_seeds_single_runs_are_exported_merged_and_validated():
    commands = dry("evidence_safe", "baselines", SEEDS="20 21")
    (merging, other) = of_module(commands, "recipe.merge")
    folder = "outputs/evidence_safe.baselines"
    models = [f"{folder}/single_{skill}.forward.s20/model" for skill in ("write", "repair", "trace", "sql")]
    assert merging == f"recipe.merge data/micro/model {' '.join(models)} --out {folder}.merged/s20.model"
    assert "s21.model" in other
    assert len(of_module(commands, "recipe.export")) == 8
    assert commands[-1] == f"recipe.report summary {folder}.merged/s20 {folder}.merged/s21"


def test_a_seed_whose_single_runs_came_without_checkpoints_is_not_merged(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    for seed in ("20", "21"):
        for skill in ("write", "repair", "trace", "sql"):
            run = tmp_path / f"outputs/evidence_safe.baselines/single_{skill}.forward.s{seed}"
            (run / "checkpoints" if seed == "21" or skill == "sql" else run).mkdir(parents=True)
    with chdir(tmp_path):
        merge_single_runs(Steps(SafeOptions(dry_run="1", seeds="20 21")), "outputs/evidence_safe.baselines")
    printed = capfd.readouterr().err
    commands = shown(printed)
    assert [one.rpartition(" ")[2] for one in of_module(commands, "recipe.merge")] == [
        "outputs/evidence_safe.baselines.merged/s21.model"
    ]
    assert "seed 20 is not merged: outputs/evidence_safe.baselines/single_write.forward.s20, " in printed
    assert commands[-1] == "recipe.report summary outputs/evidence_safe.baselines.merged/s21"


@pytest.mark.slow
def test_six_skills_have_a_start_of_their_own_and_protect_none_to_five():
    commands = dry("evidence_safe", "six")
    assert commands[1] == (
        "bash scripts/micro_start.sh data/micro6 --skills write repair trace sql parts countdown "
        "--demonstrations 44416 trainer.total_training_steps=694"
    )
    runs = of_module(commands, "recipe.train")
    assert len(runs) == 2
    assert all("experiment=paper_b6 " in run and "arm=grpo,rehearsal,closed_loop " in run for run in runs)
    config = composed("experiment=paper_b6", "arm=closed_loop")
    made = make_plan(read_settings(config), 16)
    assert made is not None
    assert [len(protected) for protected in made.protected] == [0, 1, 2, 3, 4, 5]
    assert (made.steps, config.data.max_response_length) == (48, 128)


def test_another_stage_order_or_arm_is_refused():
    for words, variables, message in (
        (["all"], {}, "unknown stage 'all'; valid ones: tune, arms, estimates, memory, baselines, six"),
        (["arms"], {"ORDERS": "up"}, "unknown order 'up'"),
        (["tune"], {"ARMS": "grpo"}, "arm 'grpo' has no strength"),
    ):
        named: dict[str, Any] = variables
        status, _, printed = study("evidence_safe", *words, **named)
        assert (status, message in printed) == (2, True)
