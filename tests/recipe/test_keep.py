"""The kept part of a study: enough for its tables, without pictures, samples, or paths of a machine."""

import json
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from recipe import keep, report
from recipe.keep import LEFT_OUT, _is_among
from recipe.records.arms import finished_runs
from recipe.records.run_directory import RunDirectory
from recipe.records.versions import VERSION
from recipe.reports.hacks import SHARES


def finish(folder: Path, name: str, end: bool = True) -> RunDirectory:
    run = RunDirectory.prepare(str(folder), "a", name)
    data = {"train_batch_size": 4, "train_files": f"{folder}/data/train.parquet"}
    run.write_config(OmegaConf.create({"data": data, "actor_rollout_ref": {"rollout": {"n": 2}}}))
    run.log_event("start", command="python -m recipe.train", weights="aa")
    run.log_metrics(0, {"skill/mean/accuracy": 1 / 3, "val-core/code/acc": 0.5})
    run.log_event("generate", step=1)
    own = {"train_skill/write/accuracy": 0.25}
    run.log_metrics(1, {"skill/mean/accuracy": 0.5, "response_length/mean": 50.0, "response/aborted": 0.0} | own)
    (run.path / "EXPERIMENT.md").write_text(f"# a\n\n![curve](plots/curve.png)\n\nmodel `{folder}/data/model`\n")
    if end:
        run.log_event("end")
    return run


