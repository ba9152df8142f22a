"""`python -m recipe.memory` prints the table in the documentation; its exit status reports whether a run fits."""

import json
import sys
from pathlib import Path

import pytest

from recipe import memory
from recipe.capacity import supervised
from recipe.memory import main, preset_table, read_plan

pytestmark = pytest.mark.slow  # each composes a configuration

DOCS = Path(__file__).parents[2] / "docs" / "how-to" / "gpus_and_clusters.md"


def rows(text: str) -> list[list[str]]:
    """Cells of the rows of a Markdown table whose first cell is a preset."""
    cells = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in text.splitlines()]
    return [row for row in cells if row[0] in memory.presets()]


@pytest.mark.slow
def test_the_table_in_the_documentation_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    Console(width=120).print(preset_table(["platform=gpu_1x8"], 79.0))
    printed = rows(capsys.readouterr().out)
    assert len(printed) == 14
    assert rows(DOCS.read_text()) == printed


def test_a_run_that_fits_is_printed_and_exits_zero(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["platform=gpu_1x8", "model_preset=qwen2_5_7b", "run.experiment=test", *memory.WORKLOAD]
    monkeypatch.setattr(sys, "argv", ["memory", *words])
    assert main() == 0
    assert "4 engines of 2 GPUs" in capsys.readouterr().out


def test_a_run_that_cannot_work_says_why_and_exits_non_zero(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["platform=gpu_1x8", "model_preset=qwen2_5_7b", "run.experiment=test", *memory.WORKLOAD]
    monkeypatch.setattr(sys, "argv", ["memory", "--gib", "40", *words, "trainer.n_gpus_per_node=6"])
    assert main() == 2
    assert "does not work: actor_rollout_ref.actor.ppo_mini_batch_size=64" in capsys.readouterr().out


def test_an_unknown_model_is_a_message_and_not_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["platform=gpu_1x8", "run.experiment=test", "actor_rollout_ref.model.path=nobody/none"]
    monkeypatch.setattr(sys, "argv", ["memory", *words])
    assert main() == 2
    assert "no plan: actor_rollout_ref.model.path=nobody/none" in capsys.readouterr().out


def test_settings_that_cannot_be_used_are_a_message_and_not_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["platform=gpu_1x8", "model_preset=qwen2_5_7b", "run.experiment=test", *memory.WORKLOAD]
    monkeypatch.setattr(sys, "argv", ["memory", *words, "skills=any", "projection=qp"])
    assert main() == 2
    assert "projection needs skills.names" in capsys.readouterr().out


@pytest.mark.parametrize(("capacity", "status"), [(10**12, 0), (10**9, 2)])
def test_a_supervised_training_is_planned_without_its_rows(tmp_path, monkeypatch, capsys, capacity, status):
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    more = {"num_key_value_heads": 2, "vocab_size": 512, "max_position_embeddings": 512, "model_type": "qwen2"}
    (tmp_path / "config.json").write_text(json.dumps(sizes | more))
    monkeypatch.setattr(supervised, "machine_memory", lambda: capacity)
    words = ["--supervised", "215", "sft_experiment=english", f"model.path={tmp_path}"]
    monkeypatch.setattr(sys, "argv", ["memory", *words, f"trainer.default_local_dir={tmp_path}/out"])
    assert main() == status
    printed = capsys.readouterr().out
    assert f"supervised training of {tmp_path}: " in printed
    assert ("does not work: the supervised training" in printed) == (status == 2)


def test_the_cpu_platform_is_planned_with_the_machines_own_memory(tmp_path: Path) -> None:
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    more = {"num_key_value_heads": 2, "vocab_size": 512, "max_position_embeddings": 512, "model_type": "qwen2"}
    (tmp_path / "config.json").write_text(json.dumps(sizes | more))
    plan = read_plan(["experiment=quickstart", f"actor_rollout_ref.model.path={tmp_path}"], 1.0)
    assert plan.layout.capacity > 2 * 2**30
    assert plan.sizes.on_cpu
