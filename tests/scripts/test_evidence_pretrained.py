"""The study of the evidence on a pretrained model: what its stages would run, in a dry run."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from data_prep.english.suite import parse_levels
from recipe.capacity.batch_rules import batch_refusals
from recipe.capacity.model_shape import ModelShape
from recipe.capacity.sizes import read_sizes
from recipe.records.run_directory import RunDirectory
from recipe.reports import bars
from recipe.runtime.options import PretrainedEvidenceOptions
from recipe.studies import pretrained_evidence
from recipe.studies.pretrained_evidence import (
    _CONTRASTS,
    MORE_SAMPLES,
    REACH,
    STAGES,
    TEXT_COMMIT,
    TUNED,
    TUNING,
    WINDOW,
    _measure_general,
)
from recipe.studies.steps import CommandFailed, Steps
from tests.composing import composed
from tests.scripts.test_papers import SEED, dry
from tests.studying import ROOT, of_module, search, study

START, CREDIT_START = (f"outputs/pretrained/{name}/model" for name in ("start", "start_credit"))
LR = "actor_rollout_ref.actor.optim.lr"
SMOLLM2 = ModelShape(576, 1536, 30, 9, 3, 64, 49152, 8192, tie_word_embeddings=True)


@pytest.fixture(autouse=True)
def _nothing_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever this checkout has made."""
    monkeypatch.setattr(Steps, "have", lambda *_: False)


@pytest.fixture
def tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    """A study whose tuning is done."""
    monkeypatch.setattr(pretrained_evidence, "GRPO_RATE", "3e-4")
    monkeypatch.setattr(
        pretrained_evidence, "TUNED_STRENGTHS", {"rehearsal": "0.1", "ewc": "10.0", "closed_loop": "0.3"}
    )


def _runs(stage: str, **variables: str) -> list[str]:
    return of_module(dry("evidence_pretrained", stage, **variables), "recipe.train")


def test_all_arms_of_a_seed_run_before_the_next_seed_at_one_rate_from_one_start(tuned: None):
    begin = f"recipe.train --multirun experiment=pretrained_credit run.experiment=evidence_pretrained.credit \
actor_rollout_ref.model.path={CREDIT_START} data.max_response_length=128 data.val_files=data/english_credit/val.parquet"
    more = "arm=grpo actor_rollout_ref.rollout.n=6"
    assert _runs("credit", SEEDS="30 31") == [
        f"{begin} data.seed={seed} {words} {LR}=3e-4 run.name={name}.{SEED}"
        for seed in ("30", "31")
        for words, name in (
            ("arm=grpo", "grpo"),
            ("arm=partial", "partial"),
            ("arm=credit", "credit"),
            ("arm=credit_shuffled", "credit_shuffled"),
            (more, "grpo_more_samples"),
        )
    ]


@pytest.mark.slow
def test_all_arms_of_the_skills_have_the_rate_of_their_start_and_their_own_strength(tuned: None):
    for stage in ("sequence", "tune", "safe", "both"):
        assert not any(LR in run for run in _runs(stage))
    assert composed("experiment=pretrained_safe").actor_rollout_ref.actor.optim.lr == 3e-4
    own = ("penalty.strength=0.1", "penalty.strength=10.0", "projection.gain=0.3")
    found = [[word for word in own if word in run] for run in _runs("safe", SEEDS="30") + _runs("both", SEEDS="30")]
    assert found == [[], [own[0]], [own[1]], [own[2]], [], [own[2]]]


