"""The tutorial's own data are made, and trained with credit and protection, as its last section says."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from recipe.records.run_directory import RunDirectory

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w+)[ ]?(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# One step of each stage, and no more validation than at the end.
SHORTER = ["protocol.stage_steps=1", "trainer.val_before_train=false", "trainer.test_freq=1", "data.val_max_samples=16"]

pytestmark = pytest.mark.e2e


def _carry_out(section: str, folder: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "SKILLCREDIT_HOME": str(folder)}
    for language, name, text in BLOCK.findall(section):
        if name:
            (folder / name).write_text(text)
        elif language == "bash":
            for command in text.replace("\\\n", " ").splitlines():
                words = [sys.executable, *shlex.split(command)[1:]]
                if "recipe.train" in words:
                    words += SHORTER
                if "mine/*.jsonl" in words:
                    place = words.index("mine/*.jsonl")
                    words[place : place + 1] = sorted(map(str, (folder / "mine").glob("*.jsonl")))
                done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=900)
                assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"


def test_own_data_are_trained_with_credit_and_protection(micro_start: Path, tmp_path: Path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "micro").symlink_to(micro_start)
    section = (ROOT / "docs" / "tutorial.md").read_text().split("## 5. Your own data")[1]
    _carry_out(section, tmp_path)
    (folder,) = (tmp_path / "outputs" / "mine").iterdir()
    run = RunDirectory(folder)
    first, second = (row for row in run.metrics() if row["step"] > 0)
    assert "train_skill/write/accuracy" in first
    assert "train_skill/mine/accuracy" in second
    assert first["credit/replays"] + second["credit/replays"] > 0
    assert second["solutions/write"] > 0
    assert second["actor/projection/skipped_steps"] == 0
    assert (folder / "run.html").exists()
