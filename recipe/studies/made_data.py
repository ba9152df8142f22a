"""What the commands that make data write and read: patterns of files, and files of the configuration."""

from collections.abc import Sequence
from pathlib import Path

from recipe.studies.experiments import CONFIGS, config_files

ROWS = ("*.parquet", "*.jsonl", "manifest.json", "origin.json", "run_info.json")
"""Files that a module of data_prep makes in a folder for it alone."""
MICRO_ROWS = ("train.parquet", "val.parquet", "test.parquet", "sft_*.parquet")
"""Files of data_prep.micro; its folder may also hold models and demonstrations of episodes."""


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
