"""The tutorial's blocks run one after the other in one checkout, as a reader would run them, but shorter."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from recipe.records.run_directory import RunDirectory, read_jsonl
from tests.e2e.conftest import START_STEPS
from tests.processes import PATIENCE
from tests.test_how_to import HOW_TO, carry_out, copy_sources
from tests.tutorial import ROOT, commands, files, sections, shorter

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(5400)]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkout in which a reader works, with the packages of this one, and a shorter supervised start."""
    folder = copy_sources(tmp_path_factory.mktemp("tutorial"))
    start = folder / "configs" / "sft_experiment" / "micro.yaml"
    text, changed = re.subn(r"total_training_steps: \d+", f"total_training_steps: {START_STEPS}", start.read_text())
    assert changed == 1
    start.write_text(text)
    subprocess.run(["bash", "scripts/setup.sh", "cpu"], cwd=ROOT, check=True)  # so that the reader's changes nothing
    (folder / ".venv").symlink_to(ROOT / ".venv")
    return folder


def _carry_out(number: int, folder: Path) -> str:
    """Run the blocks of the section with this number; returns what its last command printed."""
    section = sections()[number - 1]
    environment = os.environ | {"PYTHONPATH": str(folder)}
    for name, text in files(section).items():
        (folder / name).write_text(text)
    output = ""
    for words in commands(section):
        words = [path for word in words for path in _expanded(word, folder)]
        done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, f"{words}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
        output = done.stdout
    return output


def _expanded(word: str, folder: Path) -> list[str]:
    """What a shell makes of the word's star."""
    return sorted(map(str, folder.glob(word))) if "/*" in word else [word]


@pytest.fixture(scope="module")
def three_questions(reader: Path) -> RunDirectory:
    """The run of the first section: the script makes data and start model, trains, and says how long it took."""
    said = _carry_out(1, reader)
    assert re.search(r"^total time after setup: \d+ min \d+ s$", said, re.MULTILINE)
    assert "setting up" not in said
    (folder,) = (reader / "outputs" / "three_questions").iterdir()
    return RunDirectory(folder)


def test_the_first_run_has_credit_protection_and_a_page(three_questions: RunDirectory, reader: Path):
    first, second = (row for row in three_questions.metrics() if row["step"] > 0)
    assert first["credit/replays"] + second["credit/replays"] > 0
    assert second["actor/projection/skipped_steps"] == 0
    page = (three_questions.path / "run.html").read_text()
    assert all(asked in page for asked in ("Did it learn?", "Which step earned it?", "What was lost?"))
    listed = _carry_out(2, reader).split()
    assert {"run.html", "EXPERIMENT.md", "plots", "generations", "metrics.jsonl"} <= set(listed)


@pytest.mark.night
def test_the_run_without_credit_replays_nothing(three_questions: RunDirectory, reader: Path):
    _carry_out(3, reader)
    run = RunDirectory(reader / "outputs" / "three_questions" / "without_credit")
    assert run.finished
    assert not any(key.startswith("credit/") for row in run.metrics() for key in row)


@pytest.mark.night
@pytest.mark.usefixtures("three_questions")
def test_skills_one_after_another_end_with_a_table_of_both_arms(reader: Path):
    table = _carry_out(4, reader)
    assert {folder.name for folder in (reader / "outputs" / "tutorial").iterdir()} >= {"grpo.s0", "qp_solutions.s0"}
    assert "grpo" in table
    assert "qp_solutions" in table
    run = RunDirectory(reader / "outputs" / "tutorial" / "qp_solutions.s0")
    assert [row["protocol/stage"] for row in run.metrics() if row["step"] > 0] == [1, 2, 3, 4]
    assert run.finished


@pytest.mark.usefixtures("three_questions")
def test_own_data_are_trained_with_credit_and_protection(reader: Path):
    _carry_out(5, reader)
    (folder,) = (reader / "outputs" / "mine").iterdir()
    run = RunDirectory(folder)
    first, second = (row for row in run.metrics() if row["step"] > 0)
    assert "train_skill/write/accuracy" in first
    assert "train_skill/mine/accuracy" in second
    assert first["credit/replays"] + second["credit/replays"] > 0
    assert second["solutions/write"] > 0
    assert second["actor/projection/skipped_steps"] == 0
    assert (folder / "run.html").exists()


@pytest.mark.night
@pytest.mark.usefixtures("three_questions")
def test_own_verifier_judges_the_training_of_its_page(reader: Path, tmp_path: Path):
    project = copy_sources(tmp_path)
    carry_out("add_a_task", project)
    (project / "data" / "micro").symlink_to((reader / "data" / "micro").resolve())
    (training,) = re.findall(r"`python (-m recipe\.train [^`]*)`", (HOW_TO / "add_a_task.md").read_text())
    words = shlex.split(training)
    command = [sys.executable, *words, *shorter(words), "run.name=r", "run.generations_per_step=128"]
    environment = os.environ | {"PYTHONPATH": str(project)}
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, f"{done.stdout[-3000:]}{done.stderr[-3000:]}"
    run = RunDirectory(project / "outputs" / "quickstart" / "r")
    assert run.finished
    assert all("train_skill/parity/accuracy" in row for row in run.metrics() if row["step"] > 0)
    samples = [row for file in run.path.glob("generations/train_*.jsonl") for row in read_jsonl(file)]
    assert len(samples) == 2 * 128
    # Nobody has shown the micro model these words: its verdict is that there is no answer, or whether it is right.
    assert {row["error"] for row in samples} <= {"extract", "wrong_answer", "none"}
    assert not any(row["masked"] for row in samples)
