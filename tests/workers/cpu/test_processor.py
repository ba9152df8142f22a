"""What the processor multiplies in hardware decides a CPU run's precision, unless the user names one."""

import os
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from recipe.preflight import compose_training
from workers.cpu import processor


@pytest.mark.parametrize(
    ("cpuinfo", "precision"),
    [
        ("flags\t\t: fpu avx512f amx_bf16 amx_tile\n", "bfloat16"),
        ("flags\t\t: fpu avx512f avx512_bf16\n", "bfloat16"),
        ("Features\t: fp asimd bf16\n", "bfloat16"),
        ("flags\t\t: fpu avx2 avx512f avx512_fp16\n", "float32"),
        ("model name\t: a bf16 processor\nflags\t\t: fpu\n", "float32"),
        ("", "float32"),
    ],
)
def test_bfloat16_only_with_instructions_for_it(tmp_path: Path, cpuinfo: str, precision: str):
    (tmp_path / "cpuinfo").write_text(cpuinfo)
    assert processor.hardware_precision(tmp_path / "cpuinfo") == precision


def test_an_unreadable_description_means_float32(tmp_path: Path):
    assert processor.hardware_precision(tmp_path / "none") == "float32"


def test_only_auto_is_replaced(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(processor, "hardware_precision", lambda: "bfloat16")
    config = OmegaConf.create({"run": {"precision": "auto"}})
    processor.settle_precision(config, "run.precision")
    assert config.run.precision == "bfloat16"
    config = OmegaConf.create({"run": {"precision": "float32"}})
    processor.settle_precision(config, "run.precision")
    assert config.run.precision == "float32"


@pytest.mark.parametrize(("cores", "ranks", "threads"), [({0, 1}, 1, 2), ({0, 1}, 2, 1), ({0}, 1, 1), ({0}, 2, 1)])
def test_ranks_share_the_cores_and_have_at_least_one(
    cores: set[int], ranks: int, threads: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: cores)
    assert processor.threads_per_rank(ranks) == threads


@pytest.mark.parametrize("precision", ["bfloat16", "float32"])
def test_one_key_sets_the_precision_of_trainer_and_engine(precision: str):
    config = compose_training(["experiment=pretrained", f"run.precision={precision}"])
    parts = config.actor_rollout_ref
    found = [parts.rollout.dtype, parts.actor.fsdp_config.dtype, parts.actor.fsdp_config.mixed_precision.param_dtype]
    found += [parts.ref.fsdp_config.mixed_precision.param_dtype, config.critic.fsdp.mixed_precision.param_dtype]
    assert found == [precision] * 5
    assert parts.actor.fsdp_config.model_dtype == "fp32"
    assert parts.actor.fsdp_config.mixed_precision.reduce_dtype == "fp32"


def test_the_micro_model_keeps_float32():
    assert compose_training(["experiment=quickstart"]).run.precision == "float32"
