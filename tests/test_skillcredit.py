"""The command `skillcredit`, run as pip installs it: a script elsewhere, while site-packages has a `recipe` too."""

import os
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from skillcredit import commands, purpose

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
# What pip writes, but for the import: an environment that was made for an earlier version does not know the module.
SCRIPT = f"""\
#!{sys.executable}
import importlib.util, sys
spec = importlib.util.spec_from_file_location("skillcredit", {str(ROOT / "skillcredit.py")!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
{{before}}
sys.exit(module.main())
"""


@pytest.fixture
def skillcredit(tmp_path: Path):
    """Run the command in an empty folder without PYTHONPATH; `before`: a line of Python that runs first."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "folder").mkdir()

    def run(*arguments: str, before: str = "") -> subprocess.CompletedProcess[str]:
        script = tmp_path / "bin" / "skillcredit"
        script.write_text(SCRIPT.format(before=before))
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run(
            [sys.executable, str(script), *arguments],
            cwd=tmp_path / "folder", env=environment, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip

    return run


def test_the_entry_point_is_a_function_of_a_module_that_no_other_distribution_has() -> None:
    assert PROJECT["project"]["scripts"] == {"skillcredit": "skillcredit:main"}
    assert PROJECT["tool"]["setuptools"]["py-modules"] == ["skillcredit"]
    assert (ROOT / "skillcredit.py").is_file()


def test_every_module_of_recipe_is_a_command_with_a_purpose() -> None:
    found = commands()
    assert {"train", "preflight", "evaluate", "micro_start", "study"} <= found.keys()
    packages = {file.parent.name: file for file in (ROOT / "recipe").glob("*/__main__.py")}
    files = {file.stem: file for file in (ROOT / "recipe").glob("[!_]*.py")} | packages
    assert found.keys() == files.keys() > packages.keys()
    for name, text in found.items():
        assert text[0].isupper(), name
        assert text.endswith("."), name
        assert "``" not in text, name
        assert f"python -m recipe.{name}" in files[name].read_text(), name
        assert '\nif __name__ == "__main__":\n' in files[name].read_text(), name


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        ("Train a model: ``python -m x key=value ...``.\n\nMore. And more.", "Train a model."),
        ("A check: ``python -m x ...`` finds\nfaults. Then more.", "A check finds faults."),
        ("Pack runs.", "Pack runs."),
        ("Version 0.9 of it", "Version 0.9 of it"),
    ],
)
def test_a_purpose_is_the_first_sentence_without_its_command_line(docstring: str, expected: str) -> None:
    assert purpose(docstring) == expected


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_the_list_names_every_command_and_imports_none(skillcredit, arguments: list[str]) -> None:
    report = "import atexit; atexit.register(lambda: print('loaded', {'torch', 'hydra', 'ray'} & set(sys.modules)))"
    answer = skillcredit(*arguments, before=report)
    assert (answer.returncode, answer.stderr) == (0, "")
    lines = answer.stdout.splitlines()
    assert lines[0] == "usage: skillcredit COMMAND [ARGUMENT ...]"
    assert lines[-1] == "loaded set()"
    assert dict(line.split(maxsplit=1) for line in lines if line.startswith("  ")) == commands()


def test_the_version_is_that_of_the_project(skillcredit) -> None:
    answer = skillcredit("--version")
    assert (answer.returncode, answer.stdout) == (0, f"verl-skillcredit {PROJECT['project']['version']}\n")


@pytest.mark.parametrize(("name", "hint"), [("trian", "Did you mean train? Valid: "), ("qqq", "Valid: ")])
def test_an_unknown_command_is_refused_with_the_nearest(skillcredit, name: str, hint: str) -> None:
    answer = skillcredit(name, "--help")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr == f"skillcredit: no command {name!r}. {hint}{', '.join(commands())}\n"


@pytest.mark.parametrize("name", ["memory", "report"])
def test_a_command_explains_itself_under_the_name_that_was_typed(skillcredit, name: str) -> None:
    answer = skillcredit(name, "--help")
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith(f"usage: skillcredit {name} [-h]")


def test_the_exit_status_and_the_arguments_are_the_commands(skillcredit, tmp_path: Path) -> None:
    answer = skillcredit("doctor", str(tmp_path))
    assert answer.returncode == 2
    assert answer.stderr.startswith(f"recipe.doctor: {tmp_path} is not a run directory")
    assert skillcredit("doctor", "--rules").stdout.startswith("| finding |")


def test_hydra_composes_this_checkouts_configuration_from_any_folder(skillcredit) -> None:
    answer = skillcredit("train", "experiment=quickstart", "trainer.total_training_steps=7", "--cfg", "job")
    assert answer.returncode == 0, answer.stderr
    assert "  total_training_steps: 7\n" in answer.stdout
    assert "  experiment: quickstart\n" in answer.stdout


def test_processes_that_a_command_starts_find_this_checkout(skillcredit) -> None:
    children = (
        "import atexit, subprocess; atexit.register(lambda: subprocess.run("
        "[sys.executable, '-c', 'import recipe.runtime.options as o; print(o.__file__)']))"
    )
    answer = skillcredit("doctor", "--rules", before=children)
    assert answer.stdout.splitlines()[-1] == str(ROOT / "recipe" / "runtime" / "options.py")


def test_a_folder_with_other_packages_of_these_names_is_refused(skillcredit, tmp_path: Path) -> None:
    for name in ("recipe", "workers"):
        (tmp_path / "folder" / name).mkdir()
    (tmp_path / "folder" / "recipe" / "__init__.py").touch()
    answer = skillcredit("doctor", "--rules")
    assert answer.returncode == 2
    assert answer.stderr.startswith(f"skillcredit: Python found another package named recipe, not the one in {ROOT} [")
    assert str(tmp_path / "folder" / "recipe") in answer.stderr
    assert "workers" not in answer.stderr  # without __init__.py it hides no package


def test_an_environment_of_an_earlier_version_has_it_as_a_module() -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "skillcredit"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert answer.stdout.startswith("usage: skillcredit COMMAND [ARGUMENT ...]\n")


def test_site_packages_has_a_recipe_that_an_entry_point_there_would_find() -> None:
    """Why `skillcredit` is a module beside the packages; once no distribution installs one, it can go."""
    verl = find_spec("verl")
    assert verl is not None
    assert verl.origin is not None
    assert (Path(verl.origin).parents[1] / "recipe").is_dir()
