"""Every file that a source makes loads through verl's own dataset class, and gold answers score the maximum."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from verl.utils.dataset.rl_dataset import RLHFDataset

from data_prep.micro import suite
from data_prep.micro.model import make_tokenizer
from data_prep.sources import sql
from data_prep.tasks import read_tasks
from rewards import compute_score
from tests.data_prep.all_sources import SOURCES

pytestmark = pytest.mark.slow


def load(files: list[Path], folder: Path, max_prompt_length: int = 4096) -> RLHFDataset:
    config = {
        "cache_dir": str(folder / "cache"),
        "max_prompt_length": max_prompt_length,
        "filter_overlong_prompts": True,
        "filter_overlong_prompts_workers": 1,
    }
    tokenizer: Any = make_tokenizer(max_prompt_length)  # verl's annotation leaves the fast ones out
    return RLHFDataset([str(file) for file in files], tokenizer, OmegaConf.create(config))


@pytest.mark.slow  # with the sandbox
@pytest.mark.parametrize("name", SOURCES)
async def test_rows_load_and_their_gold_answers_score_the_maximum(name, tmp_path):
    folder = tmp_path / "made"
    folder.mkdir()
    (folder / "programs").mkdir()
    assert await asyncio.to_thread(_made, name, folder) == 0
    files = sorted(folder.glob("*.parquet"))
    dataset = load(files, tmp_path)
    tasks = {task.id: task for file in files for task in read_tasks(file.with_suffix(".jsonl"))}
    assert len(dataset) == len(tasks) > 0
    for row in (dataset[index] for index in range(len(dataset))):
        solution = tasks[row["extra_info"]["id"]].solution
        assert solution is not None
        assert row["raw_prompt"][0]["role"] == "user"
        result = await compute_score(row["data_source"], solution, row["reward_model"]["ground_truth"], timeout=10.0)
        assert (result["score"], result["acc"]) == (1.0, 1.0), row["extra_info"]["id"]


def _made(name: str, folder: Path) -> int:
    """Commands run their own event loop."""
    source = SOURCES[name]
    return source.main([*source.arguments(folder), "--out", str(folder), "--limit", "10"])


def test_the_micro_suite_loads(tmp_path):
    suite.make(tmp_path, limit=5, demonstration_count=8)
    assert len(load([tmp_path / "train.parquet"], tmp_path)) == 20


def test_prompts_that_are_too_long_are_left_out_and_counted(tmp_path, capsys):
    assert sql.main(["--out", str(tmp_path), "--limit", "6"]) == 0
    lengths = sorted(len(task.prompt.encode()) + 4 for task in read_tasks(tmp_path / "train.jsonl"))
    dataset = load([tmp_path / "train.parquet"], tmp_path, max_prompt_length=lengths[2])
    assert len(dataset) == sum(length <= lengths[2] for length in lengths)
    assert f"filter dataset len: {len(dataset)}" in capsys.readouterr().out
