"""The check of the GPU path, composed and dry-run without a GPU."""

import importlib.util
import math
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from benchmarks import projection
from benchmarks.gpu import __main__ as check
from benchmarks.gpu.engine import SHAPE
from benchmarks.gpu.findings import Findings, Measured, read
from benchmarks.gpu.training import SKILLS, STEPS, model_settings, note_run
from recipe.records.run_directory import RunDirectory
from recipe.settings import read_settings
from tests.composing import composed
from tests.configs.test_platforms import accepted_by_verl
from workers.actor import extended_by
from workers.digests.adapter import HeldAdapter

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    ("value", "low", "high", "passed"),
    [
        (1.0, 1.0, None, True),
        (1.01, None, 1.0, False),
        (math.nan, 0.0, None, False),
        (-1.0, None, None, True),
        (math.nan, None, None, True),
        ("text", 1.0, None, True),
    ],
)
def test_a_value_is_within_its_bounds_or_not(value: float | str, low: float | None, high: float | None, passed: bool):
    assert Measured("part", "what", value, low=low, high=high).passed == passed


def test_what_a_part_noted_is_read_and_shown(tmp_path: Path):
    findings = Findings(tmp_path, "engine_lora")
    findings.add("cosine", 0.5, low=0.99)
    findings.add("version", "1.2")
    found = read(tmp_path / "engine_lora.jsonl")
    assert [one.passed for one in found] == [False, True]
    text = check.table(found, ["training_lora ended with status 1"])
    assert "|engine_lora|cosine|0.5  **outside**|>= 0.99|" in text
    assert "training_lora ended with status 1" in text
    assert read(tmp_path / "missing.jsonl") == []


def test_every_part_has_a_limit_and_a_module_that_exists(tmp_path: Path):
    commands = check.commands_of(tmp_path, ROOT / "data/micro", "cuda", 2)
    assert len(commands) == 6
    assert set(commands) - set(check.commands_of(tmp_path, ROOT / "data/micro", "cuda", 1)) == {"tensor_parallel"}
    for part, command in commands.items():
        assert part.split("_")[0] in check.LIMITS
        target = command[2] if command[1] == "-m" else command[1]
        assert importlib.util.find_spec(target) if command[1] == "-m" else Path(target).exists()
    minutes = [
        sum(check.LIMITS[part.split("_")[0]] for part in found) / 60
        for found in (check.commands_of(tmp_path, ROOT, "cuda", 1), commands)
    ]
    assert minutes == [24, 31]  # docs/how-to/gpus_and_clusters.md
    assert "--gpus 2" in " ".join(commands["training_full"])
    for gpus, used in ((3, 2), (5, 4), (7, 4), (8, 8)):
        made = check.commands_of(tmp_path, ROOT, "cuda", gpus)
        assert all(f"--gpus {used}" in " ".join(made[part]) for part in ("training_lora", "tensor_parallel"))


def test_the_guarantee_of_the_projection_and_its_reads_are_in_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    words = ["--parameters", "1e4", "--skills", "2", "--repeats", "1", "--findings", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["projection", *words])
    projection.main()
    found = read(tmp_path / "projection.jsonl")
    guarantee, *reads = found
    assert (guarantee.low, guarantee.passed) == (-1e-5, True)
    assert isinstance(guarantee.value, float)
    assert guarantee.value < 1e-4  # the step wants to harm, so the projected one is at the bound
    assert {"1e+04 parameters, 2 skills: qp", "1e+04 parameters, 2 skills: adam, known"} <= {one.what for one in reads}
    assert {(one.part, one.unit) for one in reads} == {("projection", "reads")}
    assert "--findings" in check.commands_of(tmp_path, ROOT, "cuda", 1)["projection"]


def test_a_projected_step_that_harms_a_skill_fails_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(projection, "project", lambda step, *arguments, **options: SimpleNamespace(step=step))
    findings = Findings(tmp_path, "projection")
    projection.note(findings, "case", {"qp": [2.0]}, 1.0, projection.least_change(1000, 2, "cpu"))
    assert [one.passed for one in read(findings.file)] == [False, True]


def test_the_model_with_random_weights_splits_over_two_gpus():
    assert [SHAPE[name] % 2 for name in ("num_attention_heads", "num_key_value_heads", "intermediate_size")] == [0] * 3


