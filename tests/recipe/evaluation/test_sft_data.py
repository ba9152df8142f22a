import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import huggingface_hub.constants
import pytest
from omegaconf import OmegaConf
from verl.utils import hf_tokenizer
from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset

import recipe.sft
from data_prep.schema import DataFileError, Demonstration, read_rows, write_rows
from data_prep.tasks import write_task_rows
from recipe.sft import demonstration_files, launch, train_under_torchrun, trained_model, verified_files
from recipe.studies.manifest import StudyError
from tests.models import make_cached, make_model
from tests.recipe.evaluation.conftest import task
from tests.recipe.evaluation.test_verified import evaluation, sample


def config(folder):
    return OmegaConf.create({"verified": {"evaluations": [str(folder)], "per_problem": 2, "held_out_percent": 30}})


@pytest.mark.slow
def test_accepted_answers_become_training_files_that_share_no_problem(tmp_path):
    tasks = [task(number, role="train") for number in range(12)]
    texts = [sample(one.id, n, f"x = {n}", 1.0) for one in tasks for n in range(3)]
    files = verified_files(config(evaluation(tmp_path, tasks, texts).path), tmp_path / "verified")
    rows = {split: read_rows(tmp_path / "verified" / f"{split}.parquet", Demonstration) for split in ("train", "val")}
    ids = {split: {row.extra_info.id for row in found} for split, found in rows.items()}
    assert files == {split: str(tmp_path / f"verified/{split}.parquet") for split in ("train", "val")}
    assert ids["train"] | ids["val"] == {one.id for one in tasks}
    assert not ids["train"] & ids["val"]
    assert len(rows["train"]) == 2 * len(ids["train"])


def test_no_evaluation_leaves_the_configured_files(tmp_path):
    assert verified_files(OmegaConf.create({"verified": {"evaluations": []}}), tmp_path) == {}


def test_the_model_of_the_last_step_is_the_trained_one(tmp_path):
    for step in (9, 100):
        (tmp_path / f"global_step_{step}" / "huggingface").mkdir(parents=True)
    assert trained_model(tmp_path).parent.name == "global_step_100"


def test_rows_that_are_no_demonstrations_are_refused_before_training(tmp_path, capsys):
    write_task_rows(tmp_path / "rows.parquet", [task(1)])
    settings = OmegaConf.create(
        {
            "trainer": {"default_local_dir": str(tmp_path / "out")},
            "model": {"path": str(make_model(tmp_path / "m"))},
            "data": {"train_files": str(tmp_path / "rows.parquet"), "max_length": 64},
            "verified": {"evaluations": []},
            "report": {"data": []},
        }
    )
    assert launch(settings) == 2
    assert "refused before training: " in (message := capsys.readouterr().err)
    assert "row 0, field 'messages'" in message


def demonstration(number: int, letters: int) -> Demonstration:
    messages = [{"role": "user", "content": "say"}, {"role": "assistant", "content": "x" * letters}]
    return Demonstration.model_validate(
        {
            "messages": messages,
            "skill": "say",
            "correct": True,
            "extra_info": {"split": "train", "index": number, "id": str(number)},
        }
    )


def training(folder, max_length: int):
    return OmegaConf.create(
        {
            "trainer": {"default_local_dir": str(folder / "out")},
            "data": {"train_files": [str(folder / "train.parquet")], "val_files": None, "max_length": max_length},
            "checkpoint": {"save_contents": ["hf_model"]},
            "verified": {"evaluations": []},
            "report": {"data": []},
        }
    )


def test_demonstrations_over_the_length_are_left_out_and_counted(tmp_path, tiny_suite, capsys):
    """Each byte is a token of this model; a row that is too long would fail verl's training."""
    model = tiny_suite / "initial_model"
    write_rows(tmp_path / "train.parquet", [demonstration(0, 20), demonstration(1, 400), demonstration(2, 90)])
    files = demonstration_files(training(tmp_path, 128), model, tmp_path / "out")
    kept = read_rows(Path(files["train"][0]), Demonstration)
    assert [row.extra_info.id for row in kept] == ["0", "2"]
    assert "1 of 3 demonstrations" in (printed := capsys.readouterr().out)
    assert "exceed data.max_length=128 tokens and are left out" in printed
    tokenizer = hf_tokenizer(str(model))
    for path, limit in ((files["train"][0], 128), (str(tmp_path / "train.parquet"), 1000)):
        rows = MultiTurnSFTDataset([path], tokenizer, training(tmp_path, limit).data)
        assert all(len(rows[number]["input_ids"]) <= limit for number in range(len(rows)))


