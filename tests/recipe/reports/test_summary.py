import pytest
from omegaconf import OmegaConf

from recipe import keep
from recipe.records.run_directory import RunDirectory
from recipe.records.versions import VERSION
from recipe.report import main
from recipe.reports.summary import summarize
from tests.composing import composed


def _run(tmp_path, name: str, before: float, after: float, skill: str = "sql") -> RunDirectory:
    run = RunDirectory.prepare(str(tmp_path), "learning", name)
    for step, value in ((0, before), (30, after)):
        run.log_metrics(step, {f"skill/{skill}/accuracy": value, "skill/mean/accuracy": value})
    return run


def test_one_row_a_run_with_accuracy_before_and_after(tmp_path):
    runs = [_run(tmp_path, "seed0", 0.4, 0.75), _run(tmp_path, "seed1", 0.5, 0.45)]
    assert summarize(runs).splitlines() == [
        "| run | updates | sql | mean | change of the mean (points) | mean, greedy |",
        "|---|---:|---:|---:|---:|---:|",
        "| seed0 | 30 | 40.0 -> 75.0 | 40.0 -> 75.0 | +35.0 | - |",
        "| seed1 | 30 | 50.0 -> 45.0 | 50.0 -> 45.0 | -5.0 | - |",
        "",
        "The standard error of an accuracy was not recorded in 2 of 2 runs.",
        "",
        "Greedy accuracy was not measured in 2 of 2 runs.",
    ]


def test_greedy_accuracy_stands_beside_the_sampled_one(tmp_path):
    run = _run(tmp_path, "seed0", 0.4, 0.75)
    for step, sampled, greedy in ((0, 0.4, 0.7), (30, 0.75, 0.8)):
        run.log_metrics(step, {
            "skill/sql/accuracy": sampled, "skill/mean/accuracy": sampled, "skill/mean/greedy_accuracy": greedy,
            "skill/sql/standard_error": 0.019,
        })  # fmt: skip
    assert summarize([run]).splitlines()[2:] == ["| seed0 | 30 | 40.0 -> 75.0 | 40.0 -> 75.0 | +35.0 | 70.0 -> 80.0 |"]


def test_runs_of_different_skills_are_not_compared(tmp_path):
    with pytest.raises(ValueError, match="have different skills"):
        summarize([_run(tmp_path, "a", 0.1, 0.2), _run(tmp_path, "b", 0.1, 0.2, skill="trace")])


def test_the_runs_of_a_kept_file_give_the_rows_of_their_folders(tmp_path, capsys):
    runs = [_run(tmp_path, "seed0", 0.4, 0.75), _run(tmp_path, "seed1", 0.5, 0.45)]
    for run in runs:
        run.write_config(OmegaConf.create({"data": {"seed": 0}}))
        (run.path / "EXPERIMENT.md").write_text("report")
        run.log_event("end")
    file = tmp_path / "runs.jsonl.xz"
    keep.pack(tmp_path / "learning", file)
    assert main(["summary", str(file)]) == 0
    assert capsys.readouterr().out.strip() == summarize(runs)
    assert main(["summary", str(tmp_path / "learning")]) == 0
    assert capsys.readouterr().out.strip() == summarize(runs)


def test_a_folder_without_a_run_ends_with_a_message(tmp_path, capsys):
    assert main(["summary", str(tmp_path)]) == 2
    assert "holds no finished run" in capsys.readouterr().err


def test_a_run_without_a_validation_ends_with_a_message(tmp_path, capsys):
    run = RunDirectory.prepare(str(tmp_path), "learning", "seed0")
    run.write_config(OmegaConf.create({"data": {"seed": 0}}))
    assert main(["summary", str(run.path)]) == 2
    assert "holds no run with a validation" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_of_a_later_release_is_refused_by_its_version(tmp_path, capsys):
    run = RunDirectory.prepare(str(tmp_path), "e", "grpo.s0")
    run.write_config(composed("experiment=quickstart"))
    run.log_event("end")
    config = run.path / "config.yaml"
    config.write_text(config.read_text().replace(f"records_version: {VERSION}", "records_version: 99"))
    for words in (["summary", str(run.path)], ["online", str(run.path.parent)]):
        assert main(words) != 0
        assert "version 99 of the records" in capsys.readouterr().err
