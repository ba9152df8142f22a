"""CI runs scripts/test.sh, which names files that exist and every one with end-to-end tests."""

import os
import subprocess
from pathlib import Path

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
