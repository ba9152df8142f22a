"""The launchers of the studies: what they would run, in which order, and what they refuse."""

import os
import re
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # each starts a shell, some of them dozens

ROOT = Path(__file__).parents[2]


def script(*words: str, dry: bool = True, **variables: str) -> tuple[int, list[str], str]:
    """Exit status, commands that were shown (without the interpreter), and everything that was printed."""
    environment = {**os.environ, "DRY_RUN": "1" if dry else "", **variables}
    done = subprocess.run(["bash", *words], cwd=ROOT, env=environment, capture_output=True, text=True)
    commands = re.findall(r"^\+ (?:\S*python -m )?(.*?) ?$", done.stderr, re.MULTILINE)
    return done.returncode, [command.replace("\\", "") for command in commands], done.stdout + done.stderr


def of_module(commands: list[str], module: str) -> list[str]:
    return [command for command in commands if command.startswith(f"{module} ")]


def test_the_coding_pipeline_hands_each_stage_the_model_of_the_one_before(tmp_path):
    status, commands, printed = script("scripts/coding/all.sh", "start", OUT=f"{tmp_path}/o", DATA="d")
    assert status == 0, printed
    out = f"{tmp_path}/o"
    samples = [command for command in of_module(commands, "recipe.evaluate") if "eval@k" in command]
    assert [re.search(r"--model (\S+)", one)[1] for one in samples] == [f"{out}/phase0/model", f"{out}/phase1/model"]
    assert all("train=d/train.parquet" in command for command in samples)
    assert f"verified.evaluations=[{out}/phase1/samples]" in of_module(commands, "recipe.sft")[0]
    assert f"--evaluations {out}/phase2/samples" in of_module(commands, "recipe.dpo")[0]
    grpo, repair = of_module(commands, "recipe.train")
    assert "data.val_files=d/dev.parquet" in grpo
    assert f"model.path={out}/phase3/model" in repair
    (table,) = of_module(commands, "recipe.choose")
    beside = ["--beside", f"{out}/phase4/before", f"{out}/phase4/repair"]
    assert table.split()[1:] == [f"{out}/phase{number}/dev" for number in range(5)] + beside
    assert not any("test.parquet" in command for command in commands)


def test_repair_is_trained_and_evaluated_in_turns_on_rows_for_agents_and_its_model_in_one_turn_too(tmp_path):
    status, commands, printed = script(
        "scripts/coding/phase4_repair.sh", OUT=f"{tmp_path}/o", DATA="d", AGENTS="micro", REPAIR="data.seed=3"
    )
    assert status == 0, printed
    rows = f"{tmp_path}/o/phase4/rows"
    assert of_module(commands, "data_prep.agents") == [
        f"data_prep.agents d/{split}.parquet --out {rows}/{split}.parquet" for split in ("train", "dev")
    ]
    (train,) = of_module(commands, "recipe.train")
    words = (f"data.train_files={rows}/train.parquet", f"data.val_files={rows}/dev.parquet", "agents=micro")
    assert all(word in train.split() for word in (*words, "data.seed=3"))
    found = {command.split(" --out ")[1].split()[0]: command for command in of_module(commands, "recipe.evaluate")}
    in_turns = {path.removeprefix(f"{tmp_path}/o/phase4/"): "--agents micro" in one for path, one in found.items()}
    assert in_turns == {"before": True, "dev": False, "repair": True}


def test_phases_can_be_left_out(tmp_path):
    _, commands, _ = script("scripts/coding/all.sh", "start", OUT=f"{tmp_path}/o", WITHOUT="2 4")
    (table,) = of_module(commands, "recipe.choose")
    assert table.split()[1:] == [f"{tmp_path}/o/phase{number}/dev" for number in (0, 1, 3)]
    assert of_module(commands, "recipe.dpo") == of_module(commands, "data_prep.agents") == []


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
    status, commands, printed = script(f"scripts/coding/{stage}.sh", dry=False, OUT=str(tmp_path))
    assert (status, commands) == (2, [])
    assert f"stopped: no {tmp_path}/{missing}; first bash scripts/coding/{first}" in printed


