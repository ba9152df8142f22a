"""The examples of docs/how-to work when a reader carries them out."""

import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from recipe.settings import read_settings

pytestmark = pytest.mark.slow  # composes a configuration and starts a shell

ROOT = Path(__file__).parents[2]


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of a page of docs/how-to that are written in a language."""
    text = (ROOT / "docs" / "how-to" / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of what a recipe adds files to."""
    for folder in ("configs", "scripts"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_the_recipe_of_the_how_to_composes_and_its_launcher_runs_all_stages(copy: Path):
    (experiment,) = blocks("add_a_recipe.md", "yaml")
    (copy / "configs/experiment/arithmetic.yaml").write_text(experiment)
    launcher, check = blocks("add_a_recipe.md", "bash")
    subprocess.run(["bash", "-c", launcher], cwd=copy, check=True)

    with initialize_config_dir(str(copy / "configs"), version_base=None):
        config = compose("train", ["experiment=arithmetic"])
    assert read_settings(config).run.experiment == "arithmetic"
    assert (config.data.max_response_length, config.trainer.total_training_steps) == (512, 100)
    assert (config.data.train_batch_size, config.actor_rollout_ref.actor.optim.lr) == (32, 1e-6)  # GSM8K's

    done = subprocess.run(["bash", "-c", check.splitlines()[0]], cwd=copy, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    modules = re.findall(r"python -m (data_prep\S+|recipe\.(?:probe|train|export|evaluate))", done.stderr)
    assert [module.split(".")[-1] for module in modules] == [
        "arithmetic", "probe", "train", "export", "evaluate", "evaluate",
    ]  # fmt: skip
    assert find_spec(modules[0])
    (train,) = re.findall(r"recipe\.train (.*)", done.stderr)
    words = {"experiment=arithmetic", "data.max_response_length=512", "data.val_files=data/arithmetic/dev.parquet"}
    assert words <= set(train.split())
