"""Launchers of the papers' evidence: the commands that they would run; a dry run starts none of them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from recipe.runtime.options import Options
from recipe.settings import read_settings
from recipe.studies.arm_options import mixed
from recipe.studies.steps import Steps
from recipe.study import STUDIES
from tests.composing import composed
from tests.studying import ROOT, of_module, script, search, shown, study, taken

# Not studies: scripts that create the environment or data, check the code, submit jobs, or are sourced.
OTHERS = {"setup", "micro_start", "quickstart", "test", "ray_submit", "common", "gpu_check"}
STARTED = ["bash scripts/setup.sh cpu", "bash scripts/micro_start.sh"]
ARM, SEED = "${hydra:runtime.choices.arm}", "s${data.seed}"
MICRO = "--model start=data/micro/model --data train=data/micro/train.parquet val=data/micro/val.parquet"
FORWARD, BACKWARD = "[write,repair,trace,sql]", "[sql,trace,repair,write]"


def dry(name: str, *words: str, **variables: Any) -> list[str]:
    """Commands of a dry run, whose interpreter does not exist: no run could start."""
    status, commands, printed = study(name, *words, PYTHON="/nowhere/python", **variables)
    assert status == 0, printed
    return commands


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    sorted(path for path in (ROOT / "scripts").rglob("*.sh") if path.stem not in OTHERS),
    ids=lambda path: path.stem,
)
def test_a_launcher_starts_its_study_with_its_arguments(path: Path, tmp_path: Path):
    interpreter = tmp_path / "python"
    interpreter.write_text('#!/bin/sh\nprintf "+ %s\\n" "$*" >&2\n')
    interpreter.chmod(0o755)
    status, (command,), _ = script(str(path), "a b", "c=[d]", PYTHON=str(interpreter))
    module, name, *words = command.removeprefix("-m ").split(" ")
    assert (status, module) == (0, "recipe.study")
    assert name in STUDIES
    assert " ".join(words).removeprefix(f"{path.stem} ") == "a b c=[d]"
    folder = "" if path.parent.name == "scripts" else f"{path.parent.name}."
    assert name in (f"{folder}{path.stem}", f"{folder}{path.stem.removeprefix('run_')}", "task")


def test_every_study_has_a_launcher():
    texts = [path.read_text() for path in (ROOT / "scripts").rglob("*.sh")]
    assert all(any(f"study {name} " in text for text in texts) for name in STUDIES)


def test_steps_alone_start_processes():
    """The dry run prints the study's commands."""
    modules = (ROOT / "recipe/studies").glob("*.py")
    assert [
        path.stem for path in modules if re.search("subprocess|os[.](system|exec|spawn|popen)", path.read_text())
    ] == ["steps"]


def test_hacking_trains_under_both_judges_from_one_start_and_draws_them():
    commands = dry("hacking", SEEDS="0 1", SOURCE_OPTIONS="--hack-share 0.05")
    model, rows = "--model start=data/hacking/model", "train=data/hacking/train.parquet val=data/hacking/val.parquet"
    assert commands == [
        STARTED[0],
        f"{STARTED[1]} data/hacking --skills shown --hack-share 0.01 --impossible-share 0.25 --hack-share 0.05",
        f"claim outputs/hacking {model} --data {rows} --set train= ",
        f"recipe.train --multirun experiment=hacking data.seed=0,1 arm=grpo,weak_judge run.name={ARM}.{SEED}",
        "recipe.report hacks outputs/hacking",
    ]


