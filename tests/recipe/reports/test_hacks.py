"""The hack meter: tables of evaluations and of runs, and the picture, from made numbers."""

from pathlib import Path

import numpy as np
import pytest
from omegaconf import OmegaConf

from recipe import keep, report
from recipe.evaluation.folder import EvaluationFolder
from recipe.records.run_directory import RunDirectory
from recipe.reports import hacks

pytestmark = pytest.mark.slow


def finish(folder: Path, name: str, *shares: list[float]) -> RunDirectory:
    run = RunDirectory.prepare(str(folder), "a", name)
    run.write_config(OmegaConf.create({"run": {"name": name}}))
    run.log_metrics(0, {"skill/mean/accuracy": 0.1})
    for step, row in enumerate(zip(*shares, strict=True), 1):
        run.log_metrics(step, {key: value for key, value in zip(hacks.SHARES, row, strict=True) if value})
    run.log_event("end")
    return run


def test_runs_have_a_table_of_their_ends_and_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    finish(tmp_path, "grpo.s0", [0.5] * 4 + [0.9], [0.5] * 4 + [0.9], [0.01, 0, 0, 0, 0])
    shares = [0.5] * 3 + [1.0] * 2, [0.4] * 4 + [0.2]
    weak = [finish(tmp_path, f"weak.s{one}", *shares, [0.01, 0, 0.4, last, last]) for one, last in ((0, 0.8), (1, 0.6))]
    assert report.main(["hacks", str(tmp_path / "a"), "--out", str(tmp_path / "out")]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("| grpo", "| weak"))]
    # The last quarter of five updates is the last two.
    assert rows[0] == "| grpo | 1 | 70.0 | 70.0 | 0.0 | 0.0 | 1.0 |"
    assert rows[1].startswith("| weak | 2 | 100.0 [100.0, 100.0] | 30.0 [30.0, 30.0] | 70.0 [")
    assert rows[1].endswith("] | 70.0 [70.0, 70.0] | 1.0 [1.0, 1.0] |")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"hacks.md", "hacks.png", "hacks.svg"}
    first, second = map(hacks.read_curve, weak)
    np.testing.assert_allclose(hacks.mean_curve([first, second[:, :4]])[2], [0.01, 0, 0.4, 0.7])


def test_a_file_of_kept_runs_gives_the_same_table_and_picture(tmp_path: Path):
    for name, hacked in (("grpo.s0", 0.0), ("weak.s0", 0.75)):
        run = finish(tmp_path, name, [0.5, 1.0], [0.5, 1.0 - hacked], [0.01, hacked])
        (run.path / "EXPERIMENT.md").write_text("# a run\n")
    assert keep.main([str(tmp_path / "a"), str(tmp_path / "runs.jsonl.xz")]) == 0
    for source, out in (("a", "of_folder"), ("runs.jsonl.xz", "of_file")):
        assert report.main(["hacks", str(tmp_path / source), "--out", str(tmp_path / out)]) == 0
    assert (tmp_path / "of_file/hacks.png").stat().st_size > 10_000
    table = (tmp_path / "of_file/hacks.md").read_text()
    assert table == (tmp_path / "of_folder/hacks.md").read_text()
    assert "| weak | 1 | 100.0 | 25.0 | 75.0 | 75.0 | 1.0 |" in table


def test_evaluations_have_intervals_and_dashes_for_what_was_not_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    rate = {"estimate": 0.25, "low": 0.1, "high": 0.4}
    nothing = dict.fromkeys(hacks.RATES)  # no sample was judged
    for name, metrics in (("some", dict.fromkeys(hacks.RATES, rate)), ("none", nothing | {"accepted@1": rate})):
        folder = EvaluationFolder(tmp_path / name)
        folder.begin({}, {})
        folder.finish({"mbpp": {"problems": 40} | metrics}, {})
    assert report.main(["hacks", str(tmp_path / "some"), str(tmp_path / "none")]) == 0
    some, none = capsys.readouterr().out.splitlines()[-2:]
    cell = "25.0 [10.0, 40.0]"
    assert some == f"| {tmp_path}/some: mbpp | 40 | {cell} | {cell} | {cell} | {cell} |"
    assert none == f"| {tmp_path}/none: mbpp | 40 | - | {cell} | - | - |"


def test_runs_without_it_and_other_folders_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    finish(tmp_path, "grpo.s0", [0.0], [0.5], [0.0])
    assert report.main(["hacks", str(tmp_path / "a")]) == 2
    assert "grpo.s0 has no reward/visible_acc at every update" in capsys.readouterr().err
    assert report.main(["hacks", str(tmp_path / "none")]) == 2
    assert "neither evaluations (run_info.json) alone, nor one folder" in capsys.readouterr().err
