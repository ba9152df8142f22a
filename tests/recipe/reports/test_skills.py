import json
from pathlib import Path

import pytest
from omegaconf import DictConfig

from recipe import report
from recipe.records.run_directory import RunDirectory
from recipe.reports import skills
from tests.composing import composed

pytestmark = pytest.mark.slow  # with whole run directories


@pytest.fixture(scope="module")
def config() -> DictConfig:
    return composed(
        "experiment=paper_b", "protocol.stage_steps=2", "protocol.skill_sequence=[write,sql]", "projection=qp"
    )


def finish(
    folder: Path,
    config: DictConfig,
    name: str,
    kept: float,
    epsilon: float = 0.0,
    end: bool = True,
    seconds: float = 2.0,
    learnt: bool = True,
    method: str = "qp",
    weights: str = "",
) -> None:
    """A run in which `write` falls from 0.8 to `kept`, and `sql` ends at 0.9; `seconds` per step.

    Without `learnt`, the last validation has no accuracy of `sql`.
    """
    run = RunDirectory.prepare(str(folder), "b", name)
    own = config.copy()
    own.projection.epsilon, own.projection.method = epsilon, method
    own.run.directory = str(run.path)
    run.write_config(own)
    for step, write, sql in ((0, 0.5, 0.2), (2, 0.8, 0.2), (3, None, None), (4, kept, 0.9)):
        accuracy = {"skill/write/accuracy": write, "skill/sql/accuracy": sql, "skill/mean/accuracy": 0.5}
        if step == 4 and not learnt:
            del accuracy["skill/sql/accuracy"]
        measured = {"timing_s/step": seconds, "actor/projection/split_half_cosine/write": 0.1 * step}
        if method == "measure" and step > 2:
            measured["actor/projection/predicted_change/write"] = -0.01
        run.log_metrics(step, measured | (accuracy if write is not None else {}))
    if weights:
        run.log_event("start", weights=weights)
    if end:
        run.log_event("end")


def test_finished_runs_of_an_arm_make_one_row(tmp_path: Path, config: DictConfig, capsys):
    finish(tmp_path, config, "grpo.forward.s0", 0.4)
    finish(tmp_path, config, "grpo.forward.s1", 0.6)
    finish(tmp_path, config, "qp.forward.s0", 0.8, seconds=2.2)
    finish(tmp_path, config, "qp.forward.s1", 0.1, end=False)
    finish(tmp_path, config, "qp.forward.s2", 0.1)
    unmeasured = tmp_path / "b" / "qp.forward.s2" / "metrics.jsonl"
    unmeasured.write_text("".join(line for line in unmeasured.open() if '"step": 2,' not in line))
    assert report.main(["skills", str(tmp_path / "b")]) == 0
    lines = (tmp_path / "b" / "summary" / "arms.md").read_text().splitlines()
    assert lines[0] == "Percent: means over runs [95% intervals, Student's t]."
    assert lines[2] == (
        "| arm | runs | average | against grpo | greedy average | worst skill | forgetting | against grpo "
        "| most forgotten | new skill | against grpo | samples per run | step time |"
    )
    # Averages 65 and 75 have a standard error of 5; the interval of two values is 12.7 of them to each side.
    assert lines[4] == (
        "| grpo | 2 | 70.0 [6.5, 133.5] | - | - | 50.0 [-77.1, 177.1] | 30.0 [-97.1, 157.1] | - | 30.0 [-97.1, 157.1] "
        "| 90.0 [90.0, 90.0] | - | 384 | - |"
    )
    # Paired with the run of the same order and seed, whose `write` falls to 40%.
    assert lines[5] == "| qp | 1 | 85.0 | +20.0 | - | 80.0 | 0.0 | -40.0 | 0.0 | 90.0 | +0.0 | 384 | 1.10 |"
    # Means over the three steps; the constraints have no other measurements.
    assert lines[7] == (
        "Forgetting is below the best of noisy accuracies: halves of the prompts were not measured in every run."
    )
    lines = lines[:7] + lines[9:]
    assert lines[7:11:2] == [
        "The standard error of an accuracy was not recorded in 4 of 4 runs.",
        "Greedy accuracy was not measured in 4 of 4 runs.",
    ]
    assert lines[11] == (
        "| arm | split-half cosine, rollouts | split-half cosine, solutions | moved | unprotected skills a step "
        "| correlation of predicted and measured change |"
    )
    assert lines[13:15] == ["| grpo | 0.30 [0.30, 0.30] | - | - | - | - |", "| qp | 0.30 | - | - | - | - |"]
    assert lines[18:] == [
        "| not finished, left out | update 4, no error recorded | qp.forward.s1 |",
        "| a stage not validated, left out | - | qp.forward.s2 |",
    ]
    assert [run["run"] for run in json.loads((tmp_path / "b" / "summary" / "arms.json").read_text())] == [
        "grpo.forward.s0", "grpo.forward.s1", "qp.forward.s0"
    ]  # fmt: skip
    printed = capsys.readouterr()
    assert lines[5] in printed.out
    assert "qp.forward.s2 is left out: its metrics have no validation at the end of stage 1" in printed.err
    for picture in ("arms.png", "interference.png"):
        assert (tmp_path / "b" / "summary" / picture).stat().st_size > 5_000


