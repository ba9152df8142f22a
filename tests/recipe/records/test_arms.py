from pathlib import Path

import pytest

from recipe.records.arms import finished_runs
from recipe.records.versions import RecordsError


def test_a_file_with_another_ending_is_refused_and_a_folder_without_runs_is_empty(tmp_path: Path):
    (tmp_path / "runs.xz").write_bytes(b"")
    with pytest.raises(RecordsError, match=r"runs\.xz is no folder of runs; files of recipe\.keep end in \.jsonl\.xz"):
        finished_runs(tmp_path / "runs.xz")
    assert finished_runs(tmp_path) == []
