"""Every file that scripts/test.sh runs in a separate process must exist."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_file_that_the_script_names_is_there() -> None:
    read = """eval "$(sed -n '/^stack=(/,/)$/p' scripts/test.sh)"; printf '%s\\n' "${stack[@]}\""""
    named = subprocess.run(["bash", "-c", read], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert len(named) > 10
    assert [name for name in named if not (ROOT / name).exists()] == []