def test_a_cell_over_fewer_runs_than_its_row_says_so(tmp_path: Path, config: DictConfig):
    finish(tmp_path, config, "grpo.s0", 0.4)
    for seed, kept in enumerate((0.6, 0.8, 0.7)):
        finish(tmp_path, config, f"qp.s{seed}", kept, learnt=seed != 2)
    assert report.main(["skills", str(tmp_path / "b")]) == 0
    cells = (tmp_path / "b" / "summary" / "arms.md").read_text().splitlines()[5].split(" | ")
    assert cells[:3] == ["| qp", "3", "80.0 [16.5, 143.5] (2 of 3 runs)"]  # the third has no accuracy of `sql`
    assert cells[3] == "+10.0 (1 of 3 runs)"  # one pair
    assert cells[6] == "10.0 [-14.8, 34.8]"  # all have the accuracy of `write`


def test_arms_are_compared_on_the_skills_that_any_of_them_names(tmp_path: Path, config: DictConfig):
    """Runs of one stage, whose unprotected arm names no skill: `write` falls from 50% to 40 and 45."""
    for name, method, kept, protected in (("grpo.s0", "off", 0.4, None), ("qp.s0", "qp", 0.45, ["write"])):
        own = config.copy()
        own.protocol.skill_sequence = ["sql"]
        own.projection.method, own.projection.protected = method, protected
        finish(tmp_path, own, name, 0.5, method=method)
        rows = [{"step": 0, "skill/write/accuracy": 0.5}]
        rows += [{"step": 2, "skill/write/accuracy": kept, "timing_s/step": 1.0}]
        lines = (json.dumps({"skill/sql/accuracy": 0.2, "skill/mean/accuracy": 0.3} | row) + "\n" for row in rows)
        (tmp_path / "b" / name / "metrics.jsonl").write_text("".join(lines))
    assert report.main(["skills", str(tmp_path / "b")]) == 0
    numbers = json.loads((tmp_path / "b" / "summary" / "arms.json").read_text())
    assert [run["mean_forgetting_of_earlier_skills"] for run in numbers] == pytest.approx([0.1, 0.05])


def test_runs_with_halves_have_the_split_forgetting_and_a_run_without_them_takes_it_from_all(
    tmp_path: Path, config: DictConfig
):
    """`write` is at 0.9 and 0.1 in its halves at the start, at 0.7 and 0.9 after its stage, at 0.4 and 0.4 at last."""
    for name in ("grpo.s0", "qp.s0"):
        finish(tmp_path, config, name, 0.4)
        file = tmp_path / "b" / name / "metrics.jsonl"
        rows = [json.loads(line) for line in file.open()]
        for row, first, second in zip(rows, (0.9, 0.7, None, 0.4), (0.1, 0.9, None, 0.4), strict=True):
            for skill in ("write", "sql") if first is not None else ():
                row |= {f"skill/{skill}/half_accuracy/0": first, f"skill/{skill}/half_accuracy/1": second}
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    summary = tmp_path / "b" / "summary"
    assert report.main(["skills", str(tmp_path / "b")]) == 0
    numbers = json.loads((summary / "arms.json").read_text())
    # Chosen on the first half: the start, 0.1 - 0.4; on the second: the stage, 0.7 - 0.4.
    assert [run["mean_forgetting_of_earlier_skills"] for run in numbers] == pytest.approx([0.0, 0.0])
    assert "chosen on half of the prompts and read on the other" in (summary / "arms.md").read_text()
    finish(tmp_path, config, "ewc.s0", 0.5)
    assert report.main(["skills", str(tmp_path / "b")]) == 0
    numbers = json.loads((summary / "arms.json").read_text())
    assert [run["mean_forgetting_of_earlier_skills"] for run in numbers] == pytest.approx([0.3, 0.4, 0.4])


def test_verified_steps_have_a_table_and_a_picture_per_run(tmp_path: Path, config: DictConfig):
    """Two runs of three updates, one of which verifies: one of its three steps is undone, one level is on its line."""
    for name in ("grpo.s0", "closed_loop.s0"):
        finish(tmp_path, config, name, 0.4)
    run = RunDirectory(tmp_path / "b" / "closed_loop.s0")
    for row, level, undone in zip(run.metrics()[1:], (-1.0, -1.25, -1.5), (0, 0, 1), strict=True):
        numbers = {"verified_level/write": level, "line/write": -1.25, "anchor/write": -1.0, "level/write": -1.0}
        numbers |= {"verified_steps": 1, "undone_steps": undone, "shrunk_steps": 0, "corrected_steps": 1}
        run.log_metrics(int(row["step"]), row | {f"actor/projection/{key}": value for key, value in numbers.items()})
    assert report.main(["skills", str(tmp_path / "b")]) == 0
    lines = (tmp_path / "b" / "summary" / "arms.md").read_text().splitlines()
    assert lines[-1] == "| closed_loop | 3 | 66.67% of 3 | -0.2500 | 100.0% | 0.0% | 33.3% |"
    pictures = sorted(path.name for path in (tmp_path / "b" / "summary" / "promise").iterdir())
    assert pictures == ["closed_loop.s0.png", "closed_loop.s0.svg"]


