"""A program imports what the server's interpreter can, wherever it is installed, and can't change it."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rewards.sandbox import Sandbox
from rewards.sandbox.client import readiness
from rewards.sandbox.isolation import namespaces
from rewards.sandbox.isolation.namespaces import mount_points, python_folders
from rewards.sandbox.worker.folders import empty_folder
from tests.rewards.sandbox.conftest import ServerProcess, start_server, user_kinds

PLACES = ["plain", "with a blank", "linked", "linked twice", "link in the middle", "/dev/shm", "as the work folder"]


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder directly below /tmp, independent of pytest's own."""
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="sandbox test "))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def make_packages(folder: Path, value: str = "41") -> Path:
    """A site-packages folder with the package `tiny`, which has one number."""
    (folder / "tiny").mkdir(parents=True)
    (folder / "tiny" / "__init__.py").write_text(f"number = {value}\n")
    return folder


def place_packages(place: str, outside: Path) -> tuple[Path, Path]:
    """The name of a site-packages folder for `sys.path`, and the folder to remove after the test."""
    if place == "plain":
        return make_packages(outside / "env" / "site-packages"), outside
    if place == "with a blank":
        return make_packages(outside / "a b" / "c  d" / "site-packages"), outside
    if place == "linked":
        (outside / "site-packages").symlink_to(make_packages(outside / "real" / "packages"))
        return outside / "site-packages", outside
    if place == "linked twice":
        make_packages(outside / "real" / "packages")
        (outside / "first").symlink_to("real")
        (outside / "second").symlink_to(outside / "first")
        (outside / "site-packages").symlink_to("second/packages")
        return outside / "site-packages", outside
    if place == "link in the middle":
        make_packages(outside / "real" / "lib" / "site-packages")
        (outside / "venv").symlink_to(outside / "real")
        return outside / "venv" / "lib" / "site-packages", outside
    folder = Path(tempfile.mkdtemp(dir="/dev/shm")) if place == "/dev/shm" else Path("/tmp/run")
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    return make_packages(folder / "site-packages"), folder


CHANGES = """
import os, shutil, sys, tiny
place, first = {place!r}, {first!r}
done = []
def attempt(step):
    try:
        step()
        done.append(step)
    except OSError:
        pass
attempt(lambda: open(place + "/tiny/__init__.py", "w"))
attempt(lambda: open(place + "/evil.py", "w"))
attempt(lambda: open(first + "/evil.py", "w"))
attempt(lambda: os.mkdir(first + "/evil"))
attempt(lambda: os.chmod(first, 0))
attempt(lambda: os.unlink(place + "/tiny/__init__.py"))
for path in (place + "/tiny", place, os.path.dirname(place), first):
    attempt(lambda: os.rename(path, "/tmp/moved"))
    attempt(lambda: os.rmdir(path))
    attempt(lambda: os.unlink(path))
shutil.rmtree(first, ignore_errors=True)
os.chmod("/tmp", 0o300)
print(len(done), tiny.number)
"""


@pytest.mark.slow
@pytest.mark.parametrize("ordinary_user", [kind == "ordinary_user" for kind in user_kinds()])
@pytest.mark.parametrize("place", PLACES)
async def test_packages_below_tmp_are_imported_and_stay(place: str, ordinary_user: bool, outside: Path) -> None:
    packages, folder = place_packages(place, outside)
    first = "/".join(str(packages).split("/")[: 4 if place == "/dev/shm" else 3])
    server = start_server(workers=1, ordinary_user=ordinary_user, packages=packages)
    try:
        async with Sandbox(server.url) as sandbox:
            look = (
                "import os, tiny\nprint(tiny.number, sorted(os.listdir('/tmp') + os.listdir('/dev/shm')), os.getcwd())"
            )
            before = await sandbox.run(look)
            assert before.stdout.startswith("41 ")
            changed = await sandbox.run(CHANGES.format(place=str(packages), first=first))
            assert (changed.stdout, changed.error_line) == ("0 41\n", None)
            # Nothing is left of it, and nothing is missing.
            assert (await sandbox.run(look)).stdout == before.stdout
            assert "evil" not in os.listdir(packages)
    finally:
        server.stop()
        if folder != outside:
            shutil.rmtree(folder)


