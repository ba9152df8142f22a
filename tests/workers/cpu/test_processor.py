"""What the processor multiplies in hardware decides a CPU run's precision, unless the user names one."""

import os
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from recipe import preflight
from recipe.checks import machine
from recipe.preflight import compose_training
from workers.cpu import processor

pytestmark = pytest.mark.slow


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


@pytest.mark.parametrize(
    ("cpuinfo", "kind"),
    [
        ("model name\t: AMD EPYC\nflags\t\t: fpu avx2 avx512f avx512_bf16\n", "AMD EPYC, AVX512-BF16"),
        ("model name\t: AMD EPYC\nflags\t\t: fpu avx2\n", "AMD EPYC, AVX2"),
        ("model name\t: Xeon\nflags\t\t: avx2 avx512f avx512_bf16 amx_bf16\n", "Xeon, AMX"),
        ("model name\t: old\nflags\t\t: fpu sse2\n", "old"),
    ],
)
def test_a_kind_of_processor_is_its_name_and_its_widest_instructions(tmp_path: Path, cpuinfo: str, kind: str):
    (tmp_path / "cpuinfo").write_text(cpuinfo)
    assert processor.processor(tmp_path / "cpuinfo") == kind


def test_only_auto_is_replaced(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(processor, "hardware_precision", lambda: "bfloat16")
    config = OmegaConf.create({"run": {"precision": "auto"}})
    processor.settle_precision(config, "run.precision")
    assert config.run.precision == "bfloat16"
    config = OmegaConf.create({"run": {"precision": "float32"}})
    processor.settle_precision(config, "run.precision")
    assert config.run.precision == "float32"


AMX, AVX2 = "flags\t\t: fpu avx512f amx_bf16\n", "flags\t\t: fpu avx2\n"


@pytest.fixture
def cpuinfo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The description of the processor that a test writes."""
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "cpuinfo")
    return tmp_path / "cpuinfo"


@pytest.mark.parametrize(
    ("flags", "words", "note"),
    [
        (AMX, [], "precision: bfloat16 (run.precision); weights"),
        (AMX, ["run.precision=float32"], "precision: float32 (run.precision); weights"),
        (AVX2, [], "precision: float32 (run.precision), because this processor has neither AMX nor AVX512-BF16"),
        (AVX2, ["run.precision=bfloat16"], "warning: run.precision=bfloat16, but this processor has neither AMX"),
    ],
)
def test_a_run_says_its_precision_and_warns_of_one_that_is_emulated(
    cpuinfo: Path, tiny_arguments: list[str], flags: str, words: list[str], note: str
):
    cpuinfo.write_text(flags)
    config = compose_training([*tiny_arguments, "run.precision=auto", *words])
    assert machine.notes(config)[0].startswith(note)
    if note.startswith("warning"):
        assert "3 times as long as in float32" in machine.notes(config)[0]
        assert "Set run.precision=auto" in machine.notes(config)[0]


def test_preflight_prints_the_warning_and_passes(
    cpuinfo: Path, tiny_arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(preflight, "CHECKS", {})
    cpuinfo.write_text(AVX2)
    assert preflight.main([*tiny_arguments, "run.precision=bfloat16"]) == 0
    assert "warning: run.precision=bfloat16, but" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("cores", "ranks", "note"),
    [
        ({0, 1}, 1, "cores: 2; threads of each process: 2 (OMP_NUM_THREADS)"),
        ({0}, 1, "cores: 1; threads of each process: 1 (OMP_NUM_THREADS)"),
        (
            {0},
            2,
            "cores: 1; threads of each process: 1 (OMP_NUM_THREADS); 2 ranks share them: set trainer.n_gpus_per_node=1",
        ),
    ],
)
def test_a_run_says_how_its_processes_share_the_cores(
    cores: set[int], ranks: int, note: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: cores)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert processor.cores_note(ranks) == note
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert "threads of each process: 3" in processor.cores_note(ranks)


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


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"cpu.max": "max 100000\n"}, 8),
        ({"cpu.max": "250000 100000\n"}, 2),
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu.max": "6400000 100000\n"}, 8),
        ({"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 4),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 8),
        ({}, 8),
    ],
)
def test_a_containers_share_of_processor_time_limits_its_cores(
    files: dict[str, str], found: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8))
    (tmp_path / "cpu").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert processor.cores(tmp_path) == found
