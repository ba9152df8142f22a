import json
import subprocess
from pathlib import Path

import pytest
from omegaconf import DictConfig

from recipe import compare_skills
from recipe.records.run_directory import RunDirectory
from tests.composing import composed

pytestmark = pytest.mark.slow  # with whole run directories


@pytest.fixture(scope="module")
def config() -> DictConfig:
    return composed(
        "experiment=paper_b", "protocol.stage_steps=2", "protocol.skill_sequence=[write,sql]", "projection=qp"
    )


def finish(folder: Path, config: DictConfig, name: str, kept: float, epsilon: float = 0.0, end: bool = True) -> None:
    """A run in which `write` falls from 0.8 to this, and `sql` ends at 0.9."""
    run = RunDirectory.prepare(str(folder), "b", name)
    own = config.copy()
    own.projection.epsilon = epsilon
    own.run.directory = str(run.path)
    run.write_config(own)
    for step, write, sql in ((0, 0.5, 0.2), (2, 0.8, 0.2), (3, None, None), (4, kept, 0.9)):
        accuracy = {"skill/write/accuracy": write, "skill/sql/accuracy": sql, "skill/mean/accuracy": 0.5}
        run.log_metrics(step, accuracy if write is not None else {})
    if end:
        run.log_event("end")


def test_finished_runs_of_an_arm_make_one_row(tmp_path: Path, config: DictConfig, capsys):
    finish(tmp_path, config, "grpo.forward.s0", 0.4)
    finish(tmp_path, config, "grpo.forward.s1", 0.6)
    finish(tmp_path, config, "qp.forward.s0", 0.8)
    finish(tmp_path, config, "qp.forward.s1", 0.1, end=False)
    assert compare_skills.main([str(tmp_path / "b")]) == 0
    lines = (tmp_path / "b" / "summary" / "arms.md").read_text().splitlines()
    assert lines[2].startswith(
        "| grpo | 2 | 70.0 [65.0, 75.0] | 50.0 [40.0, 60.0] | 30.0 [20.0, 40.0] | 90.0 [90.0, 90.0] |"
    )
    assert lines[3] == "| qp | 1 | 85.0 | 80.0 | 0.0 | 90.0 | 384 |"
    assert len(lines) == 4
    assert [run["run"] for run in json.loads((tmp_path / "b" / "summary" / "arms.json").read_text())] == [
        "grpo.forward.s0", "grpo.forward.s1", "qp.forward.s0"
    ]  # fmt: skip
    assert lines[3] in capsys.readouterr().out


def test_a_sweep_has_a_point_for_each_epsilon(tmp_path: Path, config: DictConfig):
    finish(tmp_path, config, "epsilon0.0.s0", 0.8)
    finish(tmp_path, config, "epsilon0.1.s0", 0.6, epsilon=0.1)
    assert compare_skills.main([str(tmp_path / "b"), "--pareto", "--out", str(tmp_path / "out")]) == 0
    points = json.loads((tmp_path / "out" / "pareto.json").read_text())
    assert [(point["epsilon"], round(point["forgetting"]["mean"], 6)) for point in points] == [(0.0, 0.0), (0.1, 0.2)]


def test_a_folder_without_finished_runs_is_told(tmp_path: Path, capsys):
    assert compare_skills.main([str(tmp_path)]) == 2
    assert "holds no finished run" in capsys.readouterr().err


def shell(script: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, env={"PATH": "/usr/bin:/bin", **environment}
    )


def test_the_scripts_do_a_run_once_and_go_on_after_one_that_fails(tmp_path: Path):
    (tmp_path / "b" / "grpo.s0").mkdir(parents=True)
    (tmp_path / "b" / "grpo.s0" / "events.jsonl").write_text('{"event": "end"}\n')
    calls = "source scripts/arms_b.sh; " + "; ".join(
        f"run_once {tmp_path}/b {arm} {arm}.s0 x=1" for arm in ("grpo", "ewc", "kl")
    )
    done = shell(calls, PYTHON="echo python")
    assert "grpo.s0: finished before" in done.stdout
    assert f"-m recipe.train baseline=ewc run.root={tmp_path} run.experiment=b run.name=ewc.s0 x=1" in done.stdout
    assert "kl.s0 failed" in shell(calls, PYTHON="false").stderr


def test_an_unknown_arm_and_scale_are_refused_with_the_valid_ones(tmp_path: Path):
    unknown = shell(f"source scripts/arms_b.sh; run_once {tmp_path} hope hope.s0")
    assert unknown.returncode == 2
    assert "qp_solutions" in unknown.stderr
    assert "run_paper_b.sh toy" in shell("bash scripts/run_paper_b.sh huge").stderr


def test_the_words_of_every_arm_name_files_that_are_there():
    words = shell("source scripts/arms_b.sh; echo ${ARM_WORDS[@]}").stdout.split()
    choices = [word.split("=") for word in words if "." not in word]
    missing = [choice for choice in choices if not Path("configs", choice[0], f"{choice[1]}.yaml").exists()]
    assert len(choices) >= 14
    assert not missing
