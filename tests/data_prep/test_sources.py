"""Laws of every source's command: the same arguments give the same files.

A smaller limit gives a subset; an interrupted run leaves no partial file and resumes where it stopped.
"""

import json
from pathlib import Path

import pytest

from data_prep import proving
from data_prep.tasks import read_tasks
from rewards.settings import JudgeSettings
from tests.data_prep.all_sources import SOURCES

pytestmark = pytest.mark.slow  # with the sandbox


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def ids_of(folder: Path) -> set[str]:
    return {task.id for path in folder.glob("*.jsonl") if path.name != "refused.jsonl" for task in read_tasks(path)}


def test_every_source_is_here():
    procedural = {"refactor", "sql", "arithmetic", "countdown"}
    assert SOURCES.keys() == procedural | {
        "mbpp", "humaneval", "bugs", "gsm8k", "codecontests", "graphs", "countdown_tasks", "maths",
    }  # fmt: skip


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_keeps_the_laws_of_all_sources(name, tmp_path, capsys, monkeypatch):
    source = SOURCES[name]
    (tmp_path / "programs").mkdir()
    given = source.arguments(tmp_path)
    judged: list[str] = []
    breaks_at = 0
    error_of = proving._error

    async def counted(task, judge):
        judged.append(task.id)
        if len(judged) == breaks_at:
            raise KeyboardInterrupt
        return await error_of(task, judge)

    monkeypatch.setattr(proving, "_BATCH", 1)
    monkeypatch.setattr(proving, "_error", counted)

    def made(out: str, limit: int) -> int:
        return source.main([*given, "--out", str(tmp_path / out), "--seed", "3", "--limit", str(limit)])

    capsys.readouterr()
    assert made("whole", 20) == 0
    printed = capsys.readouterr()
    whole, proofs = files_of(tmp_path / "whole"), len(judged)
    assert all(bar in printed.err for bar in ("making tasks", "proving solutions"))
    assert "0 rows have no solution to prove; 0 problems refused" in printed.out
    assert json.loads(whole["run_info.json"]) == {"experiment": None, "judge": JudgeSettings().record()}
    for parquet in (tmp_path / "whole").glob("*.parquet"):
        assert f"{parquet}: {len(read_tasks(parquet.with_suffix('.jsonl')))} rows" in printed.out

    assert made("less", 1) == 0
    assert ids_of(tmp_path / "less") <= ids_of(tmp_path / "whole")

    judged.clear()
    breaks_at = proofs
    with pytest.raises(KeyboardInterrupt):
        made("cut", 20)
    assert {path.name for path in (tmp_path / "cut").iterdir()} <= {".proved.jsonl", ".drawn.jsonl"}
    assert made("cut", 20) == 0
    assert judged[-1] == judged[-2]
    assert len(judged) == proofs + 1
    assert files_of(tmp_path / "cut") == whole
