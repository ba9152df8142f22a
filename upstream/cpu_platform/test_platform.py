"""verl finds the CPU platform in this folder, and nothing but verl's and this folder's files is needed for it."""

import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
PROGRAM = """
import sys, verl
from verl.plugin.platform.platform_manager import PlatformRegistry, get_platform
before = "cpu" in PlatformRegistry.registered_names()
import workers.cpu.verl_platform as ours
platform = get_platform()
print(before, PlatformRegistry.get("cpu") is ours.PlatformCpu is type(platform))
print(platform.device_name, platform.current_device(), platform.communication_backend_name())
print(ours.__file__)
print(sorted(one for one in sys.modules if one.split(".")[0] == "workers"))
"""


def answer(**environment: str) -> list[str]:
    """What the program prints in a process that imports from this folder."""
    chosen = {"PYTHONPATH": str(FOLDER), "VERL_USE_EXTERNAL_PLUGINS": "none", "VERL_USE_EXTERNAL_MODULES": ""}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(
        command, cwd=FOLDER, env=os.environ | chosen | environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-4:]


def test_verl_takes_the_platform_whose_module_was_imported() -> None:
    assert answer(VERL_PLATFORM="cpu") == [
        "False True", "cpu cpu gloo", str(FOLDER / "workers" / "cpu" / "verl_platform.py"),
        "['workers', 'workers.cpu', 'workers.cpu.verl_platform']",
    ]  # fmt: skip


def test_verl_imports_the_module_itself_if_its_variable_names_it() -> None:
    assert answer(VERL_PLATFORM="cpu", VERL_USE_EXTERNAL_MODULES="workers.cpu.verl_platform")[0] == "True True"
