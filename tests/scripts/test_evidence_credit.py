"""The study of sparse rewards: what its stages would run, in a dry run."""

from dataclasses import replace

import pytest

from recipe.studies.credit import RATES_THAT_HOLD, RIVAL_CONTRASTS, RIVAL_LENGTH, TASKS, _as_chosen, size_overrides
from tests.composing import composed
from tests.scripts.test_papers import ARM, SEED, STARTED, dry
from tests.studying import of_module, study

LR = "actor_rollout_ref.actor.optim.lr"


def test_the_arms_of_a_task_share_a_start_and_seeds_and_name_their_contrasts():
    commands = dry("evidence_credit", "arms", TASKS="chain8", ARMS="credit")
    assert commands == [
        STARTED[0],
        " ".join(("bash scripts/micro_start.sh data/chain8", *TASKS["chain8"].start)),
        "claim outputs/evidence_credit.chain8 --model start=data/chain8/model "
        "--data train=data/chain8/train.parquet val=data/chain8/val.parquet --set train= ",
        "recipe.train --multirun experiment=credit_chain8 run.experiment=evidence_credit.chain8 "
        f"data.seed=20,21,22,23,24 arm=credit run.name={ARM}.{SEED}",
        "recipe.report online outputs/evidence_credit.chain8 --reach 0.8 --window 16 --contrasts credit:grpo",
    ]


@pytest.mark.parametrize(("task", "others"), [("parts4", "credit,credit_shuffled"), ("chain8", "credit")])
def test_each_seed_has_grpo_at_its_own_rate(task: str, others: str):
    runs = of_module(dry("evidence_credit", "arms", TASKS=task, SEEDS="20 21"), "recipe.train")
    assert [run.partition("data.seed=")[2] for run in runs] == [
        f"{seed} {arms} run.name={ARM}.{SEED}"
        for seed in (20, 21)
        for arms in (f"arm=grpo {LR}=4.0e-3", f"arm={others}")
    ]


def test_rates_are_compared_on_seeds_that_no_arm_uses():
    commands = dry("evidence_credit", "rates", "trainer.save_freq=4")
    runs = of_module(commands, "recipe.train")
    assert len(runs) == 3
    for run, arms in zip(runs, ("grpo,partial,credit", "grpo,credit", "grpo,credit"), strict=True):
        name = f"run.name={ARM}_lr${{{LR}}}.{SEED}"
        assert f"{LR}=2e-3,4e-3,8e-3 data.seed=100,101 arm={arms} {name} trainer.save_freq=4" in run
    assert "recipe.report online outputs/evidence_credit.chain8_rates --reach 0.8 --window 16" in commands
    (run,) = of_module(dry("evidence_credit", "rates", TASKS="parts16", RATES="1e-3", SEEDS="7"), "recipe.train")
    assert f"{LR}=1e-3 data.seed=7 " in run
    (run,) = of_module(dry("evidence_credit", "rates", TASKS="parts16", ARMS="partial credit"), "recipe.train")
    assert f"data.seed=100,101 arm=partial,credit run.name={ARM}_lr${{{LR}}}.{SEED}" in run


@pytest.mark.slow
def test_updates_of_each_size_hold_as_many_samples_in_all():
    chosen = {"TASKS": "parts16", "SIZES": "2x8 1x4", "RATES": "4e-3", "SEEDS": "100"}
    runs = of_module(dry("evidence_credit", "rates", **chosen), "recipe.train")
    assert len(runs) == 2
    for run, size, batch, updates in zip(runs, ("2x8", "1x4"), (2, 1), (60, 240), strict=True):
        words = " ".join(size_overrides(size))
        assert f"{words} {LR}=4e-3 data.seed=100 arm=grpo,partial,credit run.name={ARM}_{size}_lr" in run
        assert f"data.train_batch_size={batch} " in words
        assert f"trainer.total_training_steps={updates} " in words
    config = composed("experiment=credit_parts16")
    own = size_overrides(f"{config.data.train_batch_size}x{config.actor_rollout_ref.rollout.n}")
    assert composed("experiment=credit_parts16", *own) == config
    for wrong in ("2", "2x", "0x4", "4x1", "3x8", "32x16"):
        status, _, printed = study("evidence_credit", "rates", TASKS="parts16", SIZES=wrong)
        assert (status, f"SIZES has '{wrong}'" in printed) == (2, True)
    for stage, task, told in (("rates", "parts4", "have one size"), ("arms", "parts16", "belongs to the stage rates")):
        status, _, printed = study("evidence_credit", stage, TASKS=task, SIZES="2x8")
        assert (status, told in printed) == (2, True)


def test_arms_with_choices_of_their_own_run_seed_by_seed():
    task = replace(TASKS["parts4"], own={"credit": ("1x4", "8e-3")})
    mine = (*size_overrides("1x4"), f"{LR}=8e-3")
    assert list(_as_chosen(task, ["grpo", "credit", "partial", "credit_shuffled"], ["1", "2"])) == [
        (f"data.seed={seed}", *chosen, f"run.name={ARM}.{SEED}")
        for seed in "12"
        for chosen in (("arm=grpo,partial",), ("arm=credit,credit_shuffled", *mine))
    ]
    own = [("data.seed=1,2", "arm=credit", *mine, f"run.name={ARM}.{SEED}")]
    assert list(_as_chosen(task, ["credit"], ["1", "2"])) == own


def test_arms_beside_the_plan_are_compared_in_a_table_of_their_own():
    commands = dry("evidence_credit", "arms", TASKS="chain8", ARMS="credit_truncate credit_both", SEEDS="20 21")
    (run,) = of_module(commands, "recipe.train")
    assert f"data.seed=20,21 arm=credit_truncate,credit_both run.name={ARM}.{SEED}" in run
    (report,) = of_module(commands, "recipe.report")
    pairs = "credit_truncate:grpo credit_truncate:credit credit_both:grpo credit_both:credit"
    assert report.endswith(
        f"--reach 0.8 --window 16 --out outputs/evidence_credit.chain8/estimates --contrasts {pairs}"
    )


