"""Packages of another checkout are refused before their imports can fail."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from recipe.checks import packages

pytestmark = pytest.mark.slow


def test_this_checkout_is_accepted() -> None:
    assert packages.foreign() == []
    assert f"rewards from {packages.CHECKOUT / 'rewards'}" in packages.describe()


@pytest.mark.parametrize("name", ["workers", "rewards", "data_prep", "configs"])
def test_a_foreign_package_in_the_working_directory_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").touch()
    answer = _run(tmp_path, "import recipe.checks.packages")
    assert answer.returncode == 2
    assert f"another package named {name}" in answer.stderr
    assert str(tmp_path / name) in answer.stderr
    assert f"export PYTHONPATH={packages.CHECKOUT}" in answer.stderr


def test_a_foreign_recipe_is_refused(tmp_path: Path) -> None:
    """An editable install finds our modules under a foreign ``recipe``; here our folder is appended to its path."""
    (tmp_path / "recipe").mkdir()
    (tmp_path / "recipe" / "__init__.py").touch()
    ours = str(packages.CHECKOUT / "recipe")
    answer = _run(tmp_path, f"import recipe; recipe.__path__.append({ours!r}); import recipe.checks.packages")
    assert answer.returncode == 2
    assert "another package named recipe" in answer.stderr


def _run(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(packages.CHECKOUT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