def test_evidence_b_has_the_overrides_by_which_its_kept_runs_are_found_again():
    kept = "docs/evidence/paper_b/runs.jsonl.xz"
    commands = dry("evidence_b", "trainer.save_freq=4", SEEDS="2 3", ARMS="grpo ewc", EPSILONS="0.1 0.3", KEPT=kept)
    study = "recipe.train --multirun experiment=paper_b run.experiment=evidence_b data.seed="
    assert commands == [
        *STARTED,
        f"recipe.keep {kept} outputs/evidence_b",
        *(
            command
            for seed in "23"
            for order, sequence in (("forward", FORWARD), ("backward", BACKWARD))
            for arms in (
                f"arm=grpo,ewc run.name={ARM}",
                "arm=qp_solutions projection.epsilon_kind=cosine projection.epsilon=0.1,0.3 "
                "run.name=qp_solutions_epsilon${projection.epsilon}",
            )
            for command in (
                f"claim outputs/evidence_b {MICRO} --set train=trainer.save_freq=4 ",
                f"{study}{seed} protocol.skill_sequence={sequence} {arms}.{order}.{SEED} trainer.save_freq=4",
            )
        ),
        f"recipe.keep outputs/evidence_b {kept}",
        "recipe.report skills outputs/evidence_b --pareto qp_solutions",
    ]


def test_a_study_on_gpus_says_so_in_every_run_and_takes_the_words_of_train():
    variables = {"PLATFORM": "gpu_1x8", "TRAIN": "data.seed=7 run.poll_interval=1"}
    for name in ("evidence_a", "evidence_b", "evidence_b_strengths", "learning", "paper_b"):
        fewer = taken(name, SEEDS="1", ORDERS="forward")
        commands = dry(name, "micro" if name == "paper_b" else "a=b", **fewer, **variables)
        runs = of_module(commands, "recipe.train")
        assert runs, name
        assert all("platform=gpu_1x8" in run.split() and run.endswith(variables["TRAIN"]) for run in runs)
        assert commands[0] == "bash scripts/setup.sh gpu"


def test_the_strengths_are_those_of_the_arms_that_have_one():
    commands = dry("evidence_b_strengths")
    runs = of_module(commands, "recipe.train")
    assert [search(r"arm=(\w+) .*\] (?:(\S+)=\S+ )?run.name=(\S+)", run).groups() for run in runs] == [
        ("grpo", None, f"grpo.forward.{SEED}"),
        ("kl", "actor_rollout_ref.actor.kl_loss_coef", "kl_${actor_rollout_ref.actor.kl_loss_coef}.forward." + SEED),
        ("ewc", "penalty.strength", "ewc_${penalty.strength}.forward." + SEED),
        ("l2", "penalty.strength", "l2_${penalty.strength}.forward." + SEED),
    ]
    assert commands[:2] == STARTED
    assert commands[-1] == "recipe.report skills outputs/evidence_b_strengths"


def test_evidence_a_trains_on_the_suite_that_it_made():
    commands = dry("evidence_a", SEEDS="0 1", ARMS="grpo delete", SUITE="sql parts", REACH="0.5")
    folder = "data/sql_parts"
    assert commands == [
        STARTED[0],
        f"bash scripts/micro_start.sh {folder} --skills sql parts",
        f"claim outputs/evidence_a.sql_parts --model start={folder}/model "
        f"--data train={folder}/train.parquet val={folder}/val.parquet --set train= ",
        "recipe.train --multirun experiment=evidence_a data.seed=0,1 arm=grpo,delete "
        f"run.experiment=evidence_a.sql_parts run.name={ARM}.{SEED} "
        f"data.train_files={folder}/train.parquet data.val_files={folder}/val.parquet "
        f"actor_rollout_ref.model.path={folder}/model skills.names=[sql,parts]",
        "recipe.report speed outputs/evidence_a.sql_parts --reach 0.5",
    ]


def test_the_table_of_learning_is_of_one_run_a_seed():
    commands = dry("learning", SEEDS="998 999")
    (runs,) = of_module(commands, "recipe.train")
    assert runs.startswith("recipe.train --multirun experiment=quickstart run.experiment=learning data.seed=998,999 ")
    assert "run.name=seed${data.seed} " in runs
    assert commands[-1] == "recipe.report summary outputs/learning/seed998 outputs/learning/seed999"