def test_a_length_that_the_user_names_reaches_every_run():
    assert all(" data.max_response_length=96 " in run for run in _runs("credit", LENGTH="96"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "stage", [pytest.param(each, marks=pytest.mark.slow) if each != "credit" else each for each in STAGES]
)
def test_no_arm_of_a_stage_has_batches_that_preflight_refuses(stage: str):
    seen = set()
    for run in _runs(stage, SEEDS="30"):
        words = [
            word for word in run.split() if "=" in word and not word.startswith(("run.", "actor_rollout_ref.model"))
        ]
        words = [word.partition(",")[0] for word in words if not word.startswith("protocol.skill_sequence")]
        if (chosen := tuple(word for word in words if word.startswith(("experiment", "arm", "actor")))) not in seen:
            seen.add(chosen)
            assert batch_refusals(read_sizes(composed("platform=cpu", *words)), SMOLLM2) == [], chosen
    assert seen


def test_each_run_is_kept_when_it_ends_in_the_file_of_its_folder():
    for stage, title in (("rates", "rates"), ("safe", "safe"), ("both", "safe")):
        commands = dry("evidence_pretrained", stage, SEEDS="30", KEPT="kept")
        keeping = f"recipe.keep outputs/evidence_pretrained.{title} kept/{title}.jsonl.xz"
        trained = [place for place, one in enumerate(commands) if one.startswith("recipe.train ")]
        assert trained
        assert all(commands[place + 1] == keeping for place in trained)


def _finished(name: str) -> RunDirectory:
    run = RunDirectory.prepare("outputs", "evidence_pretrained.safe", name)
    (run.checkpoints / "global_step_24").mkdir()
    (run.checkpoints / "latest_checkpointed_iteration.txt").write_text("24")
    run.log_event("end")
    return run


def test_the_held_out_text_is_measured_under_each_run_that_has_ended_before_its_checkpoint_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    out, done = "outputs/evidence_pretrained.safe", []

    def module(self: Steps, *words: str) -> None:
        done.append(" ".join(words))
        if "ewc.backward.s30" in words[5]:
            raise CommandFailed("perplexity ended with status 1", 1)

    monkeypatch.setattr(Steps, "module", module)
    _finished("ewc.backward.s30")
    for name in ("ewc.forward.s30", "grpo.forward.s30"):
        _finished(name)
    RunDirectory.prepare("outputs", "evidence_pretrained.safe", "grpo.forward.s31")  # not finished
    shutil.rmtree(_finished("closed_loop.forward.s30").checkpoints)  # measured in an earlier start
    steps = Steps(PretrainedEvidenceOptions())
    _measure_general(steps, out, START)
    assert steps.failed == 1
    assert done == [
        f"recipe.report perplexity --models {START} --runs {out}/{name} --text data/held_out/docs --blocks 24"
        for name in ("ewc.backward.s30", "ewc.forward.s30", "grpo.forward.s30")
    ]
    kept = sorted(path.parent.name for path in Path(out).glob("*/checkpoints"))
    assert kept == ["ewc.backward.s30", "grpo.forward.s31"]  # not measured, not finished


def test_the_held_out_text_is_that_of_a_commit_and_tuning_runs_do_not_need_it(tuned: None):
    made = f"git archive --output data/held_out/docs.tar {TEXT_COMMIT} docs/how-to docs/tutorial.md"
    assert made in dry("evidence_pretrained", "safe", SEEDS="30")
    assert made not in dry("evidence_pretrained", "rates")


@pytest.mark.parametrize(
    ("stage", "words", "key"),
    [
        ("credit", (), LR),
        ("safe", (), "penalty.strength"),
        ("both", (), "projection.gain"),
    ],
)
def test_a_stage_whose_tuning_is_missing_stops_before_it_makes_anything(stage: str, words: tuple[str, ...], key: str):
    status, commands, printed = study("evidence_pretrained", stage, *words, dry=False, PYTHON="/nowhere/python")
    assert (status, commands) == (2, [])
    assert f"no {key} was chosen: run `rates`, then `tune`" in printed


def test_reports_say_which_arms_should_have_runs_and_which_lack_their_tuning(
    tuned: None, monkeypatch: pytest.MonkeyPatch
):
    def of(report: str) -> str:
        commands = dry("evidence_pretrained", "credit", SEEDS="30 31", ARMS="grpo credit")
        return next(one for one in commands if one.startswith(f"recipe.report {report} "))

    assert of("speed").endswith(f"--reach {REACH} --expect grpo credit --repeats s30 s31")
    monkeypatch.setattr(pretrained_evidence, "GRPO_RATE", "")
    assert of("online").endswith("--repeats s30 s31 --untuned grpo credit")


def test_skills_are_judged_by_the_bars_of_the_plan_and_both_against_each_alone(tuned: None):
    out = "outputs/evidence_pretrained.safe"
    expected = "--expect grpo rehearsal ewc closed_loop"
    repeats = "--repeats forward.s30 backward.s31"
    family = "--controls grpo rehearsal ewc --family grpo rehearsal ewc"
    reports = of_module(dry("evidence_pretrained", "safe", SEEDS="30 31"), "recipe.report")
    assert reports == [
        f"recipe.report skills {out} {expected} {repeats}",
        f"recipe.report bars {out} --blocks order {family} {expected} {repeats}",
        f"recipe.report general {out} {expected} {repeats}",
    ]
    expected += " credit credit_closed_loop"
    assert of_module(dry("evidence_pretrained", "both", SEEDS="30 31"), "recipe.report") == [
        f"recipe.report {words} {expected} {repeats}"
        for words in (
            f"skills {out}",
            f"skills {out} --against credit --out {out}/against_credit",
            f"skills {out} --against closed_loop --out {out}/against_closed_loop",
            f"general {out}",
        )
    ]


def test_bars_are_left_out_without_the_arm_that_they_judge(tuned: None):
    for stage, arms, judged in (("safe", "grpo ewc", 0), ("safe", "closed_loop", 1), ("both", "credit", 0)):
        reports = of_module(dry("evidence_pretrained", stage, SEEDS="30", ARMS=arms), "recipe.report")
        assert sum(" bars " in one for one in reports) == judged


@pytest.mark.parametrize(
    ("stage", "rows", "start"),
    [("credit", "data/english_credit", CREDIT_START), ("sequence", "data/english", START)],
)
def test_the_start_is_trained_on_the_rows_of_its_task_before_the_runs(tuned: None, stage: str, rows: str, start: str):
    order = ("data_prep.pretrained", "data_prep.english", "recipe.sft", "recipe.train")
    commands = dry("evidence_pretrained", stage, SEEDS="30", ARMS="grpo")
    places = [next(place for place, one in enumerate(commands) if one.startswith(word)) for word in order]
    assert places == sorted(places)
    assert f"train_files={rows}/sft_train.parquet " in commands[places[2]]
    assert f"claim outputs/evidence_pretrained.{stage} --model start={start}" in " ".join(commands)


@pytest.mark.parametrize(
    ("stage", "levels"),
    [
        ("rates", {"ledger": (1,)}),
        ("credit", {"ledger": (1,)}),
        ("tune", {"write": (1,), "repair": (1,), "sql": (1, 2)}),
        ("safe", {"write": (1,), "repair": (1,), "sql": (1, 2)}),
    ],
)
def test_the_rows_of_a_stage_have_levels_of_its_skills_alone(stage: str, levels: dict[str, tuple[int, ...]]):
    command = of_module(dry("evidence_pretrained", stage), "data_prep.english")[-1]
    skills = search(r"--skills ((?:\w+ ?)+)", command)[1].split()
    assert parse_levels(search(r"--levels (.*?) --", command)[1].split(), skills) == levels


@pytest.mark.slow
def test_orders_take_turns_over_seeds_and_both_joins_the_folder_of_safe():
    sequences = {"forward": "[write,repair,sql]", "backward": "[sql,repair,write]"}
    for stage, arms in (("safe", ("grpo", "closed_loop")), ("both", ("credit", "credit_closed_loop"))):
        for named, orders in (({}, [(30, "forward"), (31, "backward")]), (
            {"ORDERS": "backward forward"}, [(30, "backward"), (30, "forward"), (31, "backward"), (31, "forward")],
        )):  # fmt: skip
            runs = _runs(stage, SEEDS="30 31", ARMS=" ".join(arms), **named)
            assert all("run.experiment=evidence_pretrained.safe " in run for run in runs)
            assert all(" data.val_files=data/english_safe/test.parquet " in run for run in runs)
            assert [run.partition("data.seed=")[2] for run in runs] == [
                f"{seed} protocol.skill_sequence={sequences[order]} arm={arm} run.name={arm}.{order}.{SEED}"
                for seed, order in orders
                for arm in arms
            ]
    assert all(" data.val_files=data/english_safe/val.parquet " in run for run in _runs("tune"))


@pytest.mark.slow
def test_tuning_runs_use_seeds_that_no_arm_uses_and_every_strength_gets_three_values():
    evidence = {seed for stage in ("credit", "safe", "both") for seed in STAGES[stage].seeds.split()}
    tuning = {seed for stage in TUNING for seed in STAGES[stage].seeds.split()}
    assert not evidence & tuning
    runs = _runs("tune")
    assert len(runs) == 2 * len(TUNED.split())
    assert all(len(search(r"(?:strength|gain)=(\S+)", run)[1].split(",")) == 3 for run in runs)
    (more, _) = _runs("tune", ARMS="rehearsal", VALUES="0.03 3.0")
    assert " penalty.strength=0.03,3.0 " in more
    names = [run.partition("run.name=")[0].partition("data.seed=")[2] for run in _runs("rates")]
    assert names == [f"{seed} arm=grpo {LR}={rate} " for seed in ("100", "101") for rate in ("1e-4", "3e-4", "1e-3")]


def test_the_plan_names_arms_and_seeds_and_all_arms_have_files():
    plan = Path(ROOT, "docs/evidence/pretrained_plan.md").read_text()
    for stage in ("credit", "safe", "both"):
        assert STAGES[stage].arms.replace(" ", ", ") in plan
        arms = [arm for arm in STAGES[stage].arms.split() if arm != "grpo_more_samples"]
        assert all(Path(ROOT, f"configs/arm/{arm}.yaml").is_file() for arm in arms)
    assert "| seeds | 30 to 35 | 30 to 37, forward and backward in turn: eight blocks |" in plan


@pytest.mark.slow
def test_the_plan_states_the_values_that_the_study_and_its_reports_use():
    plan = Path(ROOT, "docs/evidence/pretrained_plan.md").read_text()
    runs = "\n".join(_runs("tune"))
    tried = {arm: search(rf"arm={arm} [\w.]+=(\S+)", runs)[1].split(",") for arm in TUNED.split()}
    values = {arm: [f"{float(value):g}" for value in found] for arm, found in tried.items()}
    assert values == {
        "rehearsal": ["1", "3", "10"],
        "ewc": ["10000", "100000", "1e+06"],
        "closed_loop": ["0.1", "0.3", "1"],
    }
    for stated in (
        f"until the samples reach {float(REACH):.0%} (mean of {WINDOW} updates",
        f"grpo_more_samples draws {MORE_SAMPLES} samples per prompt",
        "rehearsal (1, 3, 10), closed_loop (0.1, 0.3, 1) and ewc (1e4, 1e5, 1e6: 1e3 protected nothing",
        f"commit {TEXT_COMMIT[:8]}",
        f"forgetting at most {100 * bars.FORGOTTEN:g} points, upper end at most {100 * bars.FORGOTTEN_HIGH:g}; "
        f"new skill minus grpo, lower end above {100 * bars.BEHIND:g}",
        f"at most {bars.UNDONE:.0%} of steps undone",
    ):
        assert stated in plan, stated
    for arm, against in (pair.split(":") for pair in _CONTRASTS):
        assert f"{arm} - {against}" in plan
    (command,) = re.findall(r"^python -m recipe\.train (.*?)^```", plan, re.MULTILINE | re.DOTALL)
    words = command.replace("\\\n", " ").replace("=RATE", "=1e-3").split()
    config = composed(*words)
    assert (config.run.name, config.data.seed, config.actor_rollout_ref.model.path) == ("credit.s30", 30, CREDIT_START)


@pytest.mark.slow
def test_the_experiments_have_the_updates_and_samples_of_the_plan():
    credit, safe = composed("experiment=pretrained_credit"), composed("experiment=pretrained_safe")
    assert (credit.trainer.total_training_steps, list(credit.skills.names)) == (100, ["ledger"])
    assert (safe.protocol.stage_steps, list(safe.skills.names)) == (8, ["write", "repair", "sql"])
    for config, prompts, samples in ((credit, 2, 4), (safe, 8, 8)):
        assert (config.data.train_batch_size, config.actor_rollout_ref.rollout.n) == (prompts, samples)
    assert (safe.actor_rollout_ref.rollout.val_kwargs.n, safe.protocol.val_n_of_others) == (2, 1)
    assert list(credit.actor_rollout_ref.actor.optim.betas) == [0.9, 0.95]


def test_the_memory_of_each_arm_is_planned_before_the_start_is_trained(tuned: None):
    commands = dry("evidence_pretrained", "credit", SEEDS="30", ARMS="credit grpo_more_samples")
    planned = [place for place, one in enumerate(commands) if "memory" in one and "--supervised" not in one]
    assert [commands[place].partition("length=128 ")[2] for place in planned] == [
        "experiment=pretrained_credit arm=credit",
        "experiment=pretrained_credit arm=grpo actor_rollout_ref.rollout.n=6",
    ]
    assert planned[-1] < next(place for place, one in enumerate(commands) if one.startswith("recipe.sft "))


def test_grpo_runs_in_sequence_on_the_tuning_seeds_before_strengths_are_tuned():
    runs = _runs("sequence")
    assert [run.partition("data.seed=")[2].partition(" ")[0] for run in runs] == ["100", "101"]
    assert all(" arm=grpo " in run and "english_safe/val.parquet" in run for run in runs)


@pytest.mark.slow
def test_another_stage_order_or_arm_is_refused():
    for words, variables, message in (
        (["all"], {}, "unknown stage 'all'; valid ones: rates, credit, sequence, tune, safe, both"),
        (["safe"], {"ORDERS": "up"}, "unknown order 'up'"),
        (["tune"], {"ARMS": "grpo"}, "arm 'grpo' has no strength"),
        (["safe"], {"VALUES": "0.03"}, "VALUES=0.03 are strengths that the stage tune tries: unset VALUES"),
        (["tune"], {"VALUES": "0.03"}, "VALUES=0.03 are strengths of one arm: name it, such as ARMS=rehearsal"),
        (["credit"], {"KEPT": "runs.jsonl.xz"}, "name a folder, which gets one file per stage"),
    ):
        named: dict[str, Any] = variables
        status, _, printed = study("evidence_pretrained", *words, **named)
        assert (status, message in printed) == (2, True)