@pytest.mark.slow
def test_a_kept_run_gives_the_same_tables_and_holds_nothing_else(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setenv("SKILLCREDIT_HOME", str(tmp_path))
    finish(tmp_path, "grpo.s0")
    finish(tmp_path, "grpo.s1", end=False)
    file, unpacked = tmp_path / "docs" / "a" / "runs.jsonl.xz", tmp_path / "unpacked"
    assert keep.main([str(tmp_path / "a"), str(file)]) == 0
    assert keep.main([str(file), str(unpacked)]) == 0
    for source in (file, unpacked):
        (kept,) = finished_runs(source)
        assert kept.path.name == "grpo.s0"
        assert [event["event"] for event in kept.events()] == ["start", "end"]
        first, second = kept.metrics()
        assert first["skill/mean/accuracy"] == pytest.approx(1 / 3, abs=1e-6)
        named = {"skill/mean/accuracy", "train_skill/write/accuracy", "response_length/mean"}
        assert set(second) == {"step"} | named
        assert kept.read_config().data.train_files == "data/train.parquet"
    assert (unpacked / "grpo.s0" / "EXPERIMENT.md").read_text() == "# a\n\nmodel `data/model`\n"
    tables = []
    for source in (tmp_path / "a", file, unpacked):
        assert report.main(["speed", str(source), "--reach", "0.4", "--out", str(tmp_path / "out")]) == 0
        tables.append((tmp_path / "out" / "speed.md").read_text())
    of_folder, _, unfinished = tables[0].partition("\n\n| caution ")
    assert f"{of_folder}\n" == tables[1] == tables[2]
    assert unfinished.endswith("| not finished, left out | update 1, no error recorded | grpo.s1 |\n")


def test_what_the_report_on_hacking_reads_is_kept():
    assert not any(_is_among(key, LEFT_OUT) for key in SHARES)


@pytest.mark.slow
def test_the_tables_of_a_file_go_beside_it(tmp_path: Path, capsys):
    finish(tmp_path, "grpo.s0")
    keep.main([str(tmp_path / "a"), str(tmp_path / "kept.jsonl.xz")])
    assert report.main(["speed", str(tmp_path / "kept.jsonl.xz")]) == 0
    assert (tmp_path / "kept_summary" / "speed.md").is_file()


def test_named_runs_alone_are_kept(tmp_path: Path, capsys):
    for name in ("study.s0", "mine", "study.s1"):
        finish(tmp_path, name)
    file = tmp_path / "kept.jsonl.xz"
    assert keep.main([str(tmp_path / "a"), str(file), "--runs", "study.s0", "study.s1"]) == 0
    assert [run.path.name for run in finished_runs(file)] == ["study.s0", "study.s1"]


@pytest.mark.slow
def test_what_was_kept_is_not_written_again(tmp_path: Path, capsys):
    finish(tmp_path, "grpo.s0")
    file = tmp_path / "kept.jsonl.xz"
    keep.main([str(tmp_path / "a"), str(file)])
    (kept,) = finished_runs(file)
    before = json.dumps(kept.metrics())
    RunDirectory(tmp_path / "a" / "grpo.s0").log_metrics(2, {"skill/mean/accuracy": 0.9})
    finish(tmp_path, "grpo.s1")
    keep.main([str(tmp_path / "a"), str(file)])
    assert capsys.readouterr().out.endswith(f"1 runs kept in {file}, which had 1\n")
    kept, added = finished_runs(file)
    assert json.dumps(kept.metrics()) == before
    assert added.path.name == "grpo.s1"
    written = file.stat().st_mtime_ns
    keep.main([str(tmp_path / "a"), str(file)])
    assert file.stat().st_mtime_ns == written


def test_a_study_continues_with_the_runs_of_the_file_in_place_of_those_that_died_here(tmp_path: Path, capsys):
    for name in ("grpo.s0", "grpo.s1", "grpo.s2"):
        finish(tmp_path, name)
    file, study = tmp_path / "kept.jsonl.xz", tmp_path / "study"
    keep.main([str(tmp_path / "a"), str(file)])
    (study / "grpo.s0").mkdir(parents=True)  # left by a killed call
    RunDirectory(study / "grpo.s1").path.mkdir()
    RunDirectory(study / "grpo.s1").log_event("start")  # died here
    (study / "grpo.s1" / "checkpoints").mkdir()
    here = finish(tmp_path / "study_of", "grpo.s2")
    here.path.rename(study / "grpo.s2")
    (study / "grpo.s2" / "checkpoints" / "mine").mkdir()
    assert keep.main([str(file), str(study)]) == 0
    assert capsys.readouterr().out.endswith(f"2 of 3 runs of {file} written to {study}\n")
    assert [run.path.name for run in finished_runs(study)] == ["grpo.s0", "grpo.s1", "grpo.s2"]
    assert not (study / "grpo.s1" / "checkpoints").exists()  # of another training
    assert (study / "grpo.s2" / "checkpoints" / "mine").exists()


def test_a_folder_of_kept_runs_of_version_1_becomes_a_file(tmp_path: Path, capsys):
    run = finish(tmp_path, "grpo.s0")
    config = (run.path / "config.yaml").read_text()
    (run.path / "config.yaml").write_text(config.partition("\n")[2])  # without the version
    assert keep.main([str(tmp_path / "a"), str(tmp_path / "outputs")]) == 2
    assert "(version 1) into a file first: python -m recipe.keep FOLDER FOLDER.jsonl.xz" in capsys.readouterr().err
    assert keep.main([str(tmp_path / "a"), str(tmp_path / "kept.jsonl.xz")]) == 0
    (kept,) = finished_runs(tmp_path / "kept.jsonl.xz")
    assert kept.recorded_config()[1] == 1


def test_a_run_or_a_file_of_a_later_release_is_refused_by_its_version(tmp_path: Path, capsys):
    run = finish(tmp_path, "grpo.s0")
    file = tmp_path / "kept.jsonl.xz"
    config = (run.path / "config.yaml").read_text()
    (run.path / "config.yaml").write_text(f"records_version: 99\n{config.partition(chr(10))[2]}")
    told = f"{run.path} has version 99 of the records; this release reads versions 1 to {VERSION}"
    assert keep.main([str(tmp_path / "a"), str(file)]) == 2
    assert told in capsys.readouterr().err
    assert not file.exists()
    for subcommand in ("speed", "skills"):
        assert report.main([subcommand, str(tmp_path / "a")]) == 2
        assert told in capsys.readouterr().err
        assert report.main([subcommand, str(file)]) == 2
        assert "cannot be read: No such file" in capsys.readouterr().err
