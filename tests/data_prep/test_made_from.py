"""Made files are made again when an input changes, and not touched when a hand has changed them."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from data_prep import made_from
from data_prep.files import file_hash
from data_prep.made_from import BEGUN, ROOT, MadeFiles, MadeFilesError, key, sources


@pytest.fixture
def verifier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A source that every command depends on, in the place of the project's."""
    path = tmp_path / "verifier.py"
    path.write_text("limit = 1\n")
    monkeypatch.setattr(made_from, "sources", lambda modules: [path])
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "rows"
    path.mkdir()
    return path


def files(folder: Path, *options: str) -> MadeFiles:
    return MadeFiles(folder, "rows", ("*.parquet", "*.jsonl"), ("data_prep.made", *options))


def writing(folder: Path, text: str = "rows", *names: str) -> Callable[[], None]:
    """What stands for a command: it writes files."""

    def run() -> None:
        for name in names or ("train.parquet", "test.parquet"):
            (folder / name).write_text(text)

    return run


def unexpected() -> None:
    raise AssertionError("made again")


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir() if not path.name.startswith(".")}


def test_the_record_names_the_key_and_every_file_as_sha256sum_does(verifier: Path, folder: Path):
    made = files(folder)
    assert made.make(writing(folder))
    digest = file_hash(folder / "train.parquet")
    assert (folder / ".rows.key").read_text() == f"{made.key}\n{digest}  test.parquet\n{digest}  train.parquet\n"
    assert not files(folder).make(unexpected)


def test_a_change_of_a_source_an_input_or_an_option_makes_them_again(verifier: Path, folder: Path):
    files(folder).make(writing(folder))
    verifier.write_text("limit = 2\n")
    assert files(folder).make(writing(folder, "rows of 2"))
    assert contents(folder) == {"train.parquet": "rows of 2", "test.parquet": "rows of 2"}
    assert files(folder, "--limit", "8").make(writing(folder, "eight", "train.parquet"))
    assert contents(folder) == {"train.parquet": "eight"}  # none of another command stays


def test_what_was_interrupted_is_regenerated(verifier: Path, folder: Path):
    def interrupted() -> None:
        (folder / "train.parquet").write_text("half")
        (folder / ".proved.jsonl").write_text("journal")
        raise KeyboardInterrupt

    def resumed() -> None:
        assert (folder / ".proved.jsonl").read_text() == "journal"
        assert not (folder / "train.parquet").exists()
        (folder / ".proved.jsonl").unlink()
        writing(folder)()

    with pytest.raises(KeyboardInterrupt):
        files(folder).make(interrupted)
    assert (folder / ".rows.key").read_text().startswith(BEGUN)
    assert files(folder).make(resumed)
    assert contents(folder) == {"train.parquet": "rows", "test.parquet": "rows"}
    assert not files(folder).make(unexpected)


def test_the_journal_of_an_interrupted_command_ends_with_the_sources_that_wrote_it(verifier: Path, folder: Path):
    """A journal of proofs by another verifier proves nothing."""

    def interrupted() -> None:
        (folder / ".proved.jsonl").write_text("journal")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        files(folder).make(interrupted)
    verifier.write_text("limit = 2\n")
    assert files(folder).make(lambda: writing(folder, str((folder / ".proved.jsonl").exists()))())
    assert set(contents(folder).values()) == {"False"}


@pytest.mark.parametrize("changed_source", [False, True])
def test_files_changed_by_hand_are_refused_and_stay(verifier: Path, folder: Path, changed_source: bool):
    files(folder).make(writing(folder))
    (folder / "train.parquet").write_text("edited")
    if changed_source:
        verifier.write_text("limit = 2\n")
    with pytest.raises(MadeFilesError, match=r"rows/train\.parquet has changed since data_prep\.made made it; restore"):
        files(folder).make(unexpected)
    assert contents(folder)["train.parquet"] == "edited"
    (folder / "train.parquet").unlink()  # as the message says
    assert files(folder).make(writing(folder))


def test_files_without_a_record_are_refused_and_stay(verifier: Path, folder: Path):
    writing(folder, "mine", "a.parquet", "b.parquet", "c.parquet", "d.jsonl")()
    message = r"a\.parquet exists, but no .*\.rows\.key .*; move a\.parquet, b\.parquet, c\.parquet and 1 more to"
    with pytest.raises(MadeFilesError, match=message):
        files(folder).make(unexpected)
    assert set(contents(folder).values()) == {"mine"}


def test_a_file_added_by_hand_does_not_matter_until_the_others_are_regenerated(verifier: Path, folder: Path):
    files(folder).make(writing(folder))
    writing(folder, "mine", "mine.parquet")()
    assert not files(folder).make(unexpected)
    verifier.write_text("limit = 2\n")
    with pytest.raises(MadeFilesError, match=r"must be made again, .* does not make mine\.parquet; move"):
        files(folder).make(unexpected)
    assert contents(folder)["mine.parquet"] == "mine"


def test_a_missing_file_is_regenerated(verifier: Path, folder: Path):
    files(folder).make(writing(folder))
    (folder / "test.parquet").unlink()
    assert files(folder).make(writing(folder, "again"))
    assert contents(folder) == {"train.parquet": "again", "test.parquet": "again"}


@pytest.mark.parametrize("text", ["", "key\n", "begun now\n", f"{64 * 'a'}\n"])
def test_a_damaged_record_is_refused(verifier: Path, folder: Path, text: str):
    writing(folder)()
    (folder / ".rows.key").write_text(text)
    with pytest.raises(MadeFilesError, match=r"\.rows\.key"):
        files(folder).make(unexpected)


def test_a_command_that_makes_nothing_is_an_error(verifier: Path, folder: Path):
    with pytest.raises(MadeFilesError, match=r"data_prep\.made succeeded, but wrote no \*\.parquet"):
        files(folder).make(lambda: None)
    assert files(folder).make(writing(folder))


@pytest.mark.slow
def test_a_package_counts_with_what_python_runs():
    assert ROOT / "data_prep/graphs/suite.py" in sources(["data_prep.graphs"])
    assert ROOT / "rewards/verifiers/gsm8k.py" in sources(["data_prep.sources.gsm8k"])


def test_every_module_of_the_sandbox_that_proves_rows_counts():
    assert set((ROOT / "rewards" / "sandbox").rglob("*.py")) <= set(sources(["data_prep.micro"]))


@pytest.mark.slow
@pytest.mark.parametrize("changed", ["rewards/verifiers/code.py", "rewards/sandbox/worker/checking.py"])
def test_a_change_of_a_verifier_or_of_the_sandboxs_worker_changes_the_key(tmp_path: Path, changed: str):
    for package in ("data_prep", "rewards"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))

    def now() -> str:
        return key(["data_prep.micro"], sources(["data_prep.micro"], tmp_path), tmp_path)

    before = now()
    assert now() == before
    (tmp_path / changed).write_text((tmp_path / changed).read_text() + "LIMIT = 2\n")
    assert now() != before