def test_the_runs_of_each_task_are_kept_in_a_file_of_a_folder():
    commands = dry("evidence_credit", "arms", KEPT="kept", ARMS="grpo", SEEDS="3")
    assert of_module(commands, "recipe.keep") == [
        f"recipe.keep outputs/evidence_credit.{task} kept/{task}.jsonl.xz" for task in ("parts16", "parts4", "chain8")
    ]
    assert all("data.seed=3 arm=grpo " in run for run in of_module(commands, "recipe.train"))


def test_the_lines_of_the_sparse_and_the_chained_start_are_wrong_in_the_stated_share():
    starts = [one for one in dry("evidence_credit", "arms") if one.startswith("bash scripts/micro_start.sh")]
    assert [one.split(" data/")[1].split(" --easier")[0] for one in starts] == [
        "parts16 --skills parts --difficulty 3 --line-wrong-share 0.16",
        "parts --skills parts",
        "chain8 --skills chain --difficulty 2 --line-wrong-share 0.08",
    ]


def test_another_stage_or_task_is_refused():
    status, _, printed = study("evidence_credit", "all")
    assert (status, "unknown stage 'all'; valid ones: rates, arms, longer, rivals, agents" in printed) == (2, True)
    status, _, printed = study("evidence_credit", "arms", TASKS="parts5")
    assert (status, "unknown task 'parts5'; valid ones: parts16, parts4, chain8" in printed) == (2, True)


def assert_kept_and_reported(commands: list[str], name: str, options: str) -> None:
    assert of_module(commands, "recipe.keep") == [f"recipe.keep outputs/evidence_credit.{name} kept/{name}.jsonl.xz"]
    (report,) = of_module(commands, "recipe.report")
    assert report.endswith(f"--reach 0.5 --window 8 --samples 16 {options}")


def test_rivals_run_beside_grpo_and_credit_on_seeds_of_their_own():
    commands = dry("evidence_credit", "rivals", KEPT="kept", SEEDS="80")
    grpo, credit, vineppo, spo, inverted = of_module(commands, "recipe.train")
    own = f"run.experiment=evidence_credit.parts16_rivals {' '.join(RIVAL_LENGTH)} data.seed=80"
    for command, arm in ((grpo, "grpo"), (credit, "credit"), (vineppo, "vineppo"), (spo, "spo")):
        assert command.endswith(f"{own} arm={arm} {LR}={RATES_THAT_HOLD[arm]} run.name={arm}.{SEED}")
    rate = f"{LR}={RATES_THAT_HOLD['credit']}"
    assert inverted.endswith(f"{own} arm=credit {rate} credit.ablation=inverted run.name=credit_inverted.{SEED}")
    assert_kept_and_reported(commands, "parts16_rivals", f"--each --contrasts {' '.join(RIVAL_CONTRASTS)}")


def test_grpo_with_as_many_and_twice_the_samples_is_compared_with_credit():
    commands = dry("evidence_credit", "longer", KEPT="kept", SEEDS="70")
    credit, grpo, longer = of_module(commands, "recipe.train")
    own = "run.experiment=evidence_credit.parts16_longer data.seed=70"
    assert credit.endswith(f"{own} arm=credit {LR}={RATES_THAT_HOLD['credit']} run.name=credit.{SEED}")
    assert grpo.endswith(f"{own} arm=grpo {LR}={RATES_THAT_HOLD['grpo']} run.name=grpo.{SEED}")
    trainer = "trainer.total_training_steps=240 trainer.test_freq=240 trainer.save_freq=120"
    assert longer.endswith(f"{own} arm=grpo {LR}={RATES_THAT_HOLD['grpo']} {trainer} run.name=grpo_longer.{SEED}")
    assert_kept_and_reported(
        commands, "parts16_longer", "--lengths-differ --each --contrasts credit:grpo credit:grpo_longer"
    )
    (alone,) = of_module(dry("evidence_credit", "longer", SEEDS="70", ARMS="grpo"), "recipe.train")
    assert "run.name=grpo." in alone
    status, _, printed = study("evidence_credit", "longer", ARMS="partial")
    assert (status, "unknown arm 'partial'; valid ones: credit, grpo, grpo_longer" in printed) == (2, True)


def test_agents_compare_credit_per_turn_with_gigpo_and_grpo_from_a_start_with_second_turns():
    commands = dry("evidence_credit", "agents")
    assert "data_prep.micro --out data/credit_agents --skills write repair --agents" in commands
    assert of_module(commands, "recipe.sft")
    (run,) = of_module(commands, "recipe.train")
    assert "data.seed=14,15,16,17 arm=grpo,gigpo,credit_turns " in run
    assert "actor_rollout_ref.model.path=data/credit_agents/model skills.names=[write,repair]" in run
    (report,) = of_module(commands, "recipe.report")
    assert report.endswith("--contrasts credit_turns:grpo credit_turns:gigpo gigpo:grpo")
    status, _, printed = study("evidence_credit", "agents", TASKS="parts16")
    assert (status, "unknown task 'parts16'; valid ones: agents" in printed) == (2, True)


def test_weights_of_an_earlier_start_are_taken_from_a_folder_per_task():
    commands = dry("evidence_credit", "arms", TASKS="parts16", START="starts")
    (start,) = [command for command in commands if "micro_start.sh" in command]
    assert start.endswith("--model starts/parts16/model")
    assert not any("micro_start.sh" in command and "--model" in command for command in dry("evidence_credit", "arms"))