def test_greedy_accuracy_is_averaged_over_skills_after_the_last_stage(tmp_path: Path, config: DictConfig):
    finish(tmp_path, config, "grpo.s0", 0.4)
    rows = tmp_path / "b" / "grpo.s0" / "metrics.jsonl"
    greedy = {"skill/write/greedy_accuracy": 0.5, "skill/sql/greedy_accuracy": 0.8, "skill/mean/greedy_accuracy": 0.65}
    rows.write_text("".join(json.dumps(json.loads(line) | greedy) + "\n" for line in rows.open()))
    assert report.main(["skills", str(tmp_path / "b")]) == 0
    table = (tmp_path / "b" / "summary" / "arms.md").read_text()
    assert "| grpo | 1 | 65.0 | - | 65.0 | 40.0 |" in table
    assert "Greedy accuracy was not measured" not in table


def test_a_sweep_has_a_point_for_each_epsilon_of_its_arms(tmp_path: Path, config: DictConfig):
    finish(tmp_path, config, "grpo.s0", 0.4)
    finish(tmp_path, config, "qp.s0", 0.8)
    finish(tmp_path, config, "qp.s1", 0.1)  # a seed that the other epsilon lacks: not part of the curve
    finish(tmp_path, config, "qp_epsilon0.1.s0", 0.6, epsilon=0.1)
    assert report.main(["skills", str(tmp_path / "b"), "--pareto", "qp", "--out", str(tmp_path / "out")]) == 0
    rows = (tmp_path / "out" / "arms.md").read_text().splitlines()[4:7]
    assert [row.split(" | ")[0] for row in rows] == ["| grpo", "| qp", "| qp_epsilon0.1"]
    assert " -20.0 " in rows[2]  # its pair is grpo.s0
    points = json.loads((tmp_path / "out" / "pareto.json").read_text())
    assert [(point["epsilon"], round(point["forgetting"]["mean"], 6)) for point in points] == [
        (0.0, 0.0), (0.1, 0.2), (None, 0.4)
    ]  # fmt: skip


def test_the_picture_of_the_arms_leaves_the_other_points_of_the_curve_to_it(
    tmp_path: Path, config: DictConfig, monkeypatch
):
    for name, epsilon in (("grpo.s0", 0.0), ("qp.s0", 0.0), ("qp_both.s0", 0.0), ("qp_epsilon0.1.s0", 0.1)):
        finish(tmp_path, config, name, 0.5, epsilon=epsilon)
    shown: list[list[str]] = []
    monkeypatch.setattr(skills, "draw_arms", lambda records, path: shown.append(sorted(records)))
    for words in ([], ["--pareto", "qp"]):
        assert report.main(["skills", str(tmp_path / "b"), *words]) == 0
    assert shown == [["grpo", "qp", "qp_both", "qp_epsilon0.1"], ["grpo", "qp", "qp_both"]]


def test_what_gradients_foresaw_stands_beside_what_happened_and_not_among_the_arms(
    tmp_path: Path, config: DictConfig, monkeypatch
):
    for name, method in (("grpo.s0", "qp"), ("measured.s0", "measure"), ("qp.s0", "qp")):
        finish(tmp_path, config, name, 0.5, method=method)
    shown, foreseen = [], []
    monkeypatch.setattr(skills, "draw_arms", lambda records, path: shown.append(sorted(records)))
    monkeypatch.setattr(skills, "draw_mean_interference", lambda own, path, others: foreseen.append((len(own), others)))
    assert report.main(["skills", str(tmp_path / "b")]) == 0
    assert shown == [["grpo", "qp"]]
    ((runs, (other,)),) = foreseen
    assert runs == 1
    assert other.predicted[1][other.skills.index("write")] == pytest.approx(-0.02)  # of the stage's two steps


def test_runs_that_are_compared_and_began_with_different_weights_are_reported(
    tmp_path: Path, config: DictConfig, capsys
):
    finish(tmp_path, config, "grpo.s0", 0.4, weights="aa")
    finish(tmp_path, config, "qp.s0", 0.4, weights="bb")
    finish(tmp_path, config, "grpo.s1", 0.4, weights="bb")
    finish(tmp_path, config, "qp.s1", 0.4, weights="bb")
    finish(tmp_path, config, "ewc.s1", 0.4)
    assert report.main(["skills", str(tmp_path / "b")]) == 0
    assert capsys.readouterr().err == "different starting weights: aa in grpo.s0; bb in qp.s0\n"


def test_a_folder_without_finished_runs_is_reported(tmp_path: Path, capsys):
    assert report.main(["skills", str(tmp_path)]) == 2
    assert "holds no finished run" in capsys.readouterr().err
