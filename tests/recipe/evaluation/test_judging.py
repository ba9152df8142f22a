"""Every command that verifies answers uses the experiment's settings, and its run_info.json records them."""

import json
from dataclasses import dataclass
from pathlib import Path

import hydra
import pytest
from omegaconf import OmegaConf

import recipe.dpo
import rewards
from data_prep import proving
from data_prep.files import file_hash
from data_prep.sources import bugs, gsm8k
from data_prep.tasks import write_task_rows
from recipe import evaluate, preflight, probe
from recipe.checks import reward
from recipe.evaluation.folder import EvaluationFolder, FolderError
from recipe.evaluation.verified import read_judged
from recipe.records.run_directory import RunDirectory
from recipe.sft import verified_files
from rewards import setting_names
from rewards.sandbox import CaseResult, CheckResult
from rewards.settings import REWARD_KWARGS, JudgeSettings, experiments
from tests.composing import composed
from tests.data_prep.all_sources import SOURCES
from tests.models import make_model
from tests.recipe.evaluation.conftest import task
from tests.recipe.evaluation.openai_server import Behaviour, serving
from tests.recipe.evaluation.test_verified import sample

pytestmark = pytest.mark.slow  # with HTTP servers; each composes a configuration

CODE_GRPO = JudgeSettings(timeout=30.0, memory_mb=1024)
QUICKSTART = JudgeSettings(partial_credit=False)


@dataclass
class Command:
    """A command's main function, its arguments other than `--out` and `--experiment`, and the module that verifies."""

    main: object
    arguments: list[str]
    module: object


@pytest.fixture
def commands(tmp_path, data):
    with serving(Behaviour()) as url:
        asked = ["--data", f"own={data}", "--url", url]
        yield {
            "evaluate": Command(evaluate.main, asked, rewards),
            "samples": Command(evaluate.main, [*asked, "--sampling", "eval@k", "--samples", "2"], rewards),
            "probe": Command(probe.main, [*asked, "--samples", "2"], rewards),
            "data_prep": Command(gsm8k.main, SOURCES["gsm8k"].arguments(tmp_path), proving),
        }


@pytest.mark.parametrize("command", ["evaluate", "samples", "probe", "data_prep"])
@pytest.mark.parametrize(
    ("name", "settings"), [(None, JudgeSettings()), ("code_grpo", CODE_GRPO), ("quickstart", QUICKSTART)]
)
def test_a_command_judges_and_records_what_training_would(commands, command, name, settings, tmp_path, monkeypatch):
    seen = []
    working = rewards.compute_score

    async def spied(source, answer, truth, extra_info=None, **given):
        seen.append(JudgeSettings(**given))
        return await working(source, answer, truth, extra_info, **given)

    chosen = commands[command]
    monkeypatch.setattr(chosen.module, "compute_score", spied)
    named = ["--experiment", name] if name else []
    assert chosen.main([*chosen.arguments, "--out", str(tmp_path / "out"), *named]) == 0
    assert seen
    assert set(seen) == {settings}
    info = json.loads((tmp_path / "out/run_info.json").read_text())
    assert info["experiment"] == name
    assert info.get("settings", info)["judge"] == settings.record()
    overrides = [f"experiment={name}"] if name else []
    assert JudgeSettings.of_config(composed(*overrides)) == settings


