"""The CPU platform registers with verl from its own files alone, without the rest of this project."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROGRAM = """
import sys, verl
from verl.plugin.platform.platform_manager import PlatformRegistry, get_platform
before = "cpu" in PlatformRegistry.registered_names()
import workers.cpu.verl_platform as ours
platform = get_platform()
print(before, PlatformRegistry.get("cpu") is ours.PlatformCpu is type(platform))
print(platform.device_name, platform.current_device(), platform.communication_backend_name())
print(ours.__file__, sorted({"recipe", "rewards", "data_prep", "workers.engines"} & set(sys.modules)))
"""


@pytest.mark.slow
def test_verl_takes_the_platform_from_a_copy_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "workers").mkdir()
    (tmp_path / "workers" / "__init__.py").touch()
    shutil.copytree(ROOT / "workers" / "cpu", tmp_path / "workers" / "cpu")
    chosen = {"PYTHONPATH": str(tmp_path), "VERL_PLATFORM": "cpu", "VERL_USE_EXTERNAL_PLUGINS": "none"}
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=os.environ | chosen,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.splitlines()[-3:] == [
        "False True", "cpu cpu gloo", f"{tmp_path / 'workers' / 'cpu' / 'verl_platform.py'} []",
    ]  # fmt: skip