def test_files_without_such_demonstrations_are_used_as_they_are(tmp_path, tiny_suite):
    write_rows(tmp_path / "train.parquet", [demonstration(0, 20), demonstration(1, 100)])
    files = demonstration_files(training(tmp_path, 128), tiny_suite / "initial_model", tmp_path / "out")
    assert files == {"train": [str(tmp_path / "train.parquet")]}
    assert not (tmp_path / "out").exists()


def test_where_all_demonstrations_are_too_long_the_training_is_refused(tmp_path, tiny_suite):
    write_rows(tmp_path / "train.parquet", [demonstration(0, 400)])
    with pytest.raises(DataFileError, match=r"1 of 1 demonstrations .* none is left"):
        demonstration_files(training(tmp_path, 128), tiny_suite / "initial_model", tmp_path / "out")


def test_supervised_training_takes_a_hub_name_and_keeps_its_weights(tmp_path, monkeypatch, capsys):
    folder = make_cached(tmp_path / "hub", "owner/model")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    write_rows(tmp_path / "train.parquet", [demonstration(0, 20)])
    started = []

    def train(config, out, overrides):
        started.append(overrides)
        (out / "global_step_1" / "huggingface").mkdir(parents=True, exist_ok=True)
        return 0

    monkeypatch.setattr(recipe.sft, "train_under_torchrun", train)
    config = training(tmp_path, 128)
    config.model = {"path": "owner/model"}
    assert launch(config) == 0
    assert started == [[f"model.path={folder}", f"data.train_files=[{tmp_path}/train.parquet]"]]
    (folder / "model.safetensors").write_bytes(b"other weights")
    assert launch(config) == 2
    assert "another model 'start'" in capsys.readouterr().err
    assert len(started) == 1


def test_a_tokenizer_without_chat_template_is_refused(tmp_path, capsys):
    write_rows(tmp_path / "train.parquet", [demonstration(0, 20)])
    config = training(tmp_path, 128)
    config.model = {"path": str(make_model(tmp_path / "base"))}
    (tmp_path / "base" / "tokenizer_config.json").write_text('{"bos_token": "<s>"}')
    assert launch(config) == 2
    assert "base has no chat template: take an instruct version" in capsys.readouterr().err


@pytest.mark.slow
def test_sigterm_reaches_the_training_and_is_no_failure(tmp_path, monkeypatch, capsys):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nwhile kill -TERM {os.getpid()}; do sleep 0.2; done\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    config = training(tmp_path, 128)
    config.trainer = {"n_gpus_per_node": 1, "total_training_steps": 3, "device": "cpu"}
    before = signal.signal(signal.SIGTERM, lambda *_: None)  # until it is passed on
    try:
        assert train_under_torchrun(config, tmp_path, []) == 143
    finally:
        signal.signal(signal.SIGTERM, before)
    assert "was stopped; the same command resumes it" in capsys.readouterr().err


def test_a_rank_whose_launcher_has_ended_does_not_begin(tmp_path, monkeypatch):
    on_cpu = OmegaConf.create({"trainer": {"device": "cpu", "n_gpus_per_node": 1}})
    assert recipe.sft._environment(on_cpu, tmp_path)[recipe.sft.LAUNCHER] == str(os.getpid())
    monkeypatch.setattr(recipe.sft, "end_with_parent", lambda: None)
    ended = subprocess.Popen(["true"])
    ended.wait()
    monkeypatch.setenv(recipe.sft.LAUNCHER, str(ended.pid))
    with pytest.raises(SystemExit, match="143"):
        recipe.sft.end_with_launcher()
    monkeypatch.setenv(recipe.sft.LAUNCHER, str(os.getpid()))
    recipe.sft.end_with_launcher()


@pytest.mark.slow
def test_a_rank_that_waits_for_another_ends_with_its_launcher(tmp_path):
    start = (
        "import subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, '-m', 'recipe.sft', 'sft_experiment=micro', *sys.argv[1:]])\n"
        "time.sleep(600)"
    )
    with socket.create_server(("127.0.0.1", 0)) as rank_0:  # it listens and never answers
        rank_0.settimeout(120)
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(rank_0.getsockname()[1]), "WORLD_SIZE": "2"}
        environment = os.environ | meeting | {"RANK": "1", "LOCAL_RANK": "1", "VERL_PLATFORM": "cpu"}
        environment |= {recipe.sft.LAUNCHER: str(os.getpid())}
        command = [sys.executable, "-c", start, f"trainer.default_local_dir={tmp_path}"]
        launcher = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        try:
            rank_1, _ = rank_0.accept()
        finally:
            launcher.kill()
            launcher.wait()
        rank_1.settimeout(60)
        with rank_1, suppress(ConnectionResetError):
            while rank_1.recv(4096):  # ends when the process does
                pass


