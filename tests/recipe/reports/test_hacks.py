"""The hack meter: tables of evaluations and of runs, and the picture, from made numbers."""

import json
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from omegaconf import OmegaConf

from recipe import report
from recipe.records.run_directory import RunDirectory
from recipe.reports import hacks


def finish(folder: Path, name: str, visible: list[float], correct: list[float], special: list[float]) -> None:
    run = RunDirectory.prepare(str(folder), "a", name)
    run.write_config(OmegaConf.create({}))
    run.log_metrics(0, {"skill/mean/accuracy": 0.1})
    for step, (one, two, three) in enumerate(zip(visible, correct, special, strict=True), 1):
        guard = {"reward/guard/special_casing": three} if three else {}
        run.log_metrics(step, {"reward/visible_acc": one, "reward/acc": two} | guard)
    run.log_event("end")


def test_the_table_and_the_picture_of_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    finish(tmp_path, "grpo.s0", [0.5] * 4 + [0.9], [0.5] * 4 + [0.9], [0.01, 0, 0, 0, 0])
    for seed, last in enumerate((0.8, 0.6)):
        finish(tmp_path, f"weak_judge.s{seed}", [0.5] * 3 + [1.0] * 2, [0.4] * 4 + [0.2], [0.01, 0, 0.4, last, last])
    figures, save = [], hacks.save

    def keep(figure: plt.Figure, path: Path) -> Path:
        figures.append([[line.get_ydata().tolist() for line in axes.get_lines()] for axes in figure.axes])
        return save(figure, path)

    monkeypatch.setattr(hacks, "save", keep)
    assert report.main(["hacks", str(tmp_path / "a"), "--out", str(tmp_path / "out")]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("| grpo", "| weak"))]
    # The last quarter of five updates is the last two.
    assert rows[0] == "| grpo | 1 | 70.0 | 70.0 | 0.0 | 0.0 | 1.0 |"
    assert rows[1].startswith(
        "| weak_judge | 2 | 100.0 [100.0, 100.0] | 30.0 [30.0, 30.0] | 70.0 [70.0, 70.0] | 70.0 ["
    )
    left, right = figures[0]
    assert left[0] == [0.01, 0, 0, 0, 0]  # a single run has no thin line
    assert left[-1] == pytest.approx([0.01, 0, 0.4, 0.7, 0.7])
    assert right[-1] == pytest.approx([0.4, 0.4, 0.4, 0.4, 0.2])
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"hacks.md", "hacks.png", "hacks.svg"}


def test_the_table_of_evaluations_has_intervals_and_dashes_for_what_was_not_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    rate = {"estimate": 0.25, "low": 0.1, "high": 0.4}
    for name, metrics in (("new", dict.fromkeys(hacks.RATES, rate)), ("old", {"accepted@1": rate})):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run_info.json").write_text("{}")
        (tmp_path / name / "metrics.json").write_text(json.dumps({"mbpp": {"problems": 40} | metrics}))
    assert report.main(["hacks", str(tmp_path / "new"), str(tmp_path / "old")]) == 0
    new, old = capsys.readouterr().out.splitlines()[-2:]
    cell = "25.0 [10.0, 40.0]"
    assert new == f"| {tmp_path}/new: mbpp | 40 | {cell} | {cell} | {cell} | {cell} |"
    assert old == f"| {tmp_path}/old: mbpp | 40 | - | {cell} | - | - |"


def test_runs_that_did_not_record_it_and_folders_of_neither_kind_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    run = RunDirectory.prepare(str(tmp_path), "a", "grpo.s0")
    run.write_config(OmegaConf.create({}))
    run.log_metrics(1, {"reward/acc": 0.5})
    run.log_event("end")
    assert report.main(["hacks", str(tmp_path / "a")]) == 2
    assert "grpo.s0 has no reward/visible_acc at every update" in capsys.readouterr().err
    assert report.main(["hacks", str(tmp_path / "none")]) == 2
    assert "neither evaluations (run_info.json) alone, nor one folder" in capsys.readouterr().err
