import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from omegaconf import OmegaConf

from recipe import report
from recipe.records.learning_speed import read_curve
from recipe.records.pictures import MARKERS
from recipe.records.run_directory import RunDirectory
from recipe.reports import speed

pytestmark = pytest.mark.slow


def finish(folder: Path, name: str, accuracies: list[float], length: float = 50.0, end: bool = True) -> RunDirectory:
    """A run of 8 samples per update with a validation at every second update; verifying takes 1 s per update."""
    run = RunDirectory.prepare(str(folder), "a", name)
    run.write_config(OmegaConf.create({"data": {"train_batch_size": 4}, "actor_rollout_ref": {"rollout": {"n": 2}}}))
    run.log_metrics(0, {"skill/mean/accuracy": accuracies[0]})
    for step in range(1, 2 * len(accuracies) - 1):
        validated = {} if step % 2 else {"skill/mean/accuracy": accuracies[step // 2]}
        run.log_metrics(step, {"response_length/mean": length, "reward/sandbox_seconds": 1.0} | validated)
    if end:
        run.log_event("end")
    return run


def test_a_curve_counts_tokens_and_seconds_since_the_start(tmp_path: Path):
    curve = read_curve(finish(tmp_path, "grpo.s0", [0.4, 0.6, 0.9]), "skill/mean/accuracy")
    assert curve.accuracy.tolist() == [0.4, 0.6, 0.9]
    assert curve.steps.tolist() == [0, 2, 4]
    assert curve.tokens.tolist() == [0, 800, 1600]
    assert curve.seconds.tolist() == [0, 2, 4]
    assert curve.at(1200) == pytest.approx(0.75)
    assert curve.reaches(0.8) == pytest.approx((2 + 4 / 3, 2 + 4 / 3))
    assert curve.reaches(0.3) == (0.0, 0.0)
    assert curve.reaches(0.95) is None


def test_training_samples_belong_to_the_policy_before_their_update(tmp_path: Path):
    run = RunDirectory.prepare(str(tmp_path), "a", "grpo.s0")
    run.write_config(OmegaConf.create({"data": {"train_batch_size": 4}, "actor_rollout_ref": {"rollout": {"n": 2}}}))
    run.log_metrics(0, {"skill/mean/accuracy": 0.5})
    for step, (accuracy, masked) in enumerate([(0.5, 0.0), (0.75, 0.5)], 1):
        shares = {"reward/acc": accuracy, "reward/masked_share": masked, "skill/mean/accuracy": accuracy}
        run.log_metrics(step, {"response_length/mean": 10.0, "reward/sandbox_seconds": 1.0} | shares)
    training = read_curve(run, "skill/mean/accuracy").training
    assert training.accuracy.tolist() == [0.5, 0.75]
    assert training.count.tolist() == [8, 4]
    assert training.tokens.tolist() == [0, 80]
    assert training.seconds.tolist() == [0, 1]


def test_arms_are_compared_at_the_same_number_of_generated_tokens_and_in_pairs(tmp_path: Path, capsys):
    finish(tmp_path, "grpo.s0", [0.2, 0.4, 0.6])
    finish(tmp_path, "grpo.s1", [0.2, 0.6, 0.8])
    finish(tmp_path, "delete.s0", [0.2, 0.6, 0.8], length=100.0)  # at 1,600 tokens it has done two of its four updates
    finish(tmp_path, "delete.s1", [0.2, 0.8, 0.9])
    finish(tmp_path, "delete.s2", [0.2, 0.9, 0.9], end=False)
    assert report.main(["speed", str(tmp_path / "a"), "--reach", "0.7"]) == 0
    note, *lines = (tmp_path / "a" / "summary" / "speed.md").read_text().splitlines()
    *_, delete, grpo, _, error, _, greedy, _, _, _, died = lines
    assert died == "| not finished, left out | update 4, no error recorded | delete.s2 |"
    assert error == "The standard error of an accuracy was not recorded in 4 of 4 runs."
    assert greedy == "Greedy accuracy was not measured in 4 of 4 runs."
    assert note == "Means over runs [95% intervals, Student's t]."
    # (0.6, 0.9) against (0.6, 0.8); 0.7 was reached after 3 and 5/3 updates, and never (4) and after 3
    # (t = 12.7 standard errors)
    needed = "2.3 [-6.1, 10.8] | -1.2 [-3.3, +1.0] | 2.3 [-6.1, 10.8] | 2 of 2 | 2.4 [-7.8, 12.6] | - |"
    assert delete == f"| delete | 2 | 75.0 [-115.6, 265.6] | +5.0 [-58.5, +68.5] | {needed}"
    needed = "3.5 [-2.9, 9.9] |  | 3.5 [-2.9, 9.9] | 1 of 2 | 1.6 [1.6, 1.6] | - |"
    assert grpo == f"| grpo | 2 | 70.0 [-57.1, 197.1] |  | {needed}"
    assert delete in capsys.readouterr().out
    numbers = json.loads((tmp_path / "a" / "summary" / "speed.json").read_text())
    assert [(row["arm"], row["reached"]) for row in numbers] == [("delete", 2), ("grpo", 1)]
    assert (tmp_path / "a" / "summary" / "speed.png").stat().st_size > 5_000


def test_runs_that_did_not_measure_the_sandbox_do_not_count_as_free_and_are_reported(tmp_path: Path):
    finish(tmp_path, "grpo.s0", [0.2, 0.4, 0.8])
    older = finish(tmp_path, "grpo.s1", [0.2, 0.8, 0.8])
    rows = [{key: value for key, value in row.items() if "sandbox" not in key} for row in older.metrics()]
    (older.path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert report.main(["speed", str(tmp_path / "a"), "--reach", "0.6"]) == 0
    (grpo,) = json.loads((tmp_path / "a" / "summary" / "speed.json").read_text())
    assert grpo["steps"]["estimate"] == pytest.approx(13 / 6)
    assert grpo["seconds"] == {"estimate": 3.0, "low": None, "high": None}
    assert " | 3.0 (1 of 2 runs) | 2 of 2 | " in (tmp_path / "a" / "summary" / "speed.md").read_text()


def test_the_last_greedy_accuracy_stands_in_the_table_where_it_was_measured(tmp_path: Path):
    run = finish(tmp_path, "grpo.s0", [0.2, 0.4, 0.8])
    run.log_metrics(4, {"skill/mean/accuracy": 0.8, "skill/mean/greedy_accuracy": 0.9, "response_length/mean": 50.0})
    assert report.main(["speed", str(tmp_path / "a")]) == 0
    table = (tmp_path / "a" / "summary" / "speed.md").read_text()
    assert " | 1.6 | 90.0 |" in table
    assert "Greedy accuracy was not measured in 1 of 1 run." in table  # of the first validations


def test_the_window_is_that_of_the_arms_that_learn_and_few_runs_have_no_interval(tmp_path: Path, monkeypatch):
    """`inverted` falls to 0, and the two runs of `few` would have intervals of 12.7 standard errors to each side."""
    ends = {"grpo": (0.7, 0.8, 0.9), "few": (0.6, 0.8), "inverted": (0.0, 0.0, 0.01)}
    for arm, own in ends.items():
        for seed, end in enumerate(own):
            finish(
                tmp_path, f"{arm}.s{seed}", [0.4, 0.5 * (0.4 + end), end], length=200.0 if arm == "inverted" else 50.0
            )
    figures: list[Figure] = []
    monkeypatch.setattr(speed, "save", lambda figure, path: figures.append(figure))
    assert report.main(["speed", str(tmp_path / "a")]) == 0
    tokens, seconds = figures[0].axes
    assert tokens.get_ylim() == pytest.approx((0.4 - 0.03, 0.9 + 0.03))
    assert tokens.get_xlim()[1] == pytest.approx(1.03 * 1.6)  # thousands; `inverted` generates 6.4
    assert len(tokens.collections) == len(seconds.collections) == 2  # intervals of grpo and inverted
    ends_drawn = [float(np.asarray(line.get_ydata())[-1]) for line in tokens.lines if str(line.get_marker()) in MARKERS]
    assert sorted(ends_drawn) == pytest.approx([0.01 / 3, 0.7, 0.8])
    names = [text.get_text() for text in figures[0].legends[0].get_texts()]
    assert names == ["few", "grpo", "inverted (falls to 0%)"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["empty"], "holds no finished run"), (["a", "--metric", "skill/sql/accuracy"], "no validation with skill/sql")],
)
def test_what_cannot_be_compared_ends_with_a_message(tmp_path: Path, capsys, arguments: list[str], message: str):
    finish(tmp_path, "grpo.s0", [0.2, 0.4])
    assert report.main(["speed", str(tmp_path / arguments[0]), *arguments[1:]]) == 2
    assert message in capsys.readouterr().err
