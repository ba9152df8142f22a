"""The check of the GPU path, composed and dry-run without a GPU."""

import importlib.util
import math
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from benchmarks.gpu import __main__ as check
from benchmarks.gpu.findings import Findings, Measured, read
from benchmarks.gpu.training import model_settings
from tests.composing import composed
from tests.configs.test_platforms import accepted_by_verl

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
    assert len(commands) == 5
    for part, command in commands.items():
        assert part.split("_")[0] in check.LIMITS
        target = command[2] if command[1] == "-m" else command[1]
        assert importlib.util.find_spec(target) if command[1] == "-m" else Path(target).exists()
    assert "--gpus 2" in " ".join(commands["training_full"])


@pytest.mark.parametrize("adaptation", ["lora", "full"])
def test_verl_accepts_the_settings_of_the_training(adaptation: str):
    config = composed("experiment=three_questions", *model_settings(Path("data/micro"), adaptation, "cuda", gpus=2))
    assert config.trainer.n_gpus_per_node == 2
    attention = "flash_attention_2" if importlib.util.find_spec("flash_attn") else "packed"
    assert config.actor_rollout_ref.model.override_config.attn_implementation == attention
    accepted_by_verl(config)


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
    time.sleep(1)
    assert mark.stat().st_size == size


def _writes(path: Path) -> str:
    """A program that goes on writing, and ignores a request to stop."""
    return (
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"while True:\n    open({str(path)!r}, 'a').write('.')\n    time.sleep(0.05)"
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, which it would check")
def test_without_a_gpu_it_says_what_to_do(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "torch finds no GPU" in done.stderr
