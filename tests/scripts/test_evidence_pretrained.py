"""The study of the evidence on a pretrained model: what its stages would run, in a dry run."""

from pathlib import Path
from typing import Any

import pytest

from data_prep.english.suite import parse_levels
from recipe.studies.pretrained_evidence import STAGES, TUNED
from tests.composing import composed
from tests.scripts.test_papers import ARM, SEED, dry
from tests.studying import ROOT, of_module, search, study

START = "outputs/pretrained/start/model"


def _runs(stage: str, **variables: str) -> list[str]:
    return of_module(dry("evidence_pretrained", stage, **variables), "recipe.train")


def test_all_arms_of_a_seed_run_before_the_next_seed_from_the_start_of_the_pretrained_study():
    begin = f"recipe.train --multirun experiment=pretrained_credit run.experiment=evidence_pretrained.credit \
actor_rollout_ref.model.path={START}"
    assert _runs("credit", SEEDS="30 31", ARMS="grpo credit grpo_more_samples") == [
        command
        for seed in ("30", "31")
        for command in (
            f"{begin} data.seed={seed} arm=grpo,credit run.name={ARM}.{SEED}",
            f"{begin} data.seed={seed} arm=grpo actor_rollout_ref.rollout.n=10 run.name=grpo_more_samples.{SEED}",
        )
    ]


def test_the_start_is_made_before_the_rows_and_the_rows_before_the_runs():
    commands = dry("evidence_pretrained", "credit", SEEDS="30", ARMS="grpo")
    order = ("data_prep.pretrained", "recipe.sft", "data_prep.english --out data/english_credit", "recipe.train")
    places = [next(place for place, one in enumerate(commands) if one.startswith(word)) for word in order]
    assert places == sorted(places)
    assert f"claim outputs/evidence_pretrained.credit --model start={START}" in " ".join(commands)


@pytest.mark.parametrize(
    ("stage", "levels"),
    [
        ("rates", {"write": (1,), "word": (1,)}),
        ("credit", {"write": (1,), "word": (1,)}),
        ("tune", {"write": (1,), "repair": (1,), "sql": (1, 2)}),
        ("safe", {"write": (1,), "repair": (1,), "sql": (1, 2)}),
    ],
)
def test_the_rows_of_a_stage_have_levels_of_its_skills_alone(stage: str, levels: dict[str, tuple[int, ...]]):
    command = of_module(dry("evidence_pretrained", stage), "data_prep.english")[-1]
    skills = search(r"--skills ((?:\w+ ?)+)", command)[1].split()
    assert parse_levels(search(r"--levels (.*?) --", command)[1].split(), skills) == levels


def test_both_orders_of_a_seed_form_a_block_and_both_joins_the_folder_of_safe():
    for stage, arms in (("safe", "grpo,rehearsal,ewc,closed_loop"), ("both", "credit,credit_closed_loop")):
        first, second = _runs(stage, SEEDS="30")
        assert "run.experiment=evidence_pretrained.safe " in first
        assert f"protocol.skill_sequence=[write,repair,sql] arm={arms} run.name={ARM}.forward.{SEED}" in first
        assert f"protocol.skill_sequence=[sql,repair,write] arm={arms} run.name={ARM}.backward.{SEED}" in second


def test_tuning_runs_use_seeds_that_no_arm_uses_and_every_strength_gets_three_values():
    evidence = {seed for stage in ("credit", "safe", "both") for seed in STAGES[stage].seeds.split()}
    tuning = {seed for stage in ("rates", "tune") for seed in STAGES[stage].seeds.split()}
    assert not evidence & tuning
    assert len(_runs("tune")) == len(TUNED.split())
    assert all("optim.lr=1e-4,3e-4,1e-3" in run for run in _runs("rates"))


def test_general_exports_each_run_and_compares_all_with_the_start():
    exported, measured = dry("evidence_pretrained", "general", "outputs/a/grpo.s30")
    assert exported == "recipe.export outputs/a/grpo.s30 --out outputs/a/grpo.s30/model --platform cpu --prompts 0"
    assert measured.startswith(f"recipe.report perplexity --models {START} outputs/a/grpo.s30/model --text docs ")


def test_the_plan_names_arms_and_seeds_and_all_arms_have_files():
    plan = Path(ROOT, "docs/evidence/pretrained_plan.md").read_text()
    for stage in ("credit", "safe", "both"):
        assert STAGES[stage].arms.replace(" ", ", ") in plan
        arms = [arm for arm in STAGES[stage].arms.split() if arm != "grpo_more_samples"]
        assert all(Path(ROOT, f"configs/arm/{arm}.yaml").is_file() for arm in arms)
    assert "| seeds | 30 to 35 | 30 to 33, both orders: eight pairs |" in plan


def test_the_experiments_have_the_updates_and_samples_of_the_plan():
    credit, safe = composed("experiment=pretrained_credit"), composed("experiment=pretrained_safe")
    assert (credit.trainer.total_training_steps, list(credit.skills.names)) == (25, ["write", "word"])
    assert (safe.protocol.stage_steps, list(safe.skills.names)) == (8, ["write", "repair", "sql"])
    for config in (credit, safe):
        assert (config.data.train_batch_size, config.actor_rollout_ref.rollout.n) == (8, 8)
    assert (safe.actor_rollout_ref.rollout.val_kwargs.n, safe.protocol.val_n_of_others) == (4, 1)


def test_another_stage_order_or_arm_is_refused():
    for words, variables, message in (
        (["all"], {}, "unknown stage 'all'; valid ones: rates, credit, tune, safe, both, general"),
        (["safe"], {"ORDERS": "up"}, "unknown order 'up'"),
        (["tune"], {"ARMS": "grpo"}, "arm 'grpo' has no strength"),
        (["general"], {}, "general: name run directories"),
    ):
        named: dict[str, Any] = variables
        status, _, printed = study("evidence_pretrained", *words, **named)
        assert (status, message in printed) == (2, True)