@pytest.mark.parametrize("command", ["evaluate", "probe", "data_prep"])
def test_an_experiment_that_is_none_is_refused_with_the_valid_ones(commands, command, tmp_path, capsys):
    chosen = commands[command]
    arguments = [*chosen.arguments, "--out", str(tmp_path / "out"), "--experiment", "code_grp"]
    assert chosen.main(arguments) in (1, 2)
    assert "--experiment: no experiment 'code_grp'; valid ones: code_grpo, countdown, " in capsys.readouterr().err


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_refuses_an_experiment_that_is_none_before_it_makes_anything(name, tmp_path, capsys):
    (tmp_path / "programs").mkdir()
    given = SOURCES[name].arguments(tmp_path)
    assert SOURCES[name].main([*given, "--out", str(tmp_path / "out"), "--experiment", "code_grp"]) == 1
    assert "--experiment: no experiment 'code_grp'; valid ones: code_grpo, " in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("reward: {custom_reward_function: {reward_kwargs: {timeout: soon}}}", "timeout: 'soon' is not a number of"),
        ("reward: {custom_reward_function: {reward_kwargs: {tmeout: 3}}}", "unknown reward setting 'tmeout'"),
        (
            "reward: {custom_reward_function: {reward_kwargs: {timeout: '${no.such}'}}}",
            "Interpolation key 'no.such' not found",
        ),
        ("defaults: [/no_group: none_such]", "experiment 'own': "),
    ],
)
def test_an_experiment_of_the_users_own_that_cannot_be_is_refused(text, message, data, tmp_path, capsys, monkeypatch):
    folder = tmp_path / "own_configs"
    (folder / "experiment").mkdir(parents=True)
    (folder / "experiment/own.yaml").write_text(f"# @package _global_\nrun: {{experiment: own}}\n{text}\n")
    composing = hydra.compose
    found = f"hydra.searchpath=[file://{folder},pkg://verl.trainer.config]"
    monkeypatch.setattr("rewards.settings.experiments", lambda: ["own"])
    monkeypatch.setattr(hydra, "compose", lambda name, words: composing(name, [*words, found]))
    arguments = ["--data", f"own={data}", "--url", "http://127.0.0.1:1", "--out", str(tmp_path / "out")]
    assert evaluate.main([*arguments, "--experiment", "own"]) == 2
    assert message in capsys.readouterr().err.splitlines()[0]