@pytest.mark.slow
async def test_other_files_below_tmp_stay_hidden(outside: Path) -> None:
    packages = make_packages(outside / "env" / "site-packages")
    (outside / "secret").write_text("secret")
    (outside / "env" / "secret").write_text("secret")
    server = start_server(workers=1, packages=packages)
    try:
        async with Sandbox(server.url) as sandbox:
            code = f"import os\nprint([(len(d), f) for _, d, f in os.walk({str(outside)!r}) if 'secret' in f])"
            assert (await sandbox.run(code)).stdout == "[]\n"
    finally:
        server.stop()


@pytest.mark.slow
def test_a_server_whose_programs_cannot_import_refuses_to_start(outside: Path) -> None:
    # This numpy is found by the server, and breaks where it is imported.
    broken = outside / "site-packages" / "numpy"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('libmissing.so: cannot open')\n")
    with pytest.raises(RuntimeError, match=r"programs can't import.*numpy: ImportError: libmissing.so: cannot open"):
        start_server(workers=1, packages=outside / "site-packages").stop()


def test_a_path_that_programs_cannot_see_is_named() -> None:
    result = {"outcome": "passed", "stderr": "", "stdout": '{"errors": {"numpy": "E: gone"}, "hidden": ["/a b/c"]}'}
    assert readiness.problem(result) == (
        "programs can't import what answers need: numpy: E: gone. Programs can't see or enter /a b/c"
    )
    assert readiness.problem({**result, "stdout": '{"errors": {}, "hidden": ["/x"]}'}) is None
    failed = readiness.problem({"outcome": "memory", "stdout": "", "stderr": "a\nMemoryError\n"})
    assert failed is not None
    assert failed.endswith("memory: MemoryError")


@pytest.mark.slow
async def test_the_check_reports_what_is_missing(sandbox: Sandbox, server: ServerProcess) -> None:
    run = await sandbox.run(readiness.program(["json", "no_such_module"], ["csv", "nor_this"], ["/usr", "/nowhere"]))
    problem = readiness.problem(vars(run))
    assert problem is not None
    assert "no_such_module: ModuleNotFoundError" in problem
    assert "nor_this" in problem
    assert "json" not in problem
    assert problem.endswith("Programs can't see or enter /nowhere")


def test_every_name_of_a_folder_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages, _ = place_packages("linked twice", tmp_path)
    monkeypatch.setattr(sys, "path", [str(packages)])
    shown = [path for path in python_folders() if path.startswith(str(tmp_path))]
    names = ["first/packages", "real/packages", "second/packages", "site-packages"]
    assert shown == [str(tmp_path / name) for name in names]


@pytest.mark.parametrize(
    ("python", "points"),
    [
        (["/opt/py"], []),
        (["/tmp/a b/env", "/tmp/a b/lib", "/tmp/c"], ["a b", "c"]),
        (["/tmpfile/x", "/dev/shm/e/x"], []),
    ],
)
def test_mount_points_are_the_first_components(python: list[str], points: list[str]) -> None:
    assert mount_points("/tmp", python) == points


def test_folders_inside_another_or_of_the_system_are_left_out() -> None:
    names = ["/", "/a/b", "/a/b/c", "/a/bc", "/dev/shm/e", "/dev/x", "/lib/python", "/proc/1/root/x", "/tmp", "/usr"]
    assert namespaces._outermost(names) == ["/a/b", "/a/bc", "/dev/shm/e"]


def test_emptying_keeps_the_given_names(tmp_path: Path) -> None:
    for name in ("keep", "drop"):
        (tmp_path / name / "inner").mkdir(parents=True)
    empty_folder(str(tmp_path), frozenset({"keep"}))
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == ["keep", "keep/inner"]
