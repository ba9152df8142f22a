"""Every file that a source makes loads through verl's own dataset class, and each row's gold answer scores the maximum.

Sources whose verifier is not registered join by themselves as soon as it is.
"""

import asyncio
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from verl.utils.dataset.rl_dataset import RLHFDataset

from data_prep import (
    arithmetic,
    bugs,
    codecontests,
    countdown,
    countdown_tasks,
    graphs,
    gsm8k,
    humaneval,
    mbpp,
    micro,
    refactor,
    sql,
)
from data_prep.micro_model import make_tokenizer
from data_prep.tasks import read_tasks
from rewards import compute_score, registry
from tests.data_prep.task_examples import write_lines
from tests.data_prep.test_public_sets import codecontests_record, humaneval_record, mbpp_record


def _mbpp(folder: Path) -> int:
    path = write_lines(folder / "mbpp.jsonl", *(mbpp_record(number, text=f"Larger {number}.") for number in (611, 612)))
    return mbpp.main(["--out", str(folder), "--from-file", f"train={path}"])


def _humaneval(folder: Path) -> int:
    path = write_lines(folder / "humaneval.jsonl", humaneval_record())
    return humaneval.main(["--out", str(folder), "--from-file", f"test={path}"])


def _bugs(folder: Path) -> int:
    assert _mbpp(folder / "programs") == 0
    return bugs.main(["--tasks", str(folder / "programs/train.jsonl"), "--out", str(folder)])


def _gsm8k(folder: Path) -> int:
    path = write_lines(folder / "gsm8k.jsonl", {"question": "6 x 7?", "answer": "6*7=<<6*7=42>>42\n#### 42"})
    return gsm8k.main(["--out", str(folder), "--from-file", f"train={path}"])


def _codecontests(folder: Path) -> int:
    path = write_lines(folder / "contests.jsonl", codecontests_record())
    return codecontests.main(["--out", str(folder), "--from-file", f"valid={path}"])


def _countdown_tasks(folder: Path) -> int:
    path = write_lines(folder / "countdown.jsonl", {"target": 98, "nums": [44, 19, 35]})
    return countdown_tasks.main(["--out", str(folder), "--from-file", f"train={path}"])


SOURCES = {
    "mbpp": ("code", _mbpp),
    "humaneval": ("code", _humaneval),
    "bugs": ("code", _bugs),
    "refactor": ("refactor", lambda folder: refactor.main(["--out", str(folder), "--limit", "10"])),
    "sql": ("sql", lambda folder: sql.main(["--out", str(folder), "--limit", "6"])),
    "gsm8k": ("gsm8k", _gsm8k),
    "arithmetic": ("gsm8k", lambda folder: arithmetic.main(["--out", str(folder), "--limit", "10"])),
    "codecontests": ("stdio", _codecontests),
    "graphs": ("mcp", lambda folder: graphs.main(["--out", str(folder), "--limit", "16", "--levels", "1", "2"])),
    "countdown_tasks": ("countdown", _countdown_tasks),
    "countdown": ("countdown", lambda folder: countdown.main(["--out", str(folder), "--limit", "10"])),
}
KNOWN = [name for name, (verifier, _) in SOURCES.items() if verifier in registry.names()]


def load(files: list[Path], folder: Path, max_prompt_length: int = 4096) -> RLHFDataset:
    config = {
        "cache_dir": str(folder / "cache"),
        "max_prompt_length": max_prompt_length,
        "filter_overlong_prompts": True,
        "filter_overlong_prompts_workers": 1,
    }
    return RLHFDataset([str(file) for file in files], make_tokenizer(max_prompt_length), OmegaConf.create(config))


@pytest.mark.slow  # with the sandbox
@pytest.mark.parametrize("name", KNOWN)
async def test_rows_load_and_their_gold_answers_score_the_maximum(name, tmp_path):
    folder = tmp_path / "made"
    folder.mkdir()
    (folder / "programs").mkdir()
    assert await _in_thread(SOURCES[name][1], folder) == 0
    files = sorted(folder.glob("*.parquet"))
    dataset = load(files, tmp_path)
    tasks = {task.id: task for file in files for task in read_tasks(file.with_suffix(".jsonl"))}
    assert len(dataset) == len(tasks) > 0
    for row in (dataset[index] for index in range(len(dataset))):
        solution = tasks[row["extra_info"]["id"]].solution
        assert row["raw_prompt"][0]["role"] == "user"
        result = await compute_score(row["data_source"], solution, row["reward_model"]["ground_truth"], timeout=10.0)
        assert (result["score"], result["acc"]) == (1.0, 1.0), row["extra_info"]["id"]


async def _in_thread(make, folder):
    """Commands run an event loop of their own."""
    return await asyncio.to_thread(make, folder)


def test_the_micro_suite_loads(tmp_path):
    micro.make(tmp_path, limit=5, demonstration_count=8)
    assert len(load([tmp_path / "train.parquet"], tmp_path)) == 20


def test_prompts_that_are_too_long_are_left_out_and_counted(tmp_path, capsys):
    assert sql.main(["--out", str(tmp_path), "--limit", "6"]) == 0
    lengths = sorted(len(task.prompt.encode()) + 4 for task in read_tasks(tmp_path / "train.jsonl"))
    dataset = load([tmp_path / "train.parquet"], tmp_path, max_prompt_length=lengths[2])
    assert len(dataset) == sum(length <= lengths[2] for length in lengths)
    assert f"filter dataset len: {len(dataset)}" in capsys.readouterr().out
