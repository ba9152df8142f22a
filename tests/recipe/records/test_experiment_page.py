import json
import math
import subprocess
from pathlib import Path

import pytest
from PIL import Image

from recipe.records.experiment_page import (
    failure_logged,
    pieces,
    skill_table,
    source_commit,
    update_report,
    write_credit_page,
)
from recipe.records.pictures import draw_learning_curve, series, skill_names
from recipe.records.run_directory import RunDirectory
from tests.composing import composed
from workers.cpu.processor import processor


def _accuracies(write: float, sql: float) -> dict[str, float]:
    skills = {"write": write, "sql": sql, "mean": (write + sql) / 2, "worst": min(write, sql)}
    return {f"skill/{skill}/accuracy": value for skill, value in skills.items()}


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    run = RunDirectory.prepare(str(tmp_path), "quickstart", "r")
    run.write_config(composed("experiment=quickstart"))
    run.log_event("start", command="python -m recipe.train", weights="5eed")
    run.log_metrics(0, _accuracies(write=0.4, sql=0.2))
    run.log_metrics(1, {"critic/score/mean": 0.5, "actor/entropy": 1.0})
    run.log_metrics(2, {"critic/score/mean": 0.6, **_accuracies(write=0.9, sql=0.5)})
    return run


@pytest.mark.slow
def test_the_table_compares_the_first_validation_with_the_last(run: RunDirectory):
    rows = [(row.skill, row.before, row.after, round(row.change, 6)) for row in skill_table(run)]
    assert rows == [("sql", 0.2, 0.5, 0.3), ("write", 0.4, 0.9, 0.5), ("mean", pytest.approx(0.3), 0.7, 0.4)]


def test_one_validation_shows_no_change(tmp_path: Path):
    run = RunDirectory.prepare(str(tmp_path), "quickstart", "r")
    run.log_metrics(0, _accuracies(write=0.4, sql=0.2))
    assert [row.points for row in skill_table(run)] == ["-", "-", "-"]
    run.log_metrics(2, _accuracies(write=0.4, sql=0.1))
    assert [row.points for row in skill_table(run)] == ["-10.0", "+0.0", "-5.0"]


@pytest.mark.slow
def test_a_series_has_the_steps_where_the_metric_was_measured(run: RunDirectory):
    steps, values = series(run.metrics(), "skill/mean/accuracy")
    assert steps == [0, 2]
    assert values == pytest.approx([0.3, 0.7])
    assert skill_names(run.metrics()) == ["sql", "write"]


@pytest.mark.slow
def test_the_report_holds_table_command_versions_and_pictures(run: RunDirectory):
    run.log_event("masked", step=1, samples=3, share=0.02)
    run.log_event("start", command="python -m recipe.train", commit="c0ffee")
    text = update_report(run).read_text()
    assert "| write | 40.0% | 90.0% | +50.0 | - | - |" in text
    assert "| mean | 30.0% | 70.0% | +40.0 | - | - |" in text
    assert "Greedy accuracy was not measured in 1 of 1 run.\n" in text
    assert "| restarts | 1 |" in text
    assert "| commit | c0ffee |" in text
    assert "masked, not scored) | 3 |" in text
    assert "verl 0.9.1" in text
    assert f"({processor()}, " in text
    assert "(weights 5eed) |" in text
    for name in ("learning_curve.png", "training.png"):
        with Image.open(run.path / "plots" / name) as picture:
            assert picture.width > 600


@pytest.mark.parametrize(
    ("share", "longest", "told", "warned"),
    [(0.05, 64, "5.0%", False), (0.061, 64, "6.1%", True), (0.061, 63, "0.0%", False)],
)
@pytest.mark.slow
def test_the_report_says_which_share_of_answers_was_cut(
    run: RunDirectory, share: float, longest: float, told: str, warned: bool
):
    # verl's ratio counts answers as long as the step's longest: below the limit nothing was cut.
    run.log_metrics(3, {"response_length/clip_ratio": share, "response_length/max": longest})
    text = update_report(run).read_text()
    assert f"| answers of the last step that were cut at 64 tokens | {told} |" in text
    assert (f"**Warning: {told} of the last step's answers were cut" in text) == warned


