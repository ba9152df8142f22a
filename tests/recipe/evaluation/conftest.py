from pathlib import Path

import pytest

from data_prep.tasks import Task, write_task_rows


def task(number: int, prompt: str | None = None, **fields) -> Task:
    """A problem whose right answer is its number."""
    content = {
        "id": f"own/{number}", "source": "own", "split": "test", "role": "test", "skill": "say", "verifier": "gsm8k",
        "prompt": prompt or f"say {number}", "ground_truth": {"answer": str(number)},
    }  # fmt: skip
    return Task.model_validate(content | fields)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Six problems: numbers 1 to 6."""
    path = tmp_path / "own.parquet"
    write_task_rows(path, [task(number) for number in range(1, 7)])
    return path