@pytest.mark.parametrize(("task", "module"), [("countdown", "data_prep.countdown_tasks"), ("gsm8k", "data_prep.gsm8k")])
def test_a_study_probes_trains_and_compares(task, module, tmp_path):
    status, commands, printed = script(f"scripts/{task}.sh", "m", PLATFORM="gpu_1x8", NAME="dry")
    assert status == 0, printed
    (train,) = of_module(commands, "recipe.train")
    assert f"experiment={task} platform=gpu_1x8 actor_rollout_ref.model.path=m" in train
    assert "adaptation=full" in train
    # GSM8K's study has a model without a preset here; Hydra refuses a group that is set to null by a word.
    assert ("model_preset=qwen3_4b" in train, "model_preset" in train) == (task == "countdown",) * 2
    assert "--samples 16" in of_module(commands, "recipe.probe")[0]
    assert of_module(commands, "recipe.compare") == [f"recipe.compare outputs/{task}/base outputs/{task}/trained"]
    assert len(of_module(commands, "recipe.export")) == 1


def test_the_curriculum_goes_from_level_to_level_each_from_the_model_before():
    status, commands, printed = script(
        "scripts/npg_muse/curriculum.sh", "m", "complicated", "45000", PLATFORM="gpu_1x8"
    )
    assert status == 0, printed
    runs = of_module(commands, "recipe.train")
    assert [re.search(r"train_files=\[data/npg_muse/45000/level(\d)/", one)[1] for one in runs] == list("12345")
    starts = [re.search(r"actor_rollout_ref.model.path=(\S+)", one)[1] for one in runs]
    assert starts == ["m"] + [f"outputs/npg_muse/curriculum_m_complicated_45000_level{n}/model" for n in range(1, 5)]
    assert all("kwargs.shape=complicated" in one and "ulysses_sequence_parallel_size=4" in one for one in runs)
    assert not any("total_training_steps" in one for one in runs)


def test_the_smoke_setting_has_five_steps_on_all_levels_and_memory_is_one_variable_each():
    _, commands, _ = script(
        "scripts/npg_muse/mixed.sh", "m", "binary", "750", PLATFORM="gpu_1x8", SEQUENCE_PARALLEL="8", OFFLOAD_REF="true"
    )
    (train,) = of_module(commands, "recipe.train")
    assert train.count("/train.parquet") == 5
    assert all(
        word in train
        for word in ("total_training_steps=5", "ulysses_sequence_parallel_size=8", "ref.fsdp_config.param_offload=true")
    )


def test_the_ablation_goes_through_the_steps_of_the_study():
    status, commands, printed = script("scripts/npg_muse/train_ablation.sh", "m", VOLUMES="750")
    assert status == 0, printed
    assert re.findall(r"^step (\d)", printed, re.MULTILINE) == list("1234")
    shapes = [re.search(r"shape=(\w+)", one)[1] for one in of_module(commands, "recipe.train")]
    assert set(shapes) == {
        "binary", "binary_format", "binary_format_repeat", "ratio_quality_format_repeat", "complicated"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["m", "bnary", "750"], "unknown reward 'bnary'; valid ones: binary "),
        (["m", "binary", "many"], "the volume is a number"),
        (["m"], "MODEL REWARD VOLUME"),
    ],
)
def test_npg_muse_refuses_what_is_no_setting(arguments, message):
    status, commands, printed = script("scripts/npg_muse/mixed.sh", *arguments)
    assert (status, commands) == (2, [])
    assert message in printed


def test_slurm_starts_ray_on_every_node_and_stops_it():
    status, commands, printed = script("scripts/slurm/recipe.sbatch", "scripts/gsm8k.sh", "m", NODES="2")
    assert status == 0, printed
    assert [command.split("ray ")[-1].split()[0] for command in commands if "srun" in command] == [
        "start",
        "start",
        "stop",
    ]
    assert commands[2] == "bash scripts/gsm8k.sh m"
