"""The micro start is regenerated if and only if its sources change."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from data_prep import made_from
from recipe import micro_start
from recipe.studies.files import sft_files

pytestmark = pytest.mark.slow

ROOT = made_from.ROOT
# Stand-ins for the commands, which take minutes: they write the same files.
RUN = """
import sys
from pathlib import Path
from recipe import micro_start

def run(command):
    print("ran", command[0], flush=True)
    folder = Path("made")
    if command[0] == "data_prep.micro":
        for name in ("train", "sft_train", "sft_val"):
            (folder / f"{name}.parquet").write_text(" ".join(command))
    elif command[0] == "data_prep.micro.model":
        (folder / "initial_model").mkdir(exist_ok=True)
        (folder / "initial_model/config.json").write_text("{}")
    else:
        assert not (folder / "sft").exists()
        for step in (9, 10):
            (folder / f"sft/global_step_{step}/huggingface").mkdir(parents=True)
            (folder / f"sft/global_step_{step}/huggingface/step").write_text(str(step))

sys.exit(micro_start.main(["made", *sys.argv[1:]], run))
"""


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copied")
    for name in ("configs", "data_prep", "recipe", "rewards", "workers"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture
def tree(copied: Path):
    """The copy with a finished start."""
    assert start(copied)
    yield copied
    shutil.rmtree(copied / "made")


def start(tree: Path, *options: str) -> list[str]:
    """Commands that a start ran."""
    command = [sys.executable, "-c", RUN, *options]
    done = subprocess.run(command, cwd=tree, env={"PYTHONPATH": str(tree)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [line.split()[1] for line in done.stdout.splitlines() if line.startswith("ran")]


def test_a_start_is_made_once_and_keeps_the_last_checkpoint(tree: Path) -> None:
    assert (tree / "made/model/step").read_text() == "10"
    assert list((tree / "made/sft").iterdir()) == []
    assert start(tree) == []
    assert start(tree, "optim.lr=0.01") == ["recipe.sft"]
    assert start(tree, "--limit", "8", "optim.lr=0.01") == ["data_prep.micro", "recipe.sft"]
    assert (tree / "made/train.parquet").read_text() == "data_prep.micro --out made --limit 8"


def test_a_model_trained_earlier_takes_the_place_of_the_supervised_start_whatever_the_code(tree: Path) -> None:
    given = tree / "given"
    given.mkdir()
    (given / "config.json").write_text("{}")
    assert start(tree, "--limit", "8", "--model", "given") == ["data_prep.micro"]
    assert [path.name for path in (tree / "made/model").iterdir()] == ["config.json"]
    console = tree / "recipe/runtime/console.py"
    text = console.read_text()
    console.write_text(text + "# changed\n")
    try:
        assert start(tree, "--limit", "8", "--model", "given") == []
        (given / "config.json").write_text("[]")
        assert start(tree, "--limit", "8", "--model", "given") == []
        assert (tree / "made/model/config.json").read_text() == "[]"
    finally:
        console.write_text(text)
    command = [sys.executable, "-c", RUN, "--model", "nowhere"]
    done = subprocess.run(command, cwd=tree, env={"PYTHONPATH": str(tree)}, capture_output=True, text=True)
    assert (done.returncode, "nowhere has no config.json" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("changed", "again"),
    [
        ("rewards/verifiers/trace.py", ["data_prep.micro", "data_prep.micro.model", "recipe.sft"]),
        ("rewards/sandbox/inside/judge.py", ["data_prep.micro", "data_prep.micro.model", "recipe.sft"]),
        ("rewards/sandbox/server/pool.py", ["data_prep.micro", "data_prep.micro.model", "recipe.sft"]),
        ("data_prep/micro/queries.py", ["data_prep.micro"]),
        ("recipe/runtime/console.py", ["recipe.sft"]),
        (str(sft_files("micro")[0].relative_to(ROOT)), ["recipe.sft"]),
        ("recipe/keep.py", []),
        ("data_prep/sources/mbpp.py", []),
    ],
)
def test_a_change_makes_again_what_it_could_change(tree: Path, changed: str, again: list[str]) -> None:
    file = tree / changed
    text = file.read_text()
    try:
        file.write_text(text + "# changed\n")
        assert start(tree) == again
    finally:
        file.write_text(text)


def test_a_part_that_is_missing_is_made(tree: Path) -> None:
    shutil.rmtree(tree / "made/model")
    assert start(tree) == ["recipe.sft"]


def test_a_failed_command_ends_the_start_and_is_tried_again(tree: Path) -> None:
    (tree / "made/train.parquet").unlink()
    failure = 'raise __import__("subprocess").CalledProcessError(3, command)'
    failing = RUN.replace('print("ran", command[0], flush=True)', failure)
    done = subprocess.run([sys.executable, "-c", failing], cwd=tree, env={"PYTHONPATH": str(tree)})
    assert done.returncode == 3
    assert start(tree) == ["data_prep.micro"]


def test_a_supervised_start_that_was_interrupted_continues_unless_its_options_have_changed(tree: Path) -> None:
    """RUN itself fails where the checkpoints of an earlier start are left."""
    failure = """(folder / "sft").mkdir(exist_ok=True)
        (folder / "sft/checkpoint").touch()
        raise __import__("subprocess").CalledProcessError(3, command)
        assert not"""
    going_on = 'assert (folder / "sft/checkpoint").exists() or'

    def status(instead: str) -> int:
        command = [sys.executable, "-c", RUN.replace("assert not", instead)]
        return subprocess.run(command, cwd=tree, env={"PYTHONPATH": str(tree)}).returncode

    shutil.rmtree(tree / "made/model")
    assert status(failure) == 3
    assert status(going_on) == 0
    assert (tree / "made/model/step").read_text() == "10"
    shutil.rmtree(tree / "made/model")
    assert status(failure) == 3
    assert start(tree, "optim.lr=0.01") == ["recipe.sft"]


def test_files_that_no_record_explains_or_that_were_changed_by_hand_stay(tree: Path) -> None:
    rows, record = tree / "made/train.parquet", tree / "made/.1.key"
    kept = record.read_text()
    refusals = []
    for change in (lambda: rows.write_text("edited"), record.unlink):
        change()
        command = [sys.executable, "-c", RUN, "--limit", "8"]
        done = subprocess.run(command, cwd=tree, env={"PYTHONPATH": str(tree)}, capture_output=True, text=True)
        assert (done.returncode, done.stdout, rows.read_text()) == (2, "", "edited")
        refusals.append(done.stderr)
    assert "made/train.parquet has changed since data_prep.micro made it; restore it, or remove it" in refusals[0]
    assert "made/sft_train.parquet exists, but no made/.1.key records its origin; move " in refusals[1]
    rows.unlink()
    record.write_text(kept)
    assert start(tree) == ["data_prep.micro"]


def test_only_the_default_supervised_start_has_a_duration() -> None:
    titles = [micro_start.parts(Path("made"), words)[2].title for words in ([], ["trainer.total_training_steps=5400"])]
    assert [title.endswith("(about 5 minutes)") for title in titles] == [True, False]


def test_an_option_is_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert [micro_start.main([option]) for option in ("--help", "--skills")] == [0, 2]
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_module_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has no module data_prep\.micro"):
        made_from.sources(["data_prep.micro"], tmp_path)
