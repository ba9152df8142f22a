"""The CPU platform as a folder: verl registers it and trains three GRPO steps where our packages do not exist."""

import json
import os
import subprocess
import sysconfig
import venv
from pathlib import Path

import pytest

from scripts.cpu_platform import write_folder
from tests.e2e.conftest import AGREEMENT, without_ray
from tests.processes import PATIENCE

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("separate") / "cpu_platform"
    write_folder(made)
    return made


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter with the packages of this one, but for ours: of a path in a .pth file no .pth file is read."""
    clean = tmp_path_factory.mktemp("clean")
    venv.create(clean, symlinks=True)
    (site,) = clean.glob("lib/python*/site-packages")
    (site / "packages.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return str(clean / "bin" / "python")


def run(folder: Path, *command: str, **environment: str) -> str:
    """What a command prints in the folder; it must succeed."""
    kept = {key: value for key, value in without_ray(os.environ).items() if not key.startswith(("VERL_", "PYTHON"))}
    done = subprocess.run(command, cwd=folder, env=kept | environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, f"{done.stdout[-6000:]}{done.stderr[-3000:]}"
    return done.stdout


def test_our_packages_do_not_exist_there(folder: Path, python: str) -> None:
    names = ("recipe.train", "rewards", "data_prep", "configs", "skillcredit")
    program = f"from importlib.util import find_spec as f; print([n for n in {names} if f(n)], f('verl') is not None)"
    assert run(folder, python, "-c", program).split("\n")[0] == "[] True"


def test_the_registration_test_of_the_folder_passes(folder: Path, python: str) -> None:
    assert "2 passed" in run(folder, python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_platform.py")


@pytest.mark.night
def test_three_steps_of_grpo_train_the_sampled_policy(folder: Path, python: str, micro_start: Path) -> None:
    rows, metrics = micro_start / "train.parquet", folder / "metrics.jsonl"
    words = [f"data.train_files={rows}", f"data.val_files={rows}", f"actor_rollout_ref.model.path={micro_start}/model"]
    run(folder, python, "grpo.py", *words, PYTHONPATH=str(folder), VERL_FILE_LOGGER_PATH=str(metrics))
    steps = [json.loads(line)["data"] for line in metrics.read_text().splitlines()]
    assert [step["training/global_step"] for step in steps] == [1, 2, 3]
    assert all(step["actor/grad_norm"] > 0 for step in steps)
    assert all(0 < step["critic/score/mean"] < 1 for step in steps)
    # The engine has got each update's weights: with the old ones it would disagree after a step this large.
    assert max(step["training/rollout_probs_diff_mean"] for step in steps) < AGREEMENT
