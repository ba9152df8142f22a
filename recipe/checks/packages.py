"""Do the packages that Python finds belong to this checkout? verl has a ``recipe`` and ``scripts``, too.

Import this module first: it exits if one is foreign, before imports from it can fail. So it imports nothing from the
other packages.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

from recipe.checks import PreflightFinding

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from recipe.records.run_directory import RunDirectory

PACKAGES = ("recipe", "workers", "rewards", "data_prep", "configs", "scripts")
CHECKOUT = Path(__file__).resolve().parents[2]


def check(config: DictConfig, run: RunDirectory) -> list[PreflightFinding]:
    """Refuse packages that are missing or from elsewhere."""
    return foreign()


def foreign() -> list[PreflightFinding]:
    """A problem for each package that is not this checkout's."""
    fix = f"run from {CHECKOUT}, or put it first: export PYTHONPATH={CHECKOUT}; other checkouts come after it"
    return _problems(found(), fix)


def foreign_in(folder: Path) -> list[PreflightFinding]:
    """A problem for each package in this folder that is not this checkout's, such as those of another checkout.

    Ray's workers may import them, because Ray adds the working directory to their path.
    """
    specs = {name: PathFinder.find_spec(name, [str(folder)]) for name in PACKAGES}
    # A folder without __init__.py hides no package.
    there = {name: _place(spec) for name, spec in specs.items() if spec and spec.origin}
    return _problems(there, f"change to {CHECKOUT} or an empty folder; for another checkout use its own .venv")


def _problems(places: Mapping[str, Path | None], fix: str) -> list[PreflightFinding]:
    return [
        PreflightFinding(f"Python found another package named {name}, not the one in {CHECKOUT}", str(place), fix)
        for name, place in places.items()
        if place != CHECKOUT / name
    ]


def found() -> dict[str, Path | None]:
    """The folder that each package would be imported from; None if it is not found."""
    return {name: _place(importlib.util.find_spec(name)) for name in PACKAGES}


def describe() -> str:
    """One line with the folder of each package."""
    return "packages: " + ", ".join(f"{name} from {place}" for name, place in found().items())


def refuse_foreign() -> None:
    """Print the problems and exit if a package is not this checkout's."""
    problems = foreign()
    if problems:
        print("refused before training:", *problems, sep="\n", file=sys.stderr)
        sys.exit(2)


def _place(spec: ModuleSpec | None) -> Path | None:
    places = list(spec.submodule_search_locations or []) if spec else []
    return Path(places[0]).resolve() if places else None


refuse_foreign()
