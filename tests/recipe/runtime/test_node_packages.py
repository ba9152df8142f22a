"""Workers on a cluster's nodes must import the same packages as the driver."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from recipe.runtime import node_packages, ray_session
from recipe.runtime.environment import ROOT
from recipe.runtime.node_packages import Packages, differences, installed

DRIVER: Packages = {
    "recipe": ("/home/u/skillcredit/recipe", "aa"),
    "rewards": ("/home/u/skillcredit/rewards", "bb"),
    "verl": ("version 0.9.1", "0.9.1"),
    "vllm": ("version 0.28.0+cpu", "0.28.0"),
}


def test_the_same_sources_at_another_path_are_equal() -> None:
    copied = {name: ("/tmp/ray/working_dir_files/" + name, one[1]) for name, one in DRIVER.items() if one}
    assert differences(DRIVER, {"10.0.0.1": DRIVER, "10.0.0.2": copied}) == []


def test_every_difference_names_its_node_and_both_sources() -> None:
    other = dict(DRIVER) | {"recipe": ("/opt/verl/recipe", "cc"), "rewards": None, "verl": ("version 0.8.0", "0.8.0")}
    assert differences(DRIVER, {"10.0.0.1": DRIVER, "10.0.0.2": other, "10.0.0.3": "no answer within 300 s"}) == [
        "node 10.0.0.2: recipe is /opt/verl/recipe, which differs from the driver's /home/u/skillcredit/recipe",
        "node 10.0.0.2: no package rewards; the driver's is /home/u/skillcredit/rewards",
        "node 10.0.0.2: verl is version 0.8.0, which differs from the driver's version 0.9.1",
        "node 10.0.0.3: no answer within 300 s",
    ]


def test_a_node_without_vllm_is_accepted() -> None:
    assert differences(DRIVER, {"10.0.0.2": dict(DRIVER) | {"vllm": None}}) == []


def test_the_digest_depends_on_the_sources_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digests = []
    for number, code in enumerate(("x = 1\n", "x = 1\n", "x = 2\n")):
        folder = tmp_path / str(number) / f"package_of_{number}"
        (folder / "__pycache__").mkdir(parents=True)
        (folder / "__init__.py").write_text(code)
        (folder / "__pycache__" / "__init__.pyc").write_text(str(number))
        monkeypatch.syspath_prepend(folder.parent)
        found = node_packages._package(folder.name)
        assert found is not None
        assert found[0] == str(folder)
        digests.append(found[1])
    assert digests[0] == digests[1] != digests[2]


def test_this_checkout_is_found() -> None:
    found = installed()
    assert {name: one and one[0] for name, one in found.items() if name in node_packages.OURS} == {
        name: str(ROOT / name) for name in node_packages.OURS
    }
    assert found["verl"] is not None


JOB = """
import sys, time
import ray
from recipe.runtime.node_packages import differences, installed, on_nodes

runtime_env = {"working_dir": sys.argv[1]} if sys.argv[1:] else {}
ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False, runtime_env=runtime_env)
for line in differences(installed(), on_nodes()):
    print(line)
print("compared")
"""


@pytest.mark.slow  # starts its own Ray
@pytest.mark.parametrize("foreign", [[], ["rewards"], ["recipe", "rewards"]])
def test_workers_that_find_packages_of_another_checkout_are_found(tmp_path: Path, foreign: list[str]) -> None:
    """The foreign ``recipe`` lacks the module that defines the task."""
    for name in foreign:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    variables = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    variables["PYTHONPATH"] = str(ROOT)  # what a node needs on whose path another package is named recipe
    done = subprocess.run(
        [sys.executable, "-c", JOB, *([str(tmp_path)] if foreign else [])],
        cwd=ROOT, env=variables, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert lines[-1:] == ["compared"], done.stderr[-2000:]
    assert len(lines) == len(foreign) + 1, lines
    for name, line in zip(foreign, lines, strict=False):
        assert f"{name} is " in line
        assert f"differs from the driver's {ROOT / name}" in line


def test_a_working_directory_that_is_being_unpacked_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two nodes of one machine share it, and Ray unpacks it for the second while the first already runs."""
    same: Packages = {"rewards": ("/here/rewards", "digest")}
    answers = iter(
        [FileNotFoundError("half unpacked"), {"node": {"rewards": ("/there/rewards", "half")}}, {"node": same}]
    )

    def on_nodes() -> object:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(ray_session, "installed", lambda: same)
    monkeypatch.setattr(ray_session, "on_nodes", on_nodes)
    monkeypatch.setattr(ray_session, "SECONDS_BETWEEN_LOOKS", 0.0)
    ray_session.require_same_packages()
    assert not list(answers)


def test_what_differs_every_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_session, "installed", lambda: {"rewards": ("/here/rewards", "digest")})
    monkeypatch.setattr(ray_session, "on_nodes", lambda: {"node": {"rewards": ("/there/rewards", "other")}})
    monkeypatch.setattr(ray_session, "SECONDS_BETWEEN_LOOKS", 0.0)
    with pytest.raises(ray_session.ClusterError, match="node node: rewards is /there/rewards, which differs"):
        ray_session.require_same_packages()
