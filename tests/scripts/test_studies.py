"""Launchers of the studies: the commands that they would run, their order, and refusals."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from recipe.records.run_directory import RunDirectory
from recipe.runtime.options import CreditOptions, GraphOptions
from recipe.settings import read_settings
from recipe.studies import npg_muse
from recipe.studies.steps import CommandFailed, Steps
from tests.composing import composed
from tests.studying import ROOT, of_module, script, search, study, taken


@pytest.mark.slow
def test_the_coding_pipeline_hands_each_stage_the_model_of_the_one_before(tmp_path):
    status, commands, printed = study("coding.all", "start", OUT=f"{tmp_path}/o", DATA="d")
    assert status == 0, printed
    out = f"{tmp_path}/o"
    samples = [command for command in of_module(commands, "recipe.evaluate") if "eval@k" in command]
    assert [search(r"--model (\S+)", one)[1] for one in samples] == [f"{out}/phase0/model", f"{out}/phase1/model"]
    assert all("train=d/train.parquet" in command for command in samples)
    assert f"verified.evaluations=[{out}/phase1/samples]" in of_module(commands, "recipe.sft")[0]
    assert f"--evaluations {out}/phase2/samples" in of_module(commands, "recipe.dpo")[0]
    grpo, repair = of_module(commands, "recipe.train")
    assert "data.val_files=d/dev.parquet" in grpo
    assert f"model.path={out}/phase3/model" in repair
    (table,) = of_module(commands, "recipe.report choose")
    beside = ["--beside", f"{out}/phase4/before", f"{out}/phase4/repair"]
    assert table.split()[2:] == [f"{out}/phase{number}/dev" for number in range(5)] + beside
    tested = [
        search(r"--model (\S+)", one)[1] for one in commands if "test=d/test.parquet" in one and "recipe.ev" in one
    ]
    assert tested == [f"{out}/phase0/model", f"{out}/phase3/model"]  # and nothing is chosen by it
    (compared,) = [one for one in of_module(commands, "recipe.report compare") if "phase0/test" in one]
    assert compared.split()[2:4] == [f"{out}/phase0/test", f"{out}/phase3/test"]


@pytest.mark.slow
def test_dense_and_sparse_rewards_are_a_multirun_of_seeds_each_and_all_models_are_compared(tmp_path):
    out = f"{tmp_path}/mine"
    status, commands, printed = study("coding.ablate_rewards", OUT=out, DATA="d", SEEDS="3 4", PLATFORM="gpu_1x8")
    assert status == 0, printed
    runs = of_module(commands, "recipe.train")
    assert [search(r"run.name=(\S+)", run)[1] for run in runs] == ["dense.s${data.seed}", "sparse.s${data.seed}"]
    for run, credit in zip(runs, ("true", "false"), strict=True):
        words = run.split()
        assert words[1] == "--multirun"
        assert {f"actor_rollout_ref.model.path={out}/phase1/model", "data.seed=3,4", "platform=gpu_1x8"} <= set(words)
        config = composed(*words[2:-1], "data.seed=3")
        assert config.reward.custom_reward_function.reward_kwargs.partial_credit is (credit == "true")
    names = [f"outputs/mine_rewards/{reward}.s{seed}" for reward in ("dense", "sparse") for seed in "34"]
    assert [one.split()[1] for one in of_module(commands, "recipe.export")] == names
    assert of_module(commands, "recipe.report") == [
        f"recipe.report choose {' '.join(f'{run}/dev' for run in names)}", "recipe.report speed outputs/mine_rewards"
    ]  # fmt: skip


def test_the_supervised_start_of_graph_tasks_learns_accepted_answers_of_a_teacher():
    status, commands, printed = study("npg_muse.sft", "60", "a", "b", TEACHER="big", LENGTH="99", SFT="optim.lr=1e-6")
    assert status == 0, printed
    names = [npg_muse.name_of(model) for model in ("a", "b")]
    samples = f"outputs/npg_muse/samples_{npg_muse.name_of('big')}_60"
    trained = of_module(commands, "recipe.sft")
    for name, model, one in zip(names, "ab", trained, strict=True):
        folder = f"outputs/npg_muse/sft_{name}_60"
        words = {f"model.path={model}", f"verified.evaluations=[{samples}]", f"trainer.default_local_dir={folder}/sft"}
        assert words | {"data.max_length=5099", "optim.lr=1e-6"} <= set(one.split())
        assert f"mv -T {folder}/model.partial {folder}/model" in commands
    asked = [search(r"--model (\S+) .*--data (\w+)", one).groups() for one in of_module(commands, "recipe.evaluate")]
    assert asked[:3] == [("big", "train"), ("a", "dev"), (f"outputs/npg_muse/sft_{names[0]}_60/model", "dev")]
    assert all("--seed 1" in one for one in of_module(commands, "data_prep.graphs"))
    assert "wanted: VOLUME [models ...]" in study("npg_muse.sft")[2]
    assert "no model named" in study("npg_muse.sft", "60")[2]


@pytest.mark.slow
@pytest.mark.parametrize("opened", [False, True])
def test_prompts_and_judge_go_by_who_writes_the_opening_tag(tmp_path, tiny_suite, opened):
    shutil.copytree(tiny_suite / "initial_model", model := tmp_path / "m")
    template = (model / "chat_template.jinja").read_text()
    (model / "chat_template.jinja").write_text(template + "{{ '<think>\\n' }}" * opened)
    status, commands, printed = study("npg_muse.mixed", str(model), "binary_format", "755")
    assert status == 0, printed
    made = of_module(commands, "data_prep.graphs")
    assert all(("--think-opener template" in one, "755_opened/level" in one) == (opened, opened) for one in made)
    (train,) = of_module(commands, "recipe.train")
    assert ("reward_kwargs.think_opener=template" in train, "755_opened/level1/train" in train) == (opened, opened)
    (dev,) = of_module(commands, "recipe.evaluate")
    assert ("--judge think_opener=template" in dev) == opened


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "variables", "experiment"),
    [
        (("coding.all", "start"), {"DATA": "d"}, "code_grpo"),
        (("coding.all", "start"), {"DATA": "d", "EXPERIMENT": "quickstart"}, "quickstart"),
        (("task", "countdown", "start"), {"FOLDER": "none", "SOURCE": "countdown"}, "countdown"),
        (("task", "gsm8k", "start"), {"FOLDER": "none"}, "gsm8k"),
        (("npg_muse.mixed", "start", "binary", "751"), {}, "npg_muse"),
        (("npg_muse.evaluate", "start", "o"), {"WHAT": "in_task cross_task"}, "npg_muse"),
    ],
)
def test_all_that_judges_in_a_study_takes_the_settings_of_its_experiment(tmp_path, words, variables, experiment):
    status, commands, printed = study(*words, **taken(words[0], OUT=f"{tmp_path}/o") | variables)
    assert status == 0, printed
    sources = ("data_prep.sources.countdown", "data_prep.sources.gsm8k", "data_prep.graphs")
    judging = [found for name in ("recipe.evaluate", "recipe.probe", *sources) for found in of_module(commands, name)]
    assert judging
    assert all(f"--experiment {experiment} " in f"{command} " for command in judging)
    assert all(f"experiment={experiment} " in command for command in of_module(commands, "recipe.train"))


def test_a_name_that_the_shell_sets_does_not_stop_a_study_without_one():
    assert CreditOptions.of({"NAME": "computer"}) == CreditOptions()


@pytest.mark.parametrize("option", ["EXPERIMENT", "SEEDS", "KEPT"])
def test_an_option_of_another_study_is_refused_before_any_step(option: str):
    set_: dict[str, Any] = {option: "0"}
    status, commands, printed = study("task", "gsm8k", "start", **set_)
    assert (status, commands) == (2, [])
    assert f"stopped: {option} is an option of other studies: unset {option}. Options here: PLATFORM" in printed
    assert "SOURCE, SOURCE_OPTIONS, FOLDER, NAME, PRESET\n" in printed


@pytest.mark.slow
def test_repair_is_trained_and_evaluated_in_turns_on_rows_for_agents_and_its_model_in_one_turn_too(tmp_path):
    status, commands, printed = study(
        "coding.phase4_repair", OUT=f"{tmp_path}/o", DATA="d", AGENTS="micro", REPAIR="data.seed=3"
    )
    assert status == 0, printed
    rows = f"{tmp_path}/o/phase4/rows"
    assert of_module(commands, "data_prep.sources.agents") == [
        f"data_prep.sources.agents d/{split}.parquet --out {rows}/{split}.parquet" for split in ("train", "dev")
    ]
    (train,) = of_module(commands, "recipe.train")
    words = (f"data.train_files={rows}/train.parquet", f"data.val_files={rows}/dev.parquet", "agents=micro")
    assert all(word in train.split() for word in (*words, "data.seed=3"))
    found = {command.split(" --out ")[1].split()[0]: command for command in of_module(commands, "recipe.evaluate")}
    in_turns = {path.removeprefix(f"{tmp_path}/o/phase4/"): "--agents micro" in one for path, one in found.items()}
    assert in_turns == {"before": True, "dev": False, "repair": True}


def test_phases_can_be_left_out(tmp_path):
    _, commands, _ = study("coding.all", "start", OUT=f"{tmp_path}/o", WITHOUT="2 4")
    (table,) = of_module(commands, "recipe.report choose")
    assert table.split()[2:] == [f"{tmp_path}/o/phase{number}/dev" for number in (0, 1, 3)]
    assert of_module(commands, "recipe.dpo") == of_module(commands, "data_prep.sources.agents") == []


@pytest.mark.parametrize(
    ("stage", "missing", "first"),
    [
        ("phase1_sft", "phase0/model", "phase0_baseline.sh MODEL"),
        ("phase2_dpo", "phase1/model", "phase1_sft.sh"),
        ("phase3_grpo", "phase1/model", "phase1_sft.sh"),
        ("phase4_repair", "phase3/model", "phase3_grpo.sh"),
    ],
)
def test_a_stage_without_the_one_before_says_what_is_missing(tmp_path, stage, missing, first):
    status, commands, printed = study(f"coding.{stage}", dry=False, OUT=str(tmp_path))
    assert (status, commands) == (2, [])
    assert f"stopped: no {tmp_path}/{missing}; first bash scripts/coding/{first}" in printed


@pytest.mark.parametrize(
    ("task", "module"), [("countdown", "data_prep.sources.countdown_tasks"), ("gsm8k", "data_prep.sources.gsm8k")]
)
def test_a_study_probes_trains_and_compares(task, module, tmp_path):
    status, commands, printed = study("task", task, "m", PLATFORM="gpu_1x8", NAME="dry")
    assert status == 0, printed
    (train,) = of_module(commands, "recipe.train")
    assert f"experiment={task} platform=gpu_1x8 actor_rollout_ref.model.path=m" in train
    assert "adaptation=full" in train
    assert f"model_preset={'qwen3_4b' if task == 'countdown' else 'qwen2_5_3b'} " in train
    assert "--samples 16" in of_module(commands, "recipe.probe")[0]
    assert of_module(commands, "recipe.report compare") == [
        f"recipe.report compare outputs/{task}/base outputs/{task}/trained"
    ]
    assert len(of_module(commands, "recipe.export")) == 1


def test_the_smoke_of_both_studies_generates_little_data_apart_from_the_real_ones():
    status, commands, printed = study("smoke", NAME="dry")
    assert status == 0, printed
    assert of_module(commands, "data_prep.sources.countdown") == [
        "data_prep.sources.countdown --out data/countdown_dry --experiment countdown --limit 640"
    ]
    assert of_module(commands, "data_prep.sources.arithmetic") == [
        "data_prep.sources.arithmetic --out data/gsm8k_dry --experiment gsm8k --limit 640"
    ]
    runs = of_module(commands, "recipe.train")
    assert [search(r"data.train_files=(\S+)", run)[1] for run in runs] == [
        f"data/{task}_dry/train.parquet" for task in ("countdown", "gsm8k")
    ]
    assert all("model_preset" not in run for run in runs)  # presets set parallel sizes for GPUs


@pytest.mark.slow
def test_the_curriculum_is_one_run_through_the_levels():
    status, commands, printed = study("npg_muse.curriculum", "m", "complicated", "45000", PLATFORM="gpu_1x8")
    assert status == 0, printed
    (run,) = of_module(commands, "recipe.train")
    assert re.findall(r"45000/level(\d)/train.parquet", run) == list("12345")
    assert "kwargs.shape=complicated" in run
    assert "ulysses_sequence_parallel_size=4" in run
    assert "total_training_steps" not in run
    words = shlex.split(run)[1:]
    settings = read_settings(composed(*words, "run.root=outputs"))
    assert settings.stages == [[f"level{level}"] for level in range(1, 6)]
    assert settings.protocol.stage_steps == 45_000 // 5 // 128
    assert composed(*words).trainer.test_freq == settings.protocol.stage_steps
    assert len(of_module(commands, "recipe.export")) == 1


def test_the_smoke_setting_has_five_steps_on_all_levels_and_memory_is_one_variable_each():
    _, commands, _ = study(
        "npg_muse.mixed", "m", "binary", "750", PLATFORM="gpu_1x8", SEQUENCE_PARALLEL="8", OFFLOAD_REF="true"
    )
    (train,) = of_module(commands, "recipe.train")
    assert train.count("/train.parquet") == 5
    assert all(
        word in train
        for word in ("total_training_steps=5", "ulysses_sequence_parallel_size=8", "ref.fsdp_config.param_offload=true")
    )


@pytest.mark.slow
def test_the_ablation_goes_through_the_steps_of_the_study():
    status, commands, printed = study("npg_muse.train_ablation", "m", VOLUMES="750")
    assert status == 0, printed
    assert re.findall(r"^step (\d)", printed, re.MULTILINE) == list("12345")
    shapes = [search(r"shape=(\w+)", one)[1] for one in of_module(commands, "recipe.train")]
    assert set(shapes) == {
        "binary", "binary_format", "binary_format_repeat", "ratio_quality_format_repeat", "complicated"
    }  # fmt: skip
    (table,) = of_module(commands, "recipe.report choose")
    assert len(set(table.split()[2:])) == len(table.split()[2:]) == 6  # five rewards, and the curriculum


@pytest.mark.slow
def test_the_fifth_step_trains_the_other_models_with_what_was_chosen():
    status, commands, printed = study("npg_muse.train_ablation", "m", "other", VOLUMES="750")
    assert status == 0, printed
    last = of_module(commands, "recipe.train")[-1]
    assert "model.path=other " in last
    assert re.search(r"run.name=mixed_other_[0-9a-f]{6}_binary_750 ", last)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "chosen", "trained"),
    [
        (("choose_data_volume", "m"), "45000", ["mixed_M_binary_45000", "mixed_M_binary_60000"]),
        (
            ("compare_curriculum", "m", "binary", "750"),
            "mixed",
            ["mixed_M_binary_750", "curriculum_M_binary_750"],
        ),
        (("ablate_rewards", "m", "mixed", "750"), "binary", ["mixed_M_binary_750", "mixed_M_binary_format_750"]),
    ],
)
def test_each_step_is_a_command_that_prints_what_it_chose(words, chosen, trained):
    status, commands, printed = study(f"npg_muse.{words[0]}", *words[1:], VOLUMES="45000 60000")
    assert status == 0, printed
    assert printed.splitlines()[0] == chosen  # standard output has nothing else
    runs = [search(r"run.name=(\S+)", one)[1] for one in of_module(commands, "recipe.train")]
    assert [re.sub(r"m_[0-9a-f]{6}", "M", run) for run in runs[:2]] == trained


def test_the_best_setting_is_that_of_the_best_evaluation(tmp_path):
    """`best` calls recipe.report choose, here a stand-in that chooses the second folder."""
    choose = tmp_path / "python"
    choose.write_text("#!/bin/sh\necho $5\n")
    choose.chmod(0o755)
    steps = Steps(GraphOptions(python=str(choose), experiment="npg_muse"))
    settings = [npg_muse.StudySetting(order, "m", "binary", "750") for order in ("mixed", "curriculum")]
    assert npg_muse.best(steps, settings) == settings[1]


def test_where_there_is_room_runs_are_parallel_ray_jobs_and_their_data_are_made_before():
    status, commands, printed = study(
        "npg_muse.choose_data_volume", "m", VOLUMES="7501 9001", JOBS="2", PLATFORM="gpu_ray"
    )
    assert status == 0, printed
    assert len(of_module(commands, "data_prep.graphs")) == 10
    assert of_module(commands, "recipe.train") == []  # the jobs run it
    jobs = [command for command in commands if "ray_submit" in command]
    assert sorted(jobs) == [
        f"bash scripts/ray_submit.sh scripts/npg_muse/mixed.sh m binary {volume}" for volume in ("7501", "9001")
    ]


def test_on_a_ray_cluster_what_starts_vllm_runs_where_a_gpu_is_free():
    _, commands, _ = study("task", "countdown", "m", PLATFORM="gpu_ray")
    elsewhere = [command.split() for command in of_module(commands, "recipe.cluster")]
    every = {words[words.index("-m") + 1]: "--all-gpus" in words for words in elsewhere}
    assert every == {"recipe.probe": True, "recipe.export": False, "recipe.evaluate": True}
    assert len(elsewhere) == 4
    assert len(of_module(commands, "recipe.train")) == 1


@pytest.mark.slow
@pytest.mark.parametrize("thinking", ["on", "off"])
def test_training_probe_and_evaluations_think_alike(tmp_path, thinking):
    status, commands, printed = study("task", "countdown", "m", THINKING=thinking, FOLDER="none", SOURCE="countdown")
    assert status == 0, printed
    (train,) = of_module(commands, "recipe.train")
    template = composed(*shlex.split(train)[1:]).data.apply_chat_template_kwargs
    assert template == {"enable_thinking": thinking == "on"}
    asked = [*of_module(commands, "recipe.probe"), *of_module(commands, "recipe.evaluate")]
    assert len(asked) == 3
    assert all(f" --thinking {thinking}" in one for one in asked)
    assert "unknown THINKING 'yes'; valid ones: on, off" in study("smoke", THINKING="yes")[2]


def test_an_evaluation_of_the_study_has_three_groups():
    status, commands, printed = study("npg_muse.evaluate", "m", "out", PROBLEMS="60")
    assert status == 0, printed
    made = of_module(commands, "data_prep.graphs")
    assert [("--tasks mcp mis mvc mcs ged tsp --limit 600" in one, "diameter" in one) for one in made] == [
        (True, False), (False, True),
    ]  # fmt: skip
    own = [search(r"--out (\S+) --data (\S+)", one).groups() for one in of_module(commands, "recipe.evaluate")]
    groups = ("in_task", "cross_task")
    assert own[:2] == [(f"out/{group}", f"{group}=data/npg_muse/{group}/test.parquet") for group in groups]
    assert own[2] == ("out/cross_domain/aime24", "aime24=data/maths/aime24/test.parquet")
    mathematics = of_module(commands, "recipe.evaluate")[2:]
    answers = dict(zip((one[1].partition("=")[0] for one in own[2:]), mathematics, strict=True))
    found = {name: re.findall(r"--samples (\d+) --k 1 (\d+)", one) for name, one in answers.items()}
    eight = {name: [("8", "8")] for name in ("math500", "minerva", "gaokao2023en")}
    assert found == {"aime24": [("64", "64")], "aime25": [("64", "64")], **eight, "asdiv": []}
    assert [search(r"--set (\S+)", one)[1] for one in of_module(commands, "data_prep.public.maths")] == [*answers]
    others = [command for command in commands if "lm_eval run" in command]
    assert [search(r"--tasks (\S+)", one)[1] for one in others] == ["gsm8k", "mmlu_stem_generative"]
    assert all("--output_path out/cross_domain/" in one for one in others)


def test_the_smoke_setting_is_one_command():
    status, commands, printed = study("npg_muse.smoke")
    assert status == 0, printed
    runs = of_module(commands, "recipe.train")
    assert len(runs) == 2  # mixed, and the curriculum
    assert all("trainer.total_training_steps=5" in one and "/750/level" in one for one in runs)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["m", "bnary", "750"], "unknown reward 'bnary'; valid ones: binary "),
        (["m", "binary", "many"], "VOLUME 'many' must be a number"),
        (["m"], "MODEL REWARD VOLUME"),
        (["ablate_rewards", "m", "sorted", "750"], "unknown strategy 'sorted'; valid ones: mixed curriculum"),
        (["train_all_series", "sorted", "binary", "750", "m"], "unknown strategy 'sorted'"),
        (["evaluate", "m", "out"], "unknown group 'all'; valid ones: in_task"),
    ],
)
def test_npg_muse_refuses_what_is_no_setting(arguments, message):
    name, words = (arguments[0], arguments[1:]) if arguments[0] != "m" else ("mixed", arguments)
    status, commands, printed = study(f"npg_muse.{name}", *words, WHAT="all")
    assert (status, commands) == (2, [])
    assert message in printed


def test_slurm_starts_ray_on_every_node_for_as_long_as_the_job():
    status, commands, printed = script("scripts/slurm/recipe.sbatch", "scripts/gsm8k.sh", "m", NODES="2")
    assert status == 0, printed
    steps = [command for command in commands if "srun" in command]
    assert len(steps) == 2
    assert all("ray start" in step and "--block" in step and step.endswith("&") for step in steps)
    assert (commands[0], commands[-1]) == (".venv/bin/ray get-auth-token --generate", "bash scripts/gsm8k.sh m")


def test_slurm_on_one_node_needs_no_cluster():
    status, commands, printed = script("scripts/slurm/recipe.sbatch", "scripts/gsm8k.sh", "m", NODES="1")
    assert status == 0, printed
    assert commands[0] == "bash scripts/gsm8k.sh m"
    assert not any("srun" in command for command in commands)


@pytest.mark.slow
@pytest.mark.parametrize(
    "study", ["coding/all.sh", "countdown.sh", "gsm8k.sh", "npg_muse/mixed.sh", "npg_muse/evaluate.sh"]
)
def test_every_study_can_be_a_ray_job_and_a_dry_run_prints_it(study):
    status, _, printed = script("scripts/ray_submit.sh", "--dry-run", f"scripts/{study}", "m", TRAIN="data.seed=1")
    assert status == 0, printed
    assert f"-- env -C {ROOT} bash scripts/{study} m" in printed
    variables = json.loads(search(r"--runtime-env-json (\{.*\}) --", printed)[1])["env_vars"]
    assert (variables["PLATFORM"], variables["TRAIN"]) == ("gpu_ray", "data.seed=1")


@pytest.fixture
def elsewhere(tmp_path):
    """A folder with the configurations and no results."""
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    return tmp_path


def interpreter(folder, text: str) -> str:
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.slow
def test_an_interpreter_that_is_not_there_is_one_message(elsewhere):
    status, _, printed = study("npg_muse.smoke", dry=False, folder=elsewhere, PYTHON="/nowhere/python")
    assert status == 2
    assert printed.splitlines()[-1] == "stopped: cannot start /nowhere/python: No such file or directory"


def test_a_command_that_is_killed_ends_the_study_with_the_status_of_a_shell(elsewhere):
    killed = interpreter(elsewhere, "kill -9 $$")
    status, _, printed = study("npg_muse.smoke", dry=False, folder=elsewhere, PYTHON=killed)
    assert status == 137
    assert printed.splitlines()[-1].endswith("was killed by SIGKILL, often for lack of memory")


def test_a_run_that_is_killed_stops_no_other_and_is_the_studys_status(elsewhere):
    killed = 'case "$*" in *mixed_*) kill -9 $$ ;; esac'
    steps = Steps(GraphOptions(python=interpreter(elsewhere, killed), experiment="npg_muse", length="8"))
    settings = [
        npg_muse.StudySetting(order, str(elsewhere / "m"), "binary", "7500") for order in ("mixed", "curriculum")
    ]
    started: list[npg_muse.StudySetting] = []

    def train(steps: Steps, setting: npg_muse.StudySetting) -> None:
        started.append(setting)
        steps.module(setting.run)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(npg_muse, "_make_data", lambda *_: None)
        patched.setattr(npg_muse, "_train", train)
        with pytest.raises(CommandFailed, match="runs failed: mixed_m_") as raised:
            npg_muse._train_all(steps, settings)
    assert (raised.value.status, started) == (137, settings)


@pytest.mark.slow
def test_an_interrupted_command_ends_in_its_own_time(elsewhere):
    """Like a terminal, interrupt the whole process group."""
    saving = interpreter(elsewhere, "trap 'sleep 1; echo saved >saved; exit 1' INT; touch begun; sleep 30 & wait")
    environment = {**os.environ, "PYTHON": saving, "PYTHONPATH": str(ROOT), "DRY_RUN": ""}
    command = [sys.executable, "-m", "recipe.study", "npg_muse.smoke"]
    running = subprocess.Popen(
        command, cwd=elsewhere, env=environment, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background job ignores it
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not (elsewhere / "begun").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(running.pid, signal.SIGINT)
    assert running.wait(timeout=30) == 130
    assert (elsewhere / "saved").read_text() == "saved\n"


def test_a_study_that_is_not_known_and_arguments_that_are_missing_are_refused(tmp_path):
    assert study("gsm8k")[2].startswith("stopped: unknown study 'gsm8k'; valid ones: task, smoke, coding.all")
    assert (
        "wanted: MODEL REWARD VOLUME; MODEL is a Hugging Face folder or a hub name" in study("npg_muse.mixed", "m")[2]
    )
    assert "wanted: MODEL; MODEL is" in study("task", "gsm8k")[2]
    assert study("task", "nothing", "m")[2].startswith("stopped: no configs/experiment/nothing.yaml; valid experiments")
    assert study("learning", folder=tmp_path)[2] == f"stopped: {tmp_path} is not this project's folder: change to it\n"


def test_a_pretrained_model_is_fetched_started_trained_and_compared(tmp_path):
    status, commands, printed = study(
        "pretrained", OUT=f"{tmp_path}/o", FOLDER=f"{tmp_path}/d", SFT="optim.lr=1e-5", SEEDS="1 2"
    )
    assert status == 0, printed
    order = [
        "data_prep.pretrained",
        "recipe.memory",
        "recipe.memory",
        "data_prep.english",
        "recipe.sft",
        "recipe.train",
        "recipe.export",
    ]
    done = [one.split()[0] for one in commands if one.split()[0] in order]
    supervised, runs = of_module(commands, "recipe.memory")
    assert supervised.startswith("recipe.memory --supervised 215 sft_experiment=english model.path=data/pretrained/")
    assert supervised.endswith(f"trainer.default_local_dir={tmp_path}/o/start/sft optim.lr=1e-5")
    assert runs.startswith("recipe.memory actor_rollout_ref.model.path=data/pretrained/")
    assert " --runs 2 experiment=pretrained" in runs
    assert done == [*order, "recipe.train", "recipe.export"]
    (rows,) = of_module(commands, "data_prep.english")
    assert rows.endswith("--levels 1 sql=1,2 --wrong-share 0.4")
    (supervised,) = of_module(commands, "recipe.sft")
    assert "model.path=data/pretrained/smollm2 " in supervised
    assert "optim.lr=1e-5" in supervised
    for seed, training in zip("12", of_module(commands, "recipe.train"), strict=True):
        assert f"actor_rollout_ref.model.path={tmp_path}/o/start/model " in training
        assert f"data.seed={seed}" in training
        assert "micro_batch_size_per_gpu" not in training  # the experiment's own are of this machine
    before, *after = of_module(commands, "recipe.evaluate")
    assert f"--model {tmp_path}/o/start/model " in before
    assert [f"--model outputs/pretrained/o.s{seed}/model " in one for seed, one in zip("12", after, strict=True)]
    assert all("test.parquet" in command for command in (before, *after))
    reports = of_module(commands, "recipe.report")
    assert f"--answers {tmp_path}/o/after.o.s1/answers.md" in reports[0]
    assert reports[-2].split()[1:] == [
        "compare",
        *(f"{tmp_path}/o/{one}" for one in ("before", "after.o.s1", "after.o.s2")),
    ]
    assert reports[-1].split()[1:] == ["summary", "outputs/pretrained/o.s1", "outputs/pretrained/o.s2"]
    _, commands, _ = study("pretrained", NAME="x")
    assert "--answers outputs/pretrained/after.x.s0/answers.md" in of_module(commands, "recipe.report")[0]
    assert "run.name=x.s0 " in of_module(commands, "recipe.train")[0]


def test_runs_that_are_added_to_a_study_are_planned_without_its_start(tmp_path):
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    for folder in ("outputs/pretrained/start/model", "outputs/pretrained/study.s1/model"):
        (tmp_path / folder).mkdir(parents=True)
    _, commands, printed = study("pretrained", folder=tmp_path, SEEDS="1 2 3")
    (plan,) = of_module(commands, "recipe.memory")
    assert " --runs 2 experiment=pretrained" in plan, printed


def test_a_seed_from_the_file_of_kept_runs_is_compared_with_the_settings_and_not_trained_again(tmp_path):
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    kept = tmp_path / "runs.jsonl.xz"
    kept.touch()
    run = RunDirectory.prepare(str(tmp_path / "outputs"), "pretrained", "study.s1")
    run.log_event("end")
    status, commands, printed = study("pretrained", folder=tmp_path, SEEDS="1 2", KEPT=str(kept))
    assert status == 0, printed
    settled, trained = of_module(commands, "recipe.train")
    assert settled.startswith("recipe.train --multirun experiment=pretrained ")
    assert "run.name=study.s${data.seed} " in settled
    assert settled.endswith("data.seed=1")
    assert "run.name=study.s2 " in trained
    assert trained.endswith("data.seed=2")
    assert [one.split()[1] for one in of_module(commands, "recipe.export")] == ["outputs/pretrained/study.s2"]
    assert of_module(commands, "recipe.keep") == [
        f"recipe.keep {kept} outputs/pretrained",
        f"recipe.keep outputs/pretrained {kept} --runs study.s1 study.s2",
    ]
    assert commands.index(f"recipe.keep {kept} outputs/pretrained") < commands.index(settled)
    # One that ran here has a record of what it was made with, and its weights.
    (run.path / "study.json").write_text("{}")
    _, commands, _ = study("pretrained", folder=tmp_path, SEEDS="1", KEPT=str(kept))
    assert "--multirun" not in of_module(commands, "recipe.train")[0]


@pytest.mark.parametrize(
    ("arguments", "options"), [(["mine"], {}), ([], {"MODEL": "mine"}), (["mine"], {"MODEL": "no"})]
)
def test_another_model_takes_the_place_of_the_fetched_one(tmp_path, arguments, options):
    status, commands, printed = study("pretrained", *arguments, OUT=f"{tmp_path}/o", **options)
    assert status == 0, printed
    assert not of_module(commands, "data_prep.pretrained")
    assert "model.path=mine " in of_module(commands, "recipe.sft")[0]


@pytest.mark.slow
def test_a_model_without_a_chat_template_stops_the_study_before_anything_is_made(tiny_suite, tmp_path):
    shutil.copytree(tiny_suite / "initial_model", model := tmp_path / "base")
    (model / "chat_template.jinja").unlink()
    status, commands, printed = study("pretrained", str(model), dry=False, OUT=f"{tmp_path}/o", FOLDER=f"{tmp_path}/d")
    assert status == 2, printed
    assert [command.split()[0] for command in commands] == ["recipe.memory", "recipe.memory"]
    assert f"stopped: {model}: the tokenizer has no chat template; take an instruct version of the model" in printed
    assert not (tmp_path / "o").exists()
    assert not (tmp_path / "d").exists()


def test_a_gguf_file_is_not_taken_for_a_hub_name(tmp_path):
    status, commands, printed = study("pretrained", "models/x.gguf", dry=False, OUT=f"{tmp_path}/o")
    assert (status, commands) == (2, [])
    assert "stopped: models/x.gguf is a GGUF file, not a model folder; first make a folder: python -m" in printed


def test_the_supervised_start_is_there_whole_or_not_at_all(tmp_path):
    _, commands, _ = study("pretrained", OUT=f"{tmp_path}/o")
    copied, moved = (next(one.split() for one in commands if one.startswith(name)) for name in ("cp ", "mv "))
    assert copied[-1] == moved[-2] == f"{tmp_path}/o/start/model.partial"
    assert moved[-1] == f"{tmp_path}/o/start/model"
