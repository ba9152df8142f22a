"""A package that a user has installed brings its verifiers along, in every process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

VERIFIER = """
from pydantic import BaseModel
from rewards import registry
from rewards.verdict import Verdict

class EchoTruth(BaseModel):
    text: str

async def judge(response, truth, settings):
    return Verdict.of_ratio(float(response == truth.text))

registry.register(registry.Verifier("echo", EchoTruth, judge))
"""
ASKED = """
import asyncio
from data_prep.schema import Row
from rewards import compute_score
row = {"data_source": "NAME", "ability": "a", "skill": "s", "prompt": [{"role": "user", "content": "say it"}],
       "reward_model": {"style": "rule", "ground_truth": '{"text": "it"}'},
       "extra_info": {"split": "train", "index": 0, "id": "echo/0"}}
Row.model_validate(row)
print([asyncio.run(compute_score("NAME", said, '{"text": "it"}'))["score"] for said in ("it", "that")])
"""


def asked(folder: Path, name: str, module: str, source: str, program: str = ASKED) -> subprocess.CompletedProcess[str]:
    """Run a program beside an installed package with the verifier `name`: validate a row and judge two answers."""
    (folder / "echo_task.py").write_text(source)
    metadata = folder / "echo_task-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: echo_task\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(f"[verl_skillcredit.verifiers]\n{name} = {module}\n")
    path = os.pathsep.join([str(Path(__file__).parents[2]), str(folder)])
    command = [sys.executable, "-c", program.replace("NAME", name)]
    return subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True)


def test_rows_name_a_verifier_of_an_installed_package(tmp_path: Path):
    done = asked(tmp_path, "echo", "echo_task", VERIFIER)
    assert done.stdout == "[1.0, 0.0]\n", done.stderr


def test_rows_that_a_command_makes_are_made_again_when_such_a_verifier_changes(tmp_path: Path):
    command = ("data_prep.micro",)
    digest = f"print(MadeFiles(Path('x'), 'rows', ('*',), {command}, {command}).key)"
    program = f"from pathlib import Path; from data_prep.made_from import MadeFiles; {digest}"
    keys: list[str] = []
    for source in (VERIFIER, f"{VERIFIER}# changed\n"):
        folder = tmp_path / str(len(keys))
        folder.mkdir()
        keys.append(asked(folder, "echo", "echo_task", source, program).stdout)
    assert all(len(key) == 65 for key in keys)
    assert keys[0] != keys[1]


@pytest.mark.parametrize(
    ("name", "module", "source", "message"),
    [
        ("code", "echo_task", VERIFIER, "declares the verifier 'code' (echo_task), which is ours; rename it"),
        ("echo", "no_such_task", VERIFIER, "the module no_such_task of verifier 'echo' cannot be imported"),
        ("echo", "echo_task", "", "the module echo_task registers no verifier 'echo'"),
    ],
)
def test_a_package_at_fault_is_named(tmp_path: Path, name: str, module: str, source: str, message: str):
    done = asked(tmp_path, name, module, source)
    assert done.returncode != 0
    assert message in done.stderr
