"""The command: its files and messages; it needs neither verl nor Ray."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from examples.toys import counted_tests, grid_study, turns
from examples.toys.__main__ import main

pytestmark = pytest.mark.slow  # each runs the command


def test_credit_writes_table_numbers_and_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["credit", "--seeds", "6", "--limit", "3", "--learning-rate", "4", "--out", str(tmp_path / "a")]) == 0
    printed = capsys.readouterr().out
    assert (tmp_path / "a/results.md").read_text() == printed
    record = json.loads((tmp_path / "a/results.json").read_text())
    assert record["run"]["seeds"] == 6
    assert len(record["results"]) == 25
    assert f"{record['results'][0]['steps']['estimate']:.1f}" in printed.splitlines()[2]
    assert (tmp_path / "a/steps_to_solve.png").read_bytes().startswith(b"\x89PNG")


def test_projection_writes_table_numbers_and_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--seeds", "4", "--updates", "5", "--cosines", "1", "0.5", "--epsilons", "0.1", "--out", str(tmp_path)]
    assert main(["projection", *arguments]) == 0
    assert (tmp_path / "results.md").read_text() == capsys.readouterr().out
    record = json.loads((tmp_path / "results.json").read_text())
    assert record["run"] == {"seeds": 4, "updates": 5, "seed": 0}
    assert len(record["results"]) == 18
    assert (tmp_path / "gain_and_forgetting.png").read_bytes().startswith(b"\x89PNG")


def test_turns_write_table_and_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["turns", "--seeds", "3", "--updates", "3", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert (tmp_path / "results.md").read_text() == printed
    assert [line.count("|") for line in printed.splitlines()] == [8] * (2 + 2 * len(turns.ARMS))
    record = json.loads((tmp_path / "results.json").read_text())
    assert record["run"] == {"seeds": 3, "updates": 3, "seed": 0}
    assert record["results"][0]["ahead"]["estimate"] == 0  # of GRPO from itself


def test_a_wrong_setting_ends_with_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["credit", "--group", "1"]) == 2
    assert "group must be >= 2" in capsys.readouterr().err
    assert main(["projection", "--cosines", "2"]) == 2
    assert "cosine must lie in (0, 1]" in capsys.readouterr().err


def test_grid_writes_one_table_numbers_and_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grid_study, "SETTINGS", grid_study.SETTINGS[:2])
    monkeypatch.setattr(grid_study, "LARGE_SETTINGS", ())
    assert main(["grid", "--seeds", "6", "--limit", "3", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert (tmp_path / "results.md").read_text() == printed
    assert len(printed.splitlines()) == 2 + len(grid_study.ARMS)
    record = json.loads((tmp_path / "results.json").read_text())
    assert record["run"] == {"seeds": 6, "limit": 3, "seed": 0}
    assert len(record["results"]) == 2 * len(grid_study.ARMS)
    assert record["ratios"]["best"]["grpo"]["estimate"] == 1
    assert (tmp_path / "grid.png").read_bytes().startswith(b"\x89PNG")
    monkeypatch.setattr(grid_study, "at_best_rate", None)  # finished results are read, not made again
    assert main(["grid", "--seeds", "6", "--limit", "3", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out == printed


def test_it_runs_without_verl_and_ray() -> None:
    code = "import sys, examples.toys.__main__; print(sorted({'ray', 'verl', 'quadprog'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_tests_writes_one_table_and_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counted_tests, "SETTINGS", counted_tests.SETTINGS[:2])
    assert main(["tests", "--seeds", "6", "--limit", "3", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert (tmp_path / "results.md").read_text() == printed
    assert len(printed.splitlines()) == 2 + len(counted_tests.ARMS)
    assert "redistribute, siblings, delete, open, known tests" in printed
    record = json.loads((tmp_path / "results.json").read_text())
    assert len(record["results"]) == 2 * len(counted_tests.ARMS)