@pytest.mark.slow
def test_a_run_that_measured_nothing_has_a_report_and_no_curve(tmp_path):
    run = RunDirectory.prepare(str(tmp_path), "quickstart", "r")
    run.write_config(composed("experiment=quickstart"))
    assert draw_learning_curve(run) is None
    assert "No validation has been done yet." in update_report(run).read_text()


@pytest.mark.slow
def test_a_report_that_cannot_be_written_ends_no_run_and_is_reported(run: RunDirectory):
    (run.path / "EXPERIMENT.md").mkdir()
    with failure_logged(run, 2):
        update_report(run)
    assert run.events()[-1]["event"] == "report_failed"
    assert run.events()[-1]["step"] == 2
    assert "IsADirectoryError" in run.events()[-1]["error"]
    with pytest.raises(KeyboardInterrupt), failure_logged(run, 2):
        raise KeyboardInterrupt


RESPONSE = "def f(a):\n a+=<1>\n return a"
SPANS = [[0, 9], [11, 17], [19, 27]]


def test_the_commit_is_marked_where_code_differs_but_not_the_evidence_of_a_study(tmp_path: Path):
    code, evidence = tmp_path / "recipe" / "code.py", tmp_path / "docs" / "runs"
    for file in (code, evidence):
        file.parent.mkdir()
        file.write_text("first")
    assert source_commit(code.parent) == "unknown"
    identity = ["-c", "user.name=n", "-c", "user.email=e"]
    for words in (["init", "-q"], ["add", "."], [*identity, "commit", "-qm", "m"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    commit = source_commit(code.parent)
    assert len(commit) == 12
    evidence.write_text("more")
    (tmp_path / "untracked").touch()
    assert source_commit(code.parent) == commit
    subprocess.run(["git", *identity, "commit", "-qam", "a finished run"], cwd=tmp_path, check=True)
    assert source_commit(code.parent) == commit
    code.write_text("changed")
    assert source_commit(code.parent) == f"{commit} with local changes"


def test_pieces_put_together_are_the_response_and_carry_the_credits():
    found = pieces(RESPONSE, SPANS, [1.0, -0.5, None])
    assert "".join(piece.text for piece in found) == RESPONSE
    marked = [piece for piece in found if piece.colour != "transparent"]
    assert [piece.credit for piece in marked] == [1.0, -0.5, None]
    assert [piece.colour.split()[0] for piece in marked] == ["hsl(130", "hsl(0", "#eeeeee"]


def test_a_step_shows_its_part_in_each_test_where_it_has_a_credit():
    found = pieces(RESPONSE, SPANS, [1.0, -0.5, None], [[1.0, 1.0], [-1.0, 0.0], [0.5, 0.5]])
    assert [piece.tests for piece in found if piece.colour != "transparent"] == [(1.0, 1.0), (-1.0, 0.0), ()]


def test_credits_that_are_all_zero_or_unknown_have_no_colour_of_their_own():
    for credits in ([0.0, 0.0, 0.0], [math.nan, math.nan, math.nan]):
        assert {piece.colour for piece in pieces(RESPONSE, SPANS, credits)} == {"#eeeeee", "transparent"}


def test_the_page_shows_what_was_kept_and_escapes_what_a_model_wrote(tmp_path: Path):
    run = RunDirectory.prepare(str(tmp_path), "e", "r")
    row = {
        "prompt": "write <b>", "response": RESPONSE, "score": 0.0, "pass_ratio": 0.5, "credit_cause": "",
        "credit_spans": SPANS, "credit_values": [1.0, -0.5, math.nan],
    }  # fmt: skip
    run.log_generations(7, "train", [row, {"prompt": "p", "response": "r", "score": 1.0}])
    write_credit_page(run, 7)
    page = (run.path / "plots" / "credit_000007.html").read_text()
    assert "a+=&lt;1&gt;" in page
    assert 'title="-0.500"' in page
    assert 'title="no credit"' in page
    assert page.count("<article>") == 1
    json.loads((run.path / "generations" / "train_000007.jsonl").read_text().splitlines()[0])


def test_a_step_without_credits_makes_no_page(tmp_path: Path):
    run = RunDirectory.prepare(str(tmp_path), "e", "r")
    write_credit_page(run, 3)
    assert not list((run.path / "plots").iterdir())
