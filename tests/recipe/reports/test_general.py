"""What runs did to text that they never name: recorded once, kept, and compared over arms."""

import json
import shutil
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from data_prep.micro import model as micro_model
from recipe import keep
from recipe.evaluation.general import EVENT, GeneralLoss, general_loss, general_rows
from recipe.pages.facts import state
from recipe.records.run_directory import RunDirectory
from recipe.report import REFUSED, main
from recipe.reports import perplexity


def finished_run(folder: Path, name: str) -> RunDirectory:
    run = RunDirectory.prepare(str(folder.parent), folder.name, name)
    model = {"path": str(folder / "model")}
    run.write_config(OmegaConf.create({"actor_rollout_ref": {"model": model}, "data": {}, "run": {"name": name}}))
    (run.path / "EXPERIMENT.md").write_text("# study\n")
    run.log_metrics(1, {"reward/acc": 0.5})
    run.log_event("end")
    return run


def losses(*changes: float) -> dict[str, GeneralLoss]:
    return {f"s{seed}": GeneralLoss("t", 512, 3, 2.0, 2.0 + change) for seed, change in enumerate(changes)}


def test_changes_are_averaged_over_runs_and_compared_in_pairs():
    grpo, safe = general_rows({"grpo": losses(0.2, 0.4), "safe": losses(0.1, 0.3, 0.5)}, "grpo")
    assert (grpo.runs, grpo.difference) == (2, None)
    assert (safe.runs, safe.pairs) == (3, 2)
    assert [row.change.estimate for row in (grpo, safe)] == pytest.approx([0.3, 0.3])
    assert safe.difference is not None
    assert safe.difference.estimate == pytest.approx(-0.1)
    assert grpo.perplexity_before == pytest.approx(7.389, abs=1e-3)


def measured_run(folder: Path, name: str, after: float, **other: object) -> RunDirectory:
    run = finished_run(folder, name)
    run.log_before_end(EVENT, **{"text": "t", "block": 512, "blocks": 3, "before": 2.0, "after": after} | other)
    return run


@pytest.mark.slow
def test_the_table_is_the_same_from_a_folder_and_from_kept_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    study = tmp_path / "study"
    for name, after in (("grpo.s0", 2.3), ("grpo.s1", 2.5), ("safe.s0", 2.1), ("safe.s1", 2.2)):
        measured_run(study, name, after)
    finished_run(study, "safe.s2")
    assert main(["general", str(study)]) == 0
    table = capsys.readouterr().out
    assert "| grpo | 2 | 7.39 | +0.4000 [" in table
    assert "| safe | 2 | 7.39 | +0.1500 [" in table
    assert "| -0.2500 [" in table
    assert "Not measured: safe.s2." in table
    file = tmp_path / "kept.jsonl.xz"
    assert keep.main([str(study), str(file)]) == 0
    capsys.readouterr()
    assert main(["general", str(file)]) == 0
    assert capsys.readouterr().out == table
    assert len(json.loads((tmp_path / "kept_summary/general.json").read_text())) == 2


def test_runs_without_a_measurement_or_with_different_texts_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    finished_run(tmp_path / "a", "grpo.s0")
    assert main(["general", str(tmp_path / "a")]) == REFUSED
    assert "was measured: python -m recipe.report perplexity --runs" in capsys.readouterr().err
    measured_run(tmp_path / "b", "grpo.s0", 2.1)
    for other in ({"text": "other"}, {"blocks": 4}, {"before": 3.0}):
        shutil.rmtree(tmp_path / "b" / "safe.s0", ignore_errors=True)
        measured_run(tmp_path / "b", "safe.s0", 2.1, **other)
        assert main(["general", str(tmp_path / "b")]) == REFUSED
        assert "the runs were measured differently" in capsys.readouterr().err


def test_a_measured_run_is_still_a_finished_one(tmp_path: Path):
    run = measured_run(tmp_path / "a", "grpo.s0", 2.1)
    assert run.finished
    assert state(run.events()) == "finished"
    assert [event["event"] for event in run.events()] == [EVENT, "end"]


@pytest.mark.slow
def test_a_kept_run_is_kept_again_once_it_was_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    study, file = tmp_path / "study", tmp_path / "kept.jsonl.xz"
    run = finished_run(study, "grpo.s0")
    assert keep.main([str(study), str(file)]) == 0
    run.log_before_end(EVENT, text="t", block=512, blocks=3, before=2.0, after=2.5)
    assert keep.main([str(study), str(file)]) == 0
    assert capsys.readouterr().out.endswith(f"1 runs kept in {file}, which had 0\n")
    assert main(["general", str(file)]) == 0
    assert "+0.5000" in capsys.readouterr().out


@pytest.mark.slow
def test_a_run_records_its_loss_once_for_a_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    before = tmp_path / "before"
    micro_model.make(before, seed=0)
    run = finished_run(tmp_path / "study", "grpo.s0")
    (tmp_path / "text.md").write_text("Held-out text of our own, long enough for several blocks of it. " * 8)
    monkeypatch.setattr(perplexity, "checkpoint", lambda run, step: Path("actor"))
    merged = []

    def merge(actor: Path, base: str, out: Path) -> None:
        merged.append(base)
        micro_model.make(out, seed=1)

    monkeypatch.setattr(perplexity, "merge", merge)
    command = ["perplexity", "--models", str(before), "--runs", str(run.path), "--text", str(tmp_path / "text.md")]
    assert main([*command, "--block", "64", "--blocks", "2"]) == 0
    assert capsys.readouterr().out.startswith("2 blocks of 64 tokens")
    found = general_loss(run)
    assert found is not None
    assert found.before != found.after
    assert list(run.path.glob(".exported*")) == []
    assert main([*command, "--block", "64", "--blocks", "2"]) == 0
    assert capsys.readouterr().out == f"measured before: {run.path}\n"
    assert len(merged) == 1
    assert main([*command, "--block", "64", "--blocks", "3"]) == 0
    assert len(merged) == 2
    (tmp_path / "text.md").write_text("Another text, which the run has not seen measured yet, long enough. " * 8)
    assert main([*command, "--block", "64", "--blocks", "2"]) == 0
    assert len(merged) == 3


def test_a_run_without_a_checkpoint_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    micro_model.make(tmp_path / "before", seed=0)
    (tmp_path / "text.md").write_text("text of several tokens")
    run = finished_run(tmp_path / "study", "grpo.s0")
    words = ["--models", str(tmp_path / "before"), "--runs", str(run.path), "--text", str(tmp_path / "text.md")]
    assert main(["perplexity", *words]) == REFUSED
    assert "has no checkpoint" in capsys.readouterr().err
