"""The pages of docs/how-to that add something are carried out on a copy of the project, and end as they say."""

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from recipe.runtime.options import every_name
from recipe.settings import read_settings

ROOT = Path(__file__).parents[1]
HOW_TO = ROOT / "docs" / "how-to"
# Each page, and tests that list what there is: they hold for what the page adds without being touched.
PAGES = {
    "add_a_task": ("tests/rewards/test_reading.py",),
    "add_an_intervention": ("tests/recipe/test_settings.py", "-k", "refused_by_name"),
    "add_a_projection": (
        "tests/workers/test_projection.py", "tests/test_docs.py",
        "-k", "one_pass or names_every_group or violates_nothing or reports_is_true",
    ),
}  # fmt: skip
BLOCK = re.compile(r"^```(\w+)[ ]?(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COPIED = (
    "README.md", "configs", "data_prep", "docs", "recipe", "requirements", "rewards", "scripts", "tests", "workers",
    "pyproject.toml",
)  # fmt: skip

pytestmark = pytest.mark.slow


def copy_sources(folder: Path) -> Path:
    """Copy the sources into a folder, without caches; returns the folder."""
    for name in COPIED:
        source, ignored = ROOT / name, shutil.ignore_patterns("__pycache__")
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=ignored)
        else:
            shutil.copy(source, folder)
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the project."""
    return copy_sources(tmp_path)


def carry_out(page: str, project: Path) -> set[str]:
    """Writes the page's files, applies its patches and runs its commands; returns the files that it touched."""
    touched: set[str] = set()
    for language, name, text in BLOCK.findall((HOW_TO / f"{page}.md").read_text()):
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


@pytest.mark.parametrize("page", PAGES)
def test_a_page_does_what_it_says_with_at_most_four_files(page: str, project: Path) -> None:
    touched = carry_out(page, project)
    assert 1 <= len(touched) <= 4
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *PAGES[page]], cwd=project,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(project)}, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of a page that are written in a language."""
    return [text for found, name, text in BLOCK.findall((HOW_TO / f"{page}.md").read_text()) if found == language]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of what a recipe adds files to."""
    for folder in ("configs", "scripts"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_the_recipe_of_the_how_to_composes_and_its_launcher_runs_all_stages(copy: Path):
    (experiment,) = blocks("add_a_recipe", "yaml")
    (copy / "configs/experiment/arithmetic.yaml").write_text(experiment)
    launcher, check = blocks("add_a_recipe", "bash")
    subprocess.run(["bash", "-c", launcher], cwd=copy, check=True)
    files = {path.relative_to(copy) for path in copy.rglob("*") if path.is_file()}
    assert 2 <= len({path for path in files if not (ROOT / path).exists()}) <= 4

    with initialize_config_dir(str(copy / "configs"), version_base=None):
        config = compose("train", ["experiment=arithmetic"])
        for line in check.splitlines()[1:]:  # preflight and memory
            assert compose("train", line.split()[3:]).run.experiment == "arithmetic"
    assert read_settings(config).run.experiment == "arithmetic"
    assert (config.data.max_response_length, config.trainer.total_training_steps) == (512, 100)
    assert (config.data.train_batch_size, config.actor_rollout_ref.actor.optim.lr) == (32, 1e-6)  # GSM8K's

    this = {name: value for name, value in os.environ.items() if name.lower() not in every_name()}
    this |= {"PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-c", check.splitlines()[0]], cwd=copy, env=this, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    modules = re.findall(r"python -m (data_prep\S+|recipe\.(?:probe|train|export|evaluate))", done.stderr)
    assert [module.split(".")[-1] for module in modules] == [
        "arithmetic", "probe", "train", "export", "evaluate", "evaluate",
    ]  # fmt: skip
    assert find_spec(modules[0])
    (train,) = re.findall(r"recipe\.train (.*)", done.stderr)
    words = {"experiment=arithmetic", "data.max_response_length=512", "data.val_files=data/arithmetic/dev.parquet"}
    assert words <= set(train.split())
