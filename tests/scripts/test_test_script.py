"""CI runs scripts/test.sh, which names files that exist and every one with end-to-end tests."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"


def named(array: str) -> list[str]:
    """The elements of one of the script's arrays."""
    read = f"""eval "$(sed -n '/^{array}=(/,/)$/p' scripts/test.sh)"; printf '%s\\n' "${{{array}[@]}}\""""
    return subprocess.run(["bash", "-c", read], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()


def test_every_file_that_the_script_names_is_there() -> None:
    assert len(named("stack")) > 10
    assert [name for name in [*named("stack"), *named("e2e")] if not (ROOT / name).exists()] == []


def test_no_end_to_end_test_is_outside_the_files_in_which_the_script_looks_for_them() -> None:
    marked = [path for path in TESTS.rglob("test_*.py") if "pytest.mark.e2e" in path.read_text()]
    inside = [ROOT / name for name in named("e2e")]
    own = Path(__file__)
    assert len(marked) > 5
    assert [path for path in marked if path != own and not any(path.is_relative_to(place) for place in inside)] == []


def test_ci_runs_the_command_of_the_readme() -> None:
    ci = (ROOT / ".ci/run").read_text().splitlines()
    assert ci[0] == "#!/usr/bin/env bash"
    assert ci[-1] == "exec bash scripts/test.sh"
    assert os.access(ROOT / ".ci/run", os.X_OK)
    assert "bash scripts/test.sh " in (ROOT / "README.md").read_text()


def test_what_ci_leaves_out_runs_at_night() -> None:
    assert 'real="e2e" || real="e2e and not night"' in (ROOT / "scripts/test.sh").read_text()
    assert "bash scripts/test.sh night" in (ROOT / ".github/workflows/tests.yml").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("words", [[], ["night"], ["unit"], ["tests/test_docs.py"]])
@pytest.mark.parametrize(("failing", "status"), [(None, 0), ("ruff", 3), ("mypy", 4), ("python", 5)])
def test_the_status_is_that_of_what_failed(tmp_path: Path, words: list[str], failing: str | None, status: int) -> None:
    """The script among tools that do nothing but end, one of them with an error."""
    tools = dict.fromkeys(("ruff", "mypy", "python"), 0) | ({failing: status} if failing else {})
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/setup.sh").touch()
    (tmp_path / ".venv/bin").mkdir(parents=True)
    for name, ends_with in tools.items():
        (tmp_path / ".venv/bin" / name).write_text(f"#!/bin/sh\nexit {ends_with}\n")
        (tmp_path / ".venv/bin" / name).chmod(0o755)
    shutil.copy(ROOT / "scripts/test.sh", tmp_path / "scripts")
    environment = os.environ | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/chromium").touch(0o755)
    command = ["bash", "scripts/test.sh", *words]
    assert subprocess.run(command, cwd=tmp_path, env=environment, timeout=60).returncode == status