def test_learning_continues_from_one_file_and_adds_to_it(tmp_path: Path):
    kept = tmp_path / "runs.jsonl.xz"
    commands = dry("learning", KEPT=str(kept))
    assert of_module(commands, "recipe.keep") == [f"recipe.keep outputs/learning {kept}"]
    kept.touch()
    steps = [one.split()[0] for one in dry("learning", KEPT=str(kept)) if not one.startswith(("claim", "bash"))]
    assert steps == ["recipe.keep", "recipe.train", "recipe.keep", "recipe.report"]


def test_paper_b_has_the_baselines_and_its_curve_in_one_folder_with_one_summary():
    commands = dry("paper_b", "micro", SEEDS="0 1")
    *alone, both, arms, curve = of_module(commands, "recipe.train")
    common = "recipe.train --multirun experiment=paper_b run.experiment=paper_b_micro data.seed=0,1 arm=grpo"
    assert alone == [
        f"{common} protocol.skill_sequence=[{skill}] run.name=single_{skill}.{SEED}"
        for skill in ("write", "repair", "trace", "sql")
    ]
    # As many updates as four stages of 8.
    together = f"protocol=mixed protocol.every_skill=true trainer.total_training_steps=32 run.name=mixed.{SEED}"
    assert both == f"{common} {together}"
    chosen = search(r" arm=(\S+)", arms)[1].split(",")
    assert {"grpo", "ppo", "reinforce", "kl", "entropy", "replay", "refresh", "ewc", "l2"} <= set(chosen)
    assert all((ROOT / "configs" / "arm" / f"{arm}.yaml").is_file() for arm in chosen)
    assert arms.startswith("recipe.train --multirun experiment=paper_b run.experiment=paper_b_micro data.seed=0,1 ")
    assert arms.endswith(f"run.name={ARM}.{SEED}")
    assert "run.experiment=paper_b_micro data.seed=0,1 arm=qp_solutions projection.epsilon_kind=cosine" in curve
    assert curve.endswith("run.name=qp_solutions_epsilon${projection.epsilon}." + SEED)
    assert of_module(commands, "recipe.report skills") == [
        "recipe.report skills outputs/paper_b_micro --pareto qp_solutions"
    ]


def test_of_paper_b_each_part_can_be_left_out():
    (curve,) = of_module(dry("paper_b", "micro", ARMS="", BASELINES=""), "recipe.train")
    assert "projection.epsilon=0.01,0.03,0.1,0.3" in curve
    commands = dry("paper_b", "micro", ARMS="grpo ewc", EPSILONS="", BASELINES="")
    (arms,) = of_module(commands, "recipe.train")
    assert " arm=grpo,ewc " in arms
    assert commands[-1] == "recipe.report skills outputs/paper_b_micro"
    status, _, printed = study("paper_b", "micro", BASELINES="joint")
    assert (status, "unknown baseline 'joint'; valid ones: single, mixed" in printed) == (2, True)


@pytest.mark.slow
def test_the_mixed_baseline_has_the_updates_of_all_stages_and_no_option_of_stages():
    chosen: dict[str, Any] = {"ARMS": "", "EPSILONS": "", "BASELINES": "mixed"}
    words = ("protocol.stage_steps=5", "protocol.memory_size=9", "x=1")
    (run,) = of_module(dry("paper_b", "micro", *words, TRAIN="protocol.seed=3 y=2", **chosen), "recipe.train")
    assert run.endswith(f"trainer.total_training_steps=20 run.name=mixed.{SEED} x=1 y=2")
    (run,) = of_module(dry("paper_b", "micro", TRAIN="protocol.stage_steps=3", **chosen), "recipe.train")
    assert f"trainer.total_training_steps=12 run.name=mixed.{SEED}" in run
    data: dict[str, Any] = {"TRAIN_FILES": "t.parquet", "VAL_FILES": "v.parquet", "SKILLS": "[a,b]"}
    (run,) = of_module(dry("paper_b", "real", **chosen | data), "recipe.train")
    assert "trainer.total_training_steps=4000" in run  # 2 stages of the protocol's 2,000
    config = composed(
        "experiment=paper_b_real", "data.train_files=t", "data.val_files=v", "skills.names=[a,b]", "arm=grpo",
        *mixed(4000),
    )  # fmt: skip
    assert (config.trainer.total_training_steps, read_settings(config).stages) == (4000, None)


