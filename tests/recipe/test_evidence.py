"""The kept files of runs reproduce the tables of the evidence pages to the last digit; those in the tree are small."""

import re
import subprocess
from pathlib import Path

import pytest

from recipe import report
from recipe.records.arms import finished_runs

ROOT = Path(__file__).parents[2]
EVIDENCE = ROOT / "docs" / "evidence"
PAPER_A = EVIDENCE / "paper_a"
PAPER_B = EVIDENCE / "paper_b"
PRETRAINED = EVIDENCE / "pretrained"
HACKING = EVIDENCE / "hacking"
PLAN = EVIDENCE / "credit_plan.md"

IN_HISTORY = re.compile(r"git show\s+([0-9a-f]{7,40}:\S+?)[`\s]")
MADE_BY = re.compile(
    r"^\| [^|]+ \| `(?P<file>[\w.]+)(?P<options>[^`]*)`(?: with `(?P<contrasts>[^`]+)`)?,"
    r" made by `git show (?P<place>\S+)",
    re.MULTILINE,
)
"""A row of the first table of credit_plan.md: a file of runs and how to report it."""
ROUNDS = list(MADE_BY.finditer(PLAN.read_text()))
FIRST_COMMIT = "414e8313f05c1d99c0385ebc4c0469f2227f85b5"


def assert_same_files(made: Path, committed: Path, *names: str) -> None:
    for name in names:
        assert (made / name).read_text() == (committed / name).read_text(), name


@pytest.mark.slow
def test_the_runs_of_paper_a_give_its_tables(tmp_path: Path):
    assert report.main(["speed", str(PAPER_A / "runs.jsonl.xz"), "--reach", "0.8", "--out", str(tmp_path)]) == 0
    assert_same_files(tmp_path, PAPER_A, "speed.md")


@pytest.mark.slow
def test_the_runs_of_paper_b_give_its_tables(tmp_path: Path):
    runs = str(PAPER_B / "runs.jsonl.xz")
    assert report.main(["skills", runs, "--out", str(tmp_path), "--pareto", "qp_solutions"]) == 0
    assert_same_files(tmp_path, PAPER_B, "arms.md", "interference.md", "pareto.md")


@pytest.mark.slow
def test_the_runs_of_the_pretrained_model_give_their_accuracies_and_the_picture(tmp_path: Path, capsys):
    assert report.main(["summary", str(PRETRAINED / "runs.jsonl.xz"), "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    for row in ("+23.2 | 48.6 -> 56.8 |", "+15.4 | 42.9 -> 51.3 |", "+22.7 | 40.9 -> 53.1 |"):
        assert row in shown
    drawn = {path.stem for path in tmp_path.glob("*.png")}
    assert {path.stem for path in PRETRAINED.glob("*.webp")} == {"study.s8"} < drawn


@pytest.mark.slow
def test_the_runs_under_two_judges_give_their_table(tmp_path: Path):
    assert report.main(["hacks", str(HACKING / "runs.jsonl.xz"), "--out", str(tmp_path)]) == 0
    assert_same_files(tmp_path, HACKING, "hacks.md")


def in_history(place: str) -> bytes | None:
    """What `git show COMMIT:PATH` prints; None if it is not there."""
    shown = subprocess.run(["git", "show", place], cwd=ROOT, capture_output=True)
    return None if shown.returncode else shown.stdout


@pytest.fixture(scope="module")
def history() -> None:
    """Skip in a copy of the project without its history."""
    if subprocess.run(["git", "cat-file", "-e", FIRST_COMMIT], cwd=ROOT, capture_output=True).returncode:
        pytest.skip("not a whole clone")


@pytest.mark.usefixtures("history")
def test_files_that_the_docs_take_from_earlier_commits_are_there():
    pages = (page.read_text() for page in (ROOT / "docs").rglob("*.md"))
    places = sorted({place for page in pages for place in IN_HISTORY.findall(page)})
    assert len(places) > 10
    assert PLAN.read_text().count(", made by `git show") == len(ROUNDS) > 5
    assert [place for place in places if in_history(place) is None] == []


@pytest.mark.slow
@pytest.mark.usefixtures("history")
@pytest.mark.parametrize("made_by", ROUNDS, ids=lambda one: one["place"])
def test_the_runs_of_a_round_of_credit_give_its_tables(tmp_path: Path, capsys, made_by: re.Match[str]):
    """Those of accuracy and of contrasts, to the last digit."""
    plan = PLAN.read_text()
    usual = re.search(r"`--contrasts ([^`]+)`", plan)
    assert usual is not None
    contrasts = (made_by["contrasts"] or usual[1]).split()
    runs = tmp_path / made_by["file"]
    runs.write_bytes(in_history(made_by["place"]) or b"")
    assert report.main(["online", str(runs), *made_by["options"].split(), "--contrasts", *contrasts]) == 0
    arms = "|".join(sorted({arm for contrast in contrasts for arm in contrast.split(":")}))
    rows = re.findall(rf"^\| (?:{arms})(?: - \w+)? \| \d+ \|.*$", capsys.readouterr().out, re.MULTILINE)
    assert len(rows) == len(arms.split("|")) + len(contrasts)
    assert [row for row in rows if not any(line.startswith(row) for line in plan.splitlines())] == []


@pytest.mark.slow
def test_every_run_of_the_studies_is_there():
    counts = {"paper_a/runs": 30, "paper_b/runs": 106, "pretrained/runs": 3, "hacking/runs": 2}
    for name, count in counts.items():
        runs = finished_runs(EVIDENCE / f"{name}.jsonl.xz")
        assert (len(runs), sum(run.finished for run in runs)) == (count, count), name


def test_a_study_keeps_its_runs_in_less_than_a_megabyte_and_all_that_is_not_code_is_small():
    for study in EVIDENCE.iterdir():
        assert sum(path.stat().st_size for path in study.glob("*.jsonl.xz")) < 1_000_000
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    sizes = {name: (ROOT / name).stat().st_size for name in listed.stdout.split("\0") if (ROOT / name).is_file()}
    assert sum(size for name, size in sizes.items() if not name.endswith((".py", ".sh"))) < 2**20
    assert sum(sizes.values()) < 5.5 * 2**20  # code grows with what it does