@pytest.mark.parametrize("main", [evaluate.main, probe.main])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("partal_credit=false", "unknown setting 'partal_credit'; valid ones: partial_credit, hidden_tests, timeout, "),
        ("timeout=soon", "reward setting timeout: 'soon' is not a number of seconds above 0"),
        ("timeout", "reward setting timeout: None is not a number of seconds above 0"),
        ("refuse=length", "reward setting refuse: 'length' is not a list"),
        ("refuse=[length", "--judge refuse=[length: the value is not YAML"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_in_one_line(main, text, message, data, tmp_path, capsys):
    arguments = ["--data", f"own={data}", "--url", "http://127.0.0.1:1", "--out", str(tmp_path / "out")]
    assert main([*arguments, "--judge", text]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_single_settings_come_before_those_of_the_experiment(commands, tmp_path):
    chosen = commands["evaluate"]
    more = ["--judge", "shape=complicated", "--experiment", "code_grpo", "--judge", "memory_mb=2048"]
    assert chosen.main([*chosen.arguments, "--out", str(tmp_path / "out"), *more]) == 0
    recorded = EvaluationFolder(tmp_path / "out").run_info["settings"]["judge"]
    assert recorded == JudgeSettings(timeout=30.0, memory_mb=2048, shape="complicated").record()


@pytest.mark.parametrize("name", experiments())
def test_every_experiment_has_settings_that_are_valid(name):
    assert JudgeSettings.of_experiment(name) == JudgeSettings.of_config(composed(f"experiment={name}"))


def test_every_setting_can_be_given_without_a_plus(tmp_path):
    values = JudgeSettings(timeout=7, shape="complicated", countdown_format=0.05).record()
    assert values.keys() == set(setting_names())
    overrides = [f"{REWARD_KWARGS}.{name}={json.dumps(value)}" for name, value in values.items()]
    config = preflight.compose_training(["experiment=quickstart", *overrides])
    assert JudgeSettings.of_config(config).record() == values
    run = RunDirectory(tmp_path)
    assert reward.check_settings(config, run) == []
    run.write_config(config)
    assert JudgeSettings.of_config(run.read_config()).record() == values


def evaluated(folder: Path, judge: JudgeSettings, name: str | None = None) -> Path:
    EvaluationFolder(folder).begin({"judge": judge.record(), "data": {}, "limit": None}, {}, {}, name)
    return folder


def test_data_made_of_samples_say_how_these_were_judged(tmp_path):
    folders = [evaluated(tmp_path / name, CODE_GRPO, "code_grpo") for name in ("a", "b")]
    judged = read_judged(folders)
    judged.write(tmp_path / "out")
    assert json.loads((tmp_path / "out/run_info.json").read_text()) == {
        "evaluations": [str(folder) for folder in folders],
        "experiment": "code_grpo",
        "judge": CODE_GRPO.record(),
    }


def test_an_evaluation_continues_with_the_same_settings_only_and_names_the_other_ones(tmp_path):
    folder = evaluated(tmp_path / "a", JudgeSettings())
    with pytest.raises(FolderError) as refused:
        evaluated(folder, CODE_GRPO)
    assert str(refused.value) == (
        f"{folder} holds an evaluation with another judge.timeout (10.0 there, 30.0 now); choose another --out"
    )
    evaluated(folder, JudgeSettings())


def test_samples_that_were_judged_with_other_limits_are_not_put_together(tmp_path):
    folders = [evaluated(tmp_path / "a", CODE_GRPO), evaluated(tmp_path / "b", JudgeSettings())]
    with pytest.raises(FolderError, match=r"judged with different timeout \(30.0 and 10.0\): evaluate with the same"):
        read_judged(folders)


def test_a_report_judges_as_the_samples_were_judged_unless_it_names_an_experiment(tmp_path):
    own = JudgeSettings(timeout=30.0, forbidden_imports=["gc"], sandbox_url=["http://a", "http://b"])
    judged = read_judged([evaluated(tmp_path / "a", own, "code_grpo")])
    parser = evaluate.parser("evaluate", None)
    needed = ["--data", "x", "--out", "y"]
    for more, expected in [([], own), (["--judge", "memory_mb=64"], JudgeSettings(**own.record() | {"memory_mb": 64}))]:
        options = parser.parse_args([*needed, *judged.options(more)])
        assert evaluate.judge_settings(options.experiment, options.judge) == expected
    for words in (["--experiment", "quickstart"], ["--experiment=quickstart"]):
        options = parser.parse_args([*needed, *judged.options(words)])
        assert evaluate.judge_settings(options.experiment, options.judge) == QUICKSTART


def test_a_proof_that_was_interrupted_is_not_continued_with_other_limits(tmp_path):
    journal = tmp_path / "proved.jsonl"
    one = task(1, solution="#### 1")
    assert proving.prove([one], journal, JudgeSettings()) == ["none"]
    known = json.loads(journal.read_text().splitlines()[-1])
    journal.write_text(json.dumps(known | {"error": "timeout"}) + "\n")
    assert proving.prove([one], journal, JudgeSettings()) == ["timeout"]
    assert proving.prove([one], journal, CODE_GRPO) == ["none"]


def test_a_changed_program_fails_within_the_limits_that_judge_answers_to_it(monkeypatch, tmp_path):
    asked = []

    class Recorder:
        async def check(self, program, cases, **limits):
            asked.append((limits["timeout"], limits["memory_mb"], limits["total_timeout"]))
            return CheckResult([CaseResult("wrong_answer")])

    monkeypatch.setattr(bugs, "sandbox_at", lambda url, isolation: Recorder())
    one = task(1, verifier="code", solution="def f(a):\n    return a < 2", ground_truth={"tests": ["assert f(1)"]})
    (made,) = bugs.drafts([one], CODE_GRPO, per_program=1, seed=0)
    assert isinstance(made, dict)
    assert "It fails this test" in made["prompt"]
    assert asked == [(30.0, 1024, 60.0)]


def test_rejection_sampling_and_pairs_leave_how_their_samples_were_judged(tmp_path, monkeypatch):
    tasks = [task(number, role="train") for number in range(40)]
    data = tmp_path / "own.parquet"
    write_task_rows(data, tasks)
    folder = EvaluationFolder(tmp_path / "evaluation")
    settings = {"judge": CODE_GRPO.record(), "data": {"own": file_hash(data)}, "limit": None}
    journal = folder.begin(settings, {}, {"own": str(data)}, "code_grpo")
    for one in tasks:
        journal.add(sample(one.id, 0, f"x = {one.id}", 1.0))
        journal.add(sample(one.id, 1, "y", 0.0))
    asked = {"evaluations": [str(folder.path)], "per_problem": 1, "held_out_percent": 30}
    verified_files(OmegaConf.create({"verified": asked}), tmp_path / "sft")
    monkeypatch.setattr(recipe.dpo, "PYTHON", tmp_path)
    model = make_model(tmp_path / "m")
    arguments = ["--model", str(model), "--evaluations", str(folder.path), "--out", str(tmp_path / "dpo")]
    _, judged = recipe.dpo.prepare(recipe.dpo._arguments(arguments))
    assert judged.judge == CODE_GRPO.record()
    for out in ("sft", "dpo"):
        info = json.loads((tmp_path / out / "run_info.json").read_text())
        assert (info["experiment"], info["judge"]) == ("code_grpo", CODE_GRPO.record())