@pytest.mark.slow
@pytest.mark.parametrize("gpus", [2, 8])
@pytest.mark.parametrize(("adaptation", "tensor"), [("lora", 1), ("full", 1), ("full", 2)])
def test_verl_accepts_the_settings_of_the_training(adaptation: str, tensor: int, gpus: int):
    data = Path("data/micro")
    settings = model_settings(data, data / "model", adaptation, "cuda", gpus=gpus, tensor=tensor)
    config = composed("experiment=three_questions", *settings)
    assert config.trainer.n_gpus_per_node == gpus
    assert config.actor_rollout_ref.rollout.tensor_model_parallel_size == tensor
    attention = "flash_attention_2" if importlib.util.find_spec("flash_attn") else "packed"
    assert config.actor_rollout_ref.model.override_config.attn_implementation == attention
    accepted_by_verl(config)
    assert extended_by(HeldAdapter, config.actor_rollout_ref.rollout) == (
        adaptation == "lora"
    )  # each transfer compared


GOOD = {
    "training/rollout_probs_diff_mean": 0.001, "actor/grad_norm": 0.3, "credit/replays": 20, "reward/masked_share": 0.0,
    "projection/active_constraints": SKILLS, "actor/projection/unprotected_skills": 1,
    "actor/projection/violated_steps": 0, "actor/projection/skipped_steps": 0,
    "actor/projection/displacement_norm": 0.01,
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "failing"),
    [
        ({}, None),
        ({"projection/active_constraints": 0}, "protected skills of an update"),
        ({"actor/projection/unprotected_skills": SKILLS}, "those of them without a gradient"),
        ({"actor/projection/violated_steps": 1}, "optimiser steps that still harm one"),
        ({"actor/projection/displacement_norm": 0.0}, "length of a step"),
        ({"reward/masked_share": 0.1}, "samples that could not be verified"),
        ({"training/rollout_probs_diff_mean": 0.05}, "rollout against trainer"),
    ],
)
def test_a_run_without_credit_or_protection_fails_the_check(tmp_path: Path, change: dict, failing: str | None):
    run, findings = RunDirectory(tmp_path / "run"), Findings(tmp_path, "training_lora")
    (run.checkpoints / f"global_step_{STEPS}").mkdir(parents=True)
    for step in range(1, STEPS + 1):
        run.log_metrics(step, GOOD | change)
    note_run(run, findings)
    outside = [one.what for one in read(findings.file) if not one.passed]
    assert len(outside) == (failing is not None)
    assert failing is None or outside[0].startswith(failing)
    assert any("no metric timing_s/step" in one.what for one in read(findings.file))


@pytest.mark.slow
def test_its_experiment_protects_as_many_skills():
    settings = read_settings(composed("experiment=three_questions"))
    assert settings.projection.protected is None  # all of them
    assert len(settings.skills.names or []) == SKILLS


def test_a_dry_run_prints_the_commands_and_runs_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    folder = tmp_path / "check"
    monkeypatch.setattr(
        sys, "argv", ["benchmarks.gpu", str(folder), "--dry-run", "--parts", "training_lora", "projection"]
    )
    check.main()
    training, measured = capsys.readouterr().out.splitlines()
    assert f"benchmarks.gpu.training {folder}" in training
    assert "benchmarks.projection" in measured
    assert not folder.exists()


@pytest.mark.slow
def test_a_part_that_outlasts_its_limit_is_ended_with_what_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(check, "LIMITS", {"engine": 1})
    monkeypatch.setattr(check, "GRACE", 1)
    mark = tmp_path / "alive"
    script = (
        f"import subprocess, sys, time\nsubprocess.Popen([sys.executable, '-c', {_writes(mark)!r}])\ntime.sleep(60)"
    )
    message = check.run(tmp_path, "engine_lora", [sys.executable, "-c", script])
    assert "longer than 1 s" in message
    assert mark.exists()
    size = mark.stat().st_size
    time.sleep(0.3)
    assert mark.stat().st_size == size


def _writes(path: Path) -> str:
    """A program that goes on writing, and ignores a request to stop."""
    return (
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"while True:\n    open({str(path)!r}, 'a').write('.')\n    time.sleep(0.05)"
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, which it would check")
def test_without_a_gpu_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.setattr(sys, "argv", ["benchmarks.gpu", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        check.main()
    assert ended.value.code == 2
    assert "torch finds no GPU" in capsys.readouterr().err
