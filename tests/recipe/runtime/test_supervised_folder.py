"""A supervised training that stops resumes from its last whole checkpoint and ends with the same weights."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from data_prep.schema import Demonstration, ExtraInfo, Message, write_rows
from recipe.runtime import supervised_folder

WHOLE = ["model", "optimizer", "extra", "hf_model"]


def checkpoint(folder: Path, step: int, model: bool = True) -> Path:
    made = folder / f"global_step_{step}"
    (made / "huggingface").mkdir(parents=True) if model else made.mkdir(parents=True)
    (made / "optim_world_size_1_rank_0.pt").write_text("state")
    return made


def test_a_training_continues_from_the_checkpoint_that_verl_marked_complete(tmp_path):
    assert supervised_folder.resumable(tmp_path, WHOLE) is None
    complete = checkpoint(tmp_path, 9)
    checkpoint(tmp_path, 10)  # stopped while it was written: the tracker names the one before
    (tmp_path / supervised_folder.TRACKER).write_text("9")
    assert supervised_folder.resumable(tmp_path, WHOLE) == complete
    assert supervised_folder.resumable(tmp_path, ["hf_model"]) is None  # weights alone would start Adam afresh
    (tmp_path / supervised_folder.TRACKER).write_text("11")
    assert supervised_folder.resumable(tmp_path, WHOLE) is None


def test_steps_are_numbers_and_a_checkpoint_without_a_model_is_no_model(tmp_path):
    assert supervised_folder.last_model(tmp_path) is None
    for step in (9, 100):
        checkpoint(tmp_path, step)
    checkpoint(tmp_path, 101, model=False)
    assert supervised_folder.last_model(tmp_path) == tmp_path / "global_step_100/huggingface"


def test_metrics_of_earlier_starts_are_kept_and_other_checkpoints_are_not(tmp_path):
    checkpoint(tmp_path, 2)
    made = checkpoint(tmp_path, 4)
    for rows in ("1 to 5\n", "5 to 7\n"):  # stopped twice before the next checkpoint
        (tmp_path / supervised_folder.METRICS).write_text(rows)
        supervised_folder.begin(tmp_path, made)
    assert (tmp_path / "metrics.until_global_step_4.jsonl").read_text() == "1 to 5\n5 to 7\n"
    assert supervised_folder.step_folders(tmp_path) == [made]
    supervised_folder.begin(tmp_path, None)
    assert list(tmp_path.glob("metrics*")) == []


def test_a_training_that_ended_keeps_its_last_model_and_what_is_no_state(tmp_path):
    for step in (2, 4):
        checkpoint(tmp_path, step)
    (tmp_path / "global_step_4/lora_adapter").mkdir()
    assert not supervised_folder.is_finished(tmp_path)
    assert supervised_folder.finish(tmp_path)
    assert supervised_folder.is_finished(tmp_path)
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")} == {
        supervised_folder.FINISHED, "global_step_4", "global_step_4/huggingface", "global_step_4/lora_adapter",
    }  # fmt: skip


def test_checkpoints_without_a_model_stay(tmp_path):
    kept = checkpoint(tmp_path, 4, model=False)
    assert not supervised_folder.finish(tmp_path)
    assert not supervised_folder.is_finished(tmp_path)
    assert (kept / "optim_world_size_1_rank_0.pt").exists()


STEPS, ROWS, BATCH = 16, 32, 8


def training(folder: Path, name: str, save_freq: int) -> subprocess.Popen[bytes]:
    words = (
        "sft_experiment=micro", f"model.path={folder}/model", f"data.train_files={folder}/train.parquet",
        f"data.val_files={folder}/val.parquet", f"trainer.default_local_dir={folder}/{name}",
        f"trainer.save_freq={save_freq}", f"trainer.total_training_steps={STEPS}", "trainer.n_gpus_per_node=1",
        f"data.train_batch_size={BATCH}", f"data.micro_batch_size_per_gpu={BATCH}",
    )  # fmt: skip
    command = [sys.executable, "-m", "recipe.sft", *words]
    return subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, start_new_session=True)


def last_weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / f"global_step_{STEPS}/huggingface/model.safetensors")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with demonstrations, a micro model, and a training that was not stopped: `whole`."""
    folder = tmp_path_factory.mktemp("trained")
    rows = [
        Demonstration(
            messages=[Message(role="user", content=f"say {n}"), Message(role="assistant", content=f"{n}")],
            skill="say",
            correct=True,
            extra_info=ExtraInfo(split="train", index=n, id=f"say-{n}"),
        )
        for n in range(ROWS)
    ]
    for split in ("train", "val"):
        write_rows(folder / f"{split}.parquet", rows)
    subprocess.run([sys.executable, "-m", "data_prep.micro.model", "--out", folder / "model"], check=True)
    assert training(folder, "whole", STEPS).wait() == 0
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("save_freq", [3, ROWS // BATCH], ids=["within an epoch", "at the end of an epoch"])
def test_a_training_stopped_by_a_signal_ends_with_the_weights_of_one_that_was_not(trained: Path, save_freq: int):
    folder = trained / f"stopped_{save_freq}"
    stopped = training(trained, folder.name, save_freq)
    while not (tracker := folder / supervised_folder.TRACKER).exists():
        assert stopped.poll() is None
        time.sleep(0.01)
    os.killpg(stopped.pid, signal.SIGTERM)
    assert stopped.wait() != 0
    reached = int(tracker.read_text())
    assert 0 < reached < STEPS
    assert training(trained, folder.name, save_freq).wait() == 0
    assert (folder / f"metrics.until_global_step_{reached}.jsonl").exists()
    rows = [json.loads(line) for line in (folder / supervised_folder.METRICS).read_text().splitlines()]
    steps = [row["step"] for row in rows if "train/loss" in row["data"]]
    assert steps == list(range(reached + 1, STEPS + 1))  # it did not begin again
    whole, resumed = last_weights(trained / "whole"), last_weights(folder)
    assert whole.keys() == resumed.keys()
    assert all((whole[name] == resumed[name]).all() for name in whole)
