"""The files of a configuration and what they state, read without Hydra: a launcher can't wait seconds for verl's."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf

from data_prep.made_from import ROOT

CONFIGS = ROOT / "configs"


def config_files(name: str, configs: Path = CONFIGS) -> tuple[Path, ...]:
    """`configs/NAME.yaml` and all files that `defaults` lists inherit, each after the file that inherits it.

    Entries without a file in `configs` (`_self_`, verl's, Hydra's) are left out.
    """
    found: list[Path] = []
    waiting = [configs / f"{name}.yaml"]
    while waiting:
        path = waiting.pop(0)
        if path.is_file() and path not in found:
            found.append(path)
            waiting += _inherited(path, configs)
    return tuple(found)


def _inherited(path: Path, configs: Path) -> Iterator[Path]:
    content = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader) or {}
    for entry in content.get("defaults", []):
        for group, option in entry.items() if isinstance(entry, dict) else [("", entry)]:
            name = f"{group.rpartition(' ')[2]}/{option}.yaml" if group else f"{option}.yaml"  # without `override`
            yield configs / name[1:] if name.startswith("/") else path.parent / name


def stated(experiment: str, key: str, configs: Path = CONFIGS) -> Any:
    """The value of a dotted key in the experiment's file, or else in the first inherited one with it; None if none."""
    values = (OmegaConf.select(OmegaConf.load(path), key) for path in config_files(f"experiment/{experiment}", configs))
    return next((value for value in values if value is not None), None)
