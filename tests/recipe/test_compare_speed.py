import json
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from recipe import compare_speed
from recipe.records.learning_speed import read_curve
from recipe.records.run_directory import RunDirectory


def finish(folder: Path, name: str, accuracies: list[float], length: float = 50.0, end: bool = True) -> RunDirectory:
    """A run of 8 samples an update with a validation at every second one; judging an update takes a second."""
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


def test_arms_are_compared_at_the_same_number_of_generated_tokens_and_in_pairs(tmp_path: Path, capsys):
    finish(tmp_path, "grpo.s0", [0.2, 0.4, 0.6])
    finish(tmp_path, "grpo.s1", [0.2, 0.6, 0.8])
    finish(tmp_path, "delete.s0", [0.2, 0.6, 0.8], length=100.0)  # at 1,600 tokens it has had two of its four updates
    finish(tmp_path, "delete.s1", [0.2, 0.8, 0.9])
    finish(tmp_path, "delete.s2", [0.2, 0.9, 0.9], end=False)
    assert compare_speed.main([str(tmp_path / "a"), "--reach", "0.7"]) == 0
    note, *_, delete, grpo = (tmp_path / "a" / "summary" / "speed.md").read_text().splitlines()
    assert note == "Means over runs [95% intervals, Student's t]."
    # (0.6, 0.9) against (0.6, 0.8); 0.7 was reached after 3 and 5/3 updates, and never (4) and after 3
    # (t = 12.7 standard errors)
    needed = "2.3 [-6.1, 10.8] | -1.2 [-3.3, +1.0] | 2.3 [-6.1, 10.8] | 2 of 2 | 2.4 [-7.8, 12.6] |"
    assert delete == f"| delete | 2 | 75.0 [-115.6, 265.6] | +5.0 [-58.5, +68.5] | {needed}"
    needed = "3.5 [-2.9, 9.9] |  | 3.5 [-2.9, 9.9] | 1 of 2 | 1.6 [1.6, 1.6] |"
    assert grpo == f"| grpo | 2 | 70.0 [-57.1, 197.1] |  | {needed}"
    assert delete in capsys.readouterr().out
    numbers = json.loads((tmp_path / "a" / "summary" / "speed.json").read_text())
    assert [(row["arm"], row["reached"]) for row in numbers] == [("delete", 2), ("grpo", 1)]
    assert (tmp_path / "a" / "summary" / "speed.png").stat().st_size > 10_000


def test_runs_that_did_not_measure_the_sandbox_do_not_count_as_free_and_are_told(tmp_path: Path):
    finish(tmp_path, "grpo.s0", [0.2, 0.4, 0.8])
    older = finish(tmp_path, "grpo.s1", [0.2, 0.8, 0.8])
    rows = [{key: value for key, value in row.items() if "sandbox" not in key} for row in older.metrics()]
    (older.path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert compare_speed.main([str(tmp_path / "a"), "--reach", "0.6"]) == 0
    (grpo,) = json.loads((tmp_path / "a" / "summary" / "speed.json").read_text())
    assert grpo["steps"]["estimate"] == pytest.approx(13 / 6)
    assert grpo["seconds"] == {"estimate": 3.0, "low": None, "high": None}
    assert " | 3.0 (1 of 2 runs) | 2 of 2 | " in (tmp_path / "a" / "summary" / "speed.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["empty"], "holds no finished run"), (["a", "--metric", "skill/sql/accuracy"], "no validation with skill/sql")],
)
def test_what_cannot_be_compared_ends_with_a_message(tmp_path: Path, capsys, arguments: list[str], message: str):
    finish(tmp_path, "grpo.s0", [0.2, 0.4])
    assert compare_speed.main([str(tmp_path / arguments[0]), *arguments[1:]]) == 2
    assert message in capsys.readouterr().err