def test_paper_b_with_a_real_model_needs_data_and_is_on_gpus():
    data: dict[str, Any] = {"TRAIN_FILES": "t.parquet", "VAL_FILES": "v.parquet", "SKILLS": "[a,b]"}
    for variables, platform in (({}, "gpu_1x8"), ({"PLATFORM": "gpu_ray"}, "gpu_ray")):
        commands = dry("paper_b", "real", "trainer.nnodes=1", TRAIN="data.seed=3", **data, **variables)
        runs = of_module(commands, "recipe.train")
        assert len(runs) == 6  # each skill alone, both mixed, and:
        runs = runs[3:]
        assert f" arm=refresh run.name={ARM}.{SEED} protocol.refresh_steps=500 " in runs[0]  # a quarter of a stage
        assert "refresh" not in runs[1]
        start = f"recipe.train --multirun platform={platform} experiment=paper_b_real data.train_files=t.parquet "
        assert all(run.startswith(f"{start}data.val_files=v.parquet skills.names=[a,b] ") for run in runs)
        assert all(run.endswith("trainer.nnodes=1 data.seed=3") for run in runs)
        assert "bash scripts/setup.sh gpu" not in commands  # the user manages an existing environment
    status, commands, printed = study("paper_b", "real", **data | {"VAL_FILES": ""})
    assert (status != 0, commands) == (True, [])
    assert "VAL_FILES: of validation rows" in printed


@pytest.mark.slow
def test_what_a_user_chooses_of_paper_b_goes_with_it_to_a_cluster():
    chosen: dict[str, Any] = {"ARMS": "ewc", "EPSILONS": "", "SEEDS": "4"}
    chosen |= {"TRAIN_FILES": "t", "VAL_FILES": "v", "SKILLS": "[a]"}
    status, _, printed = script("scripts/ray_submit.sh", "scripts/run_paper_b.sh", "real", **chosen)
    assert status == 0, printed
    sent = json.loads(search(r"--runtime-env-json (\{.*\}) --", printed)[1])["env_vars"]
    assert {name: sent[name] for name in chosen} == chosen


def test_the_toy_of_paper_b_is_one_command():
    assert dry("paper_b", "toy", "--seeds", "3") == [STARTED[0], "examples.toys projection --seeds 3"]


@pytest.mark.slow
def test_the_coding_pipeline_on_the_micro_model_shows_its_data_and_its_phases():
    commands = dry("coding.micro", OUT="outputs/nowhere")
    assert commands[0] == "bash scripts/micro_start.sh"
    assert len(of_module(commands, "recipe.train")) == 2  # phases 3 and 4
    assert all("trainer.total_training_steps=8" in run for run in of_module(commands, "recipe.train"))


def test_a_run_that_fails_stops_neither_the_next_nor_its_status(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    """`multirun` with a stand-in for the interpreter that fails on the first of two."""
    stub = tmp_path / "python"
    stub.write_text('#!/bin/sh\ncase "$*" in *arm=a*) exit 3 ;; esac\n')
    stub.chmod(0o755)
    steps = Steps(Options(python=str(stub), train="x=1"))
    steps.multirun("arm=a")
    steps.multirun("arm=b")
    assert steps.failed == 3
    assert shown(capfd.readouterr().err) == [f"recipe.train --multirun arm={arm} x=1" for arm in "ab"]
