"""A supervised training that stops goes on from its last whole checkpoint and ends with the same weights."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

from data_prep.schema import Demonstration, ExtraInfo, Message, write_rows
from recipe.runtime import supervised_folder

WHOLE = ["model", "optimizer", "extra", "hf_model"]


def checkpoint(folder: Path, step: int, model: bool = True) -> Path:
    made = folder / f"global_step_{step}"
    (made / "huggingface").mkdir(parents=True) if model else made.mkdir(parents=True)
    (made / "optim_world_size_1_rank_0.pt").write_text("state")
    return made


def test_a_training_goes_on_from_the_checkpoint_that_verl_marked_complete(tmp_path):
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


def test_metrics_of_an_earlier_start_are_kept_where_the_training_goes_on(tmp_path):
    made = checkpoint(tmp_path, 4)
    (tmp_path / supervised_folder.METRICS).write_text("rows 1 to 5")
    supervised_folder.begin(tmp_path, made)
    assert (tmp_path / "metrics.until_global_step_4.jsonl").read_text() == "rows 1 to 5"
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


@pytest.mark.slow
def test_a_training_stopped_by_a_signal_ends_with_the_weights_of_one_that_was_not(tmp_path):
    rows = [
        Demonstration(
            messages=[Message(role="user", content=f"say {n}"), Message(role="assistant", content=f"{n}")],
            skill="say",
            correct=True,
            extra_info=ExtraInfo(split="train", index=n, id=f"say-{n}"),
        )
        for n in range(32)
    ]
    for split in ("train", "val"):
        write_rows(tmp_path / f"{split}.parquet", rows)
    subprocess.run([sys.executable, "-m", "data_prep.micro.model", "--out", tmp_path / "model"], check=True)

    def started(name: str) -> subprocess.Popen[bytes]:
        words = (
            "sft_experiment=micro", f"model.path={tmp_path}/model", f"data.train_files={tmp_path}/train.parquet",
            f"data.val_files={tmp_path}/val.parquet", f"trainer.default_local_dir={tmp_path}/{name}",
            f"checkpoint.save_contents=[{','.join(WHOLE)}]", "trainer.save_freq=3", "trainer.max_ckpt_to_keep=1",
            "trainer.total_training_steps=40", "trainer.n_gpus_per_node=1", "data.train_batch_size=8",
            "data.micro_batch_size_per_gpu=8",
        )  # fmt: skip
        command = [sys.executable, "-m", "recipe.sft", *words]
        return subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, start_new_session=True)

    assert started("whole").wait() == 0
    stopped = started("stopped")
    while not (tracker := tmp_path / "stopped" / supervised_folder.TRACKER).exists():
        assert stopped.poll() is None
        time.sleep(0.01)
    os.killpg(stopped.pid, signal.SIGTERM)
    assert stopped.wait() != 0
    reached = int(tracker.read_text())
    assert 0 < reached < 40
    assert started("stopped").wait() == 0
    models = [tmp_path / name / "global_step_40/huggingface/model.safetensors" for name in ("whole", "stopped")]
    weights = [load_file(model) for model in models]
    assert weights[0].keys() == weights[1].keys()
    assert all((weights[0][name] == weights[1][name]).all() for name in weights[0])
