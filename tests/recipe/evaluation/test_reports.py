"""Reports of supervised and preference training on the model before and after, without the training itself."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

import recipe.dpo
import recipe.sft
from data_prep.schema import write_rows
from data_prep.tasks import write_task_rows
from recipe import evaluate
from recipe.evaluation.verified import demonstrations, read_verified
from tests.models import make_model
from tests.recipe.evaluation.conftest import task
from tests.recipe.evaluation.openai_server import Behaviour, serving
from tests.recipe.evaluation.test_verified import evaluation, sample

pytestmark = pytest.mark.slow  # with HTTP servers and the sandbox

BROKEN, WRONG, RIGHT = "def f(:", "def f(): return 0", "def f(): return 1"


def code_rows(path: Path) -> Path:
    fields: dict[str, Any] = {"verifier": "code", "ground_truth": {"tests": ["assert f() == 1"]}}
    write_task_rows(path, [task(number, **fields) for number in range(4)])
    return path


@pytest.fixture
def models(monkeypatch):
    """Two models: of four programs, `before` writes two that do not parse and a wrong one, `after` only right ones."""
    written = {"before": [BROKEN, BROKEN, WRONG, RIGHT], "after": [RIGHT] * 4}

    def evaluate_model(model, data, out, *more):
        texts = written["after" if "after" in str(out) else "before"]
        with serving(Behaviour(text=lambda messages: texts[int(messages[0]["content"].split()[-1])])) as url:
            return evaluate.main(["--url", url, "--data", *data, "--out", str(out)])

    monkeypatch.setattr(recipe.sft, "evaluate_model", evaluate_model)
    monkeypatch.setattr(recipe.dpo, "evaluate_model", evaluate_model)


def changes(path: Path) -> dict[str, tuple[float, float]]:
    return {row["metric"]: (row["base"], row["trained"]) for row in json.loads(path.read_text())}


def test_supervised_training_reports_programs_that_run_and_errors_of_syntax(tmp_path, models, monkeypatch):
    def train(config, folder, overrides):
        (folder / "global_step_9" / "huggingface").mkdir(parents=True)
        return 0

    monkeypatch.setattr(recipe.sft, "train_under_torchrun", train)
    solved, _ = read_verified([evaluation(tmp_path, [task(1, role="train")], [sample("own/1", 0, "x", 1.0)]).path])
    write_rows(tmp_path / "train.parquet", demonstrations(solved, 1))
    config = OmegaConf.create(
        {
            "trainer": {"default_local_dir": str(tmp_path / "out"), "device": "cpu", "n_gpus_per_node": 1},
            "checkpoint": {"save_contents": ["hf_model"]},
            "model": {"path": str(make_model(tmp_path / "m"))},
            "data": {"train_files": str(tmp_path / "train.parquet"), "max_length": 256},
            "verified": {"evaluations": []},
            "report": {"data": [f"dev={code_rows(tmp_path / 'dev.parquet')}"], "sampling": "eval@1", "options": ""},
            "precision": "float32",
        }
    )
    assert recipe.sft.launch(config) == 0
    found = changes(tmp_path / "out" / "report.json")
    assert (found["exec_success_rate"], found["syntax_error_rate"]) == ((0.5, 1.0), (0.5, 0.0))


def test_preference_training_reports_reward_accuracy_and_answers_that_earn_nothing(tmp_path, models, monkeypatch):
    class Trained:
        returncode = 0

    def train(command, **options):
        (tmp_path / "out" / "metrics.jsonl").write_text('{"eval_rewards/accuracies": 0.75}\n')
        return Trained()

    monkeypatch.setattr(recipe.dpo, "PYTHON", tmp_path)
    monkeypatch.setattr(subprocess, "run", train)
    tasks = [task(number, role="train") for number in range(40)]
    texts = [sample(one.id, n, f"x = {n}", float(n)) for one in tasks for n in (0, 1)]
    words = ["--model", str(make_model(tmp_path / "m")), "--evaluations", str(evaluation(tmp_path, tasks, texts).path)]
    words += ["--out", str(tmp_path / "out"), "--report", f"dev={code_rows(tmp_path / 'dev.parquet')}"]
    assert recipe.dpo.main(words) == 0
    assert json.loads((tmp_path / "out" / "training.json").read_text()) == {"reward_accuracy": 0.75}
    assert changes(tmp_path / "out" / "report.json")["zero_reward_rate"] == (0.75, 0.0)