def test_a_folder_takes_no_other_demonstrations_and_settings_and_loses_nothing(tmp_path, monkeypatch, capsys):
    write_rows(tmp_path / "train.parquet", [demonstration(0, 20)])

    def train(config, out, overrides):
        (out / "global_step_1" / "huggingface").mkdir(parents=True, exist_ok=True)
        return 0

    monkeypatch.setattr(recipe.sft, "train_under_torchrun", train)
    config = training(tmp_path, 128)
    config.model = {"path": str(make_model(tmp_path / "m"))}
    config.trainer.total_training_steps = 1
    assert launch(config) == 0
    assert launch(config) == 0  # the same settings again
    config.trainer.total_training_steps = 10
    assert launch(config) == 2
    assert "another setting 'trainer.total_training_steps': recorded '1', now '10'" in capsys.readouterr().err
    config.trainer.total_training_steps = 1
    write_rows(tmp_path / "train.parquet", [demonstration(1, 20)])
    assert launch(config) == 2
    assert "another data 'train0'" in capsys.readouterr().err


def test_a_refused_training_leaves_the_demonstrations_of_the_one_before(tmp_path, monkeypatch):
    config = training(tmp_path, 128)
    config.model = {"path": str(make_model(tmp_path / "m"))}
    write_rows(tmp_path / "train.parquet", [demonstration(0, 20)])
    monkeypatch.setattr(recipe.sft, "claim", refuse)
    made = []
    monkeypatch.setattr(recipe.sft, "demonstration_files", lambda *given: made.append(given))
    assert launch(config) == 2
    assert made == []


def refuse(*given):
    raise StudyError("another")


@pytest.fixture
def trainings(monkeypatch) -> list[list[str]]:
    """The overrides of each training that would have run."""
    found: list[list[str]] = []

    def train(config, folder, overrides: list[str]) -> int:
        found.append(overrides)
        return 0

    monkeypatch.setattr(recipe.sft, "train_under_torchrun", train)
    return found


LAST = "global_step_9/huggingface"


def test_a_training_that_has_ended_is_not_repeated(tmp_path, trainings, capsys, monkeypatch):
    settings = OmegaConf.create({"checkpoint": {"save_contents": ["hf_model"]}, "trainer": {"total_training_steps": 9}})
    monkeypatch.setattr(
        recipe.sft, "train_under_torchrun",
        lambda config, folder, overrides: trainings.append(overrides) or (folder / LAST).mkdir(parents=True) or 0,
    )  # fmt: skip
    assert [recipe.sft.train_once(settings, tmp_path, ["a=1"]) for _ in range(2)] == [0, 0]
    assert trainings == [["a=1"]]
    assert f"trained before; model in {tmp_path}" in capsys.readouterr().out


@pytest.mark.parametrize(("step", "trained"), [(6, True), (9, False)])
def test_a_training_continues_from_its_last_whole_checkpoint(tmp_path, trainings, step, trained):
    contents = ["model", "optimizer", "extra", "hf_model"]
    settings = OmegaConf.create({"checkpoint": {"save_contents": contents}, "trainer": {"total_training_steps": 9}})
    (tmp_path / f"global_step_{step}/huggingface").mkdir(parents=True)
    (tmp_path / "latest_checkpointed_iteration.txt").write_text(str(step))
    assert recipe.sft.train_once(settings, tmp_path, []) == 0
    place = f"trainer.resume_from_path={tmp_path}/global_step_{step}"
    assert trainings == ([["trainer.resume_mode=resume_path", place]] if trained else [])


def test_a_training_whose_checkpoints_hold_no_model_fails_with_the_key_that_is_missing(tmp_path, trainings, capsys):
    settings = OmegaConf.create({"checkpoint": {"save_contents": ["model"]}, "trainer": {"total_training_steps": 9}})
    assert recipe.sft.train_once(settings, tmp_path, []) == 1
    assert "add hf_model to checkpoint.save_contents" in capsys.readouterr().err
    assert len(trainings) == 1
