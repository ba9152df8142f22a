"""What is kept of a study: enough for its tables, without pictures, samples, or places on a machine."""

import json
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from recipe import keep, report
from recipe.records.arms import finished_runs
from recipe.records.run_directory import RunDirectory


def finish(folder: Path, name: str, end: bool = True) -> RunDirectory:
    run = RunDirectory.prepare(str(folder), "a", name)
    data = {"train_batch_size": 4, "train_files": f"{folder}/data/train.parquet"}
    run.write_config(OmegaConf.create({"data": data, "actor_rollout_ref": {"rollout": {"n": 2}}}))
    run.log_event("start", command="python -m recipe.train")
    run.log_metrics(0, {"skill/mean/accuracy": 1 / 3, "val-core/code/acc": 0.5})
    run.log_event("generate", step=1)
    run.log_metrics(1, {"skill/mean/accuracy": 0.5, "response_length/mean": 50.0, "response/aborted": 0.0})
    (run.path / "EXPERIMENT.md").write_text(f"# a\n\n![curve](plots/curve.png)\n\nmodel `{folder}/data/model`\n")
    if end:
        run.log_event("end")
    return run


def test_a_kept_run_gives_the_same_tables_and_holds_nothing_else(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setenv("SKILLCREDIT_HOME", str(tmp_path))
    finish(tmp_path, "grpo.s0")
    finish(tmp_path, "grpo.s1", end=False)
    target = tmp_path / "docs" / "a"
    assert keep.main([str(tmp_path / "a"), str(target)]) == 0
    (kept,) = finished_runs(target)
    assert kept.path.name == "grpo.s0"
    assert [event["event"] for event in kept.events()] == ["start", "end"]
    first, second = kept.metrics()
    assert first["skill/mean/accuracy"] == pytest.approx(1 / 3, abs=1e-6)
    assert set(second) == {"step", "time", "skill/mean/accuracy", "response_length/mean"}
    assert (kept.path / "EXPERIMENT.md").read_text() == "# a\n\nmodel `data/model`\n"
    assert kept.read_config().data.train_files == "data/train.parquet"
    tables = []
    for folder in (tmp_path / "a", target):
        assert report.main(["speed", str(folder), "--reach", "0.4", "--out", str(tmp_path / "out")]) == 0
        tables.append((tmp_path / "out" / "speed.md").read_text())
    assert tables[0] == tables[1]


def test_what_was_kept_is_not_written_again(tmp_path: Path, capsys):
    finish(tmp_path, "grpo.s0")
    (tmp_path / "kept" / "grpo.s0").mkdir(parents=True)  # of a call that was killed
    keep.main([str(tmp_path / "a"), str(tmp_path / "kept")])
    before = json.dumps(RunDirectory(tmp_path / "kept" / "grpo.s0").metrics())
    RunDirectory(tmp_path / "a" / "grpo.s0").log_metrics(2, {"skill/mean/accuracy": 0.9})
    finish(tmp_path, "grpo.s1")
    keep.main([str(tmp_path / "a"), str(tmp_path / "kept")])
    assert capsys.readouterr().out.endswith("1 runs kept in " + str(tmp_path / "kept") + ", which had 1\n")
    assert json.dumps(RunDirectory(tmp_path / "kept" / "grpo.s0").metrics()) == before
