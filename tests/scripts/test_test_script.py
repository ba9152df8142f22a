"""Every file that scripts/test.sh names must exist, and it must name every file with end-to-end tests."""

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
