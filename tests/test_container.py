"""The Containerfile runs scripts/setup.sh as a user without rights; it is read here, no engine builds it."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PLATFORMS = ("cpu", "gpu")


def instructions(text: str) -> list[tuple[str, str]]:
    """(name, arguments) of each instruction, continued lines joined."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines()
    return [(name, " ".join(rest.split())) for name, _, rest in (line.partition(" ") for line in joined)]


STEPS = instructions((ROOT / "Containerfile").read_text())


def stages() -> dict[str, list[tuple[str, str]]]:
    """Name of each stage -> its instructions, FROM first."""
    starts = [number for number, (name, _) in enumerate(STEPS) if name == "FROM"]
    parts = [STEPS[start:end] for start, end in zip(starts, [*starts[1:], None], strict=True)]
    return {part[0][1].split(" AS ")[1]: part for part in parts}


PROJECT = stages()["project"]


def arguments_of(name: str, steps: list[tuple[str, str]] = STEPS) -> list[str]:
    return [rest for one, rest in steps if one == name]


def let_through() -> set[str]:
    """The names in the checkout's folder that an engine may copy."""
    first, *others = (line for line in (ROOT / ".containerignore").read_text().splitlines() if line[:1] != "#")
    assert first == "*"
    return {line.removeprefix("!") for line in others if line.startswith("!")}


def test_continued_lines_are_one_instruction() -> None:
    assert instructions("# c\nFROM a AS b\n\nRUN x \\\n    && y\nCMD []\n") == [
        ("FROM", "a AS b"), ("RUN", "x && y"), ("CMD", "[]"),
    ]  # fmt: skip


def test_every_image_has_a_version_and_both_platforms_a_stage() -> None:
    assert set(stages()) == {"project", *PLATFORMS}
    assert list(stages())[-1] == "cpu", "what an engine builds without --target"
    assert all(stages()[platform][0][1] == f"project AS {platform}" for platform in PLATFORMS)
    images = {PROJECT[0][1].split(" AS ")[0], *re.findall(r"--from=(\S+)", " ".join(arguments_of("COPY")))}
    assert len(images) == 2
    for image in images:
        assert re.fullmatch(r"[a-z/]+:\d+\.\d+\.\d+-[a-z0-9.-]+", image), image


def test_the_images_have_the_python_and_the_cuda_of_the_pins() -> None:
    pins = (ROOT / "requirements" / "gpu.txt").read_text()
    python = re.search(r"--python-version (\S+)", pins)
    cuda = re.search(r"^nvidia-cuda-runtime==(\d+\.\d+)", pins, re.MULTILINE)
    assert python is not None
    assert cuda is not None
    assert f"python:{python[1]}." in arguments_of("FROM")[0]
    (copied,) = [rest for rest in arguments_of("COPY", stages()["gpu"]) if "--from=" in rest]
    assert f"cuda:{cuda[1]}." in copied
    assert f"/usr/local/cuda-{cuda[1]} " in copied


@pytest.mark.parametrize("platform", PLATFORMS)
def test_it_is_set_up_by_the_documented_command(platform: str) -> None:
    steps = stages()[platform]
    assert f"bash scripts/setup.sh {platform} " in steps[-1][1]
    assert {"PIP_INDEX_URL", "TORCH_INDEX"} <= set(arguments_of("ARG", steps))
    documented = {"cpu": "CONTRIBUTING.md", "gpu": "docs/how-to/gpus_and_clusters.md"}[platform]
    assert f"bash scripts/setup.sh {platform}" in (ROOT / documented).read_text()


def test_debian_packages_are_there_before_the_user_loses_the_right_to_install_them() -> None:
    needed = set(re.findall(r"missing\+=\(([\w.-]+)\)", (ROOT / "scripts" / "setup.sh").read_text()))
    assert needed == {"libnuma1"}
    installed = set(" ".join(arguments_of("RUN")).partition("--no-install-recommends ")[2].partition(" &&")[0].split())
    assert needed <= installed


def test_set_up_and_commands_run_without_the_rights_of_root() -> None:
    assert arguments_of("USER") == arguments_of("USER", PROJECT) == ["1000"]
    before = PROJECT[: PROJECT.index(("USER", "1000"))]
    assert any("useradd" in rest and "--uid 1000 " in rest for rest in arguments_of("RUN", before))
    assert arguments_of("CMD") == ['["skillcredit", "--help"]']


def test_what_is_copied_exists_and_no_more_than_the_code_and_its_pins() -> None:
    copied = [rest.split()[-2] for rest in arguments_of("COPY") if "--from=" not in rest]
    assert copied == ["."]
    names = let_through()
    assert all((ROOT / name).exists() for name in names)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    setuptools = project["tool"]["setuptools"]
    packages = {pattern.removesuffix("*") for pattern in setuptools["packages"]["find"]["include"]}
    modules = {f"{name}.py" for name in setuptools["py-modules"]}
    files = {"pyproject.toml", project["project"]["readme"], "LICENSE", "requirements", "scripts"}
    assert names == packages | modules | files


def test_both_engines_leave_out_the_same_files() -> None:
    assert (ROOT / ".dockerignore").readlink() == Path(".containerignore")


def test_nothing_secret_stays_in_the_image() -> None:
    kept = " ".join(arguments_of("ENV")) + " ".join(arguments_of("LABEL"))
    assert not re.search(r"INDEX_URL|TOKEN|KEY|PASSWORD|SECRET", kept)
    given = [rest for rest in arguments_of("ARG") if "INDEX" in rest]
    assert not any("=" in rest for rest in given)
