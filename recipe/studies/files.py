"""The files that studies rest on: of the configuration, with what they state, and those that commands make and read.

Without Hydra: a launcher can't wait seconds for verl's.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf

from data_prep.made_from import ROOT

CONFIGS = ROOT / "configs"
ROWS = ("*.parquet", "*.jsonl", "manifest.json", "origin.json", "run_info.json")
"""Files that a module of data_prep makes in a folder for it alone."""
MICRO_ROWS = ("train.parquet", "val.parquet", "test.parquet", "sft_*.parquet")
"""Files of data_prep.micro; its folder may also hold models and demonstrations of episodes."""


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


def judge_files(options: Sequence[str], configs: Path = CONFIGS) -> tuple[Path, ...]:
    """The files that settle how solutions are judged, if the options of a module of data_prep name an experiment."""
    if "--experiment" not in options:
        return ()
    name = options[options.index("--experiment") + 1]
    inherited = (*config_files("reward/verified", configs), *config_files(f"experiment/{name}", configs))
    return (configs / "train.yaml", *inherited)


def left_out_rows(options: Sequence[str]) -> tuple[Path, ...]:
    """The rows whose prompts the options of data_prep.micro leave out."""
    if "--without" not in options:
        return ()
    folder = Path(options[options.index("--without") + 1])
    return tuple(folder / f"{split}.parquet" for split in ("train", "val", "test"))


def sft_files(experiment: str) -> tuple[Path, ...]:
    """The files that recipe.sft composes for an experiment on a CPU."""
    inherited = (*config_files(f"sft_experiment/{experiment}"), *config_files("sft_platform/cpu"))
    return (CONFIGS / "sft.yaml", *inherited)
