"""The pages of docs/how-to that add something are carried out on a copy of the project, and end as they say."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs" / "how-to").glob("add_*.md"))
BLOCK = re.compile(r"^```(\w+)[ ]?(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COPIED = ("configs", "data_prep", "recipe", "rewards", "tests", "workers", "pyproject.toml")

pytestmark = pytest.mark.slow


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the sources, without caches."""
    for name in COPIED:
        source, ignored = ROOT / name, shutil.ignore_patterns("__pycache__")
        if source.is_dir():
            shutil.copytree(source, tmp_path / name, ignore=ignored)
        else:
            shutil.copy(source, tmp_path)
    return tmp_path


def carry_out(page: Path, project: Path) -> set[str]:
    """Writes the page's files, applies its patches and runs its commands; returns the files that it touched."""
    touched: set[str] = set()
    for language, name, text in BLOCK.findall(page.read_text()):
        if language == "diff":
            patch = ["git", "apply", "--recount", "-"]
            done = subprocess.run(patch, cwd=project, input=text, capture_output=True, text=True)
            assert done.returncode == 0, done.stdout + done.stderr
            touched |= set(re.findall(r"^\+\+\+ b/(\S+)", text, re.MULTILINE))
        elif name:
            assert not (project / name).exists(), f"{name} is there already"
            (project / name).write_text(text)
            touched.add(name)
        elif language == "bash":
            for command in text.replace("\\\n", " ").splitlines():
                words = command.replace("python -m", f"{sys.executable} -m", 1)
                done = subprocess.run(
                    ["bash", "-c", words], cwd=project, env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(project)},
                    capture_output=True, text=True, timeout=300,
                )  # fmt: skip
                assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return touched


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_does_what_it_says_with_at_most_four_files(page: Path, project: Path) -> None:
    touched = carry_out(page, project)
    assert 1 <= len(touched) <= 4


def test_every_page_is_there() -> None:
    assert {"add_a_task", "add_an_intervention", "add_a_projection", "add_a_recipe"} <= {page.stem for page in PAGES}
