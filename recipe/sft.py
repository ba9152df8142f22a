"""Supervised training by verl's SFT trainer: ``python -m recipe.sft sft_experiment=NAME key=value ...``.

Demonstrations come from ``data.train_files``, or are the accepted samples of ``verified.evaluations``. Starts itself
under torchrun with ``trainer.n_gpus_per_node`` ranks and shows their progress. Leaves a Hugging Face folder at
``<trainer.default_local_dir>/global_step_<N>/huggingface``, all that the ranks print in ``sft.log``, and with
``report.data`` the evaluations ``before`` and ``after`` and their differences, ``report.json``.
"""

import recipe.records.quiet  # noqa: F401  (before the stack is imported)

import os  # isort: skip
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import hydra
from omegaconf import DictConfig, ListConfig

from data_prep.schema import DataFileError, Demonstration, read_rows, write_rows
from data_prep.splits import split_by_hash
from recipe import compare
from recipe.evaluate import evaluate_model
from recipe.evaluation.folder import FolderError
from recipe.evaluation.problems import data_files
from recipe.evaluation.verified import demonstrations, read_judged, read_verified
from recipe.training.console import ProgressReporter, SupervisedState

REFUSED, FAILED = 2, 1
SECONDS_BETWEEN_LINES = 10.0


def launch(config: DictConfig) -> int:
    """Run one process a rank under torchrun, show how far they are, and return the exit status."""
    folder = Path(config.trainer.default_local_dir)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        files = verified_files(config, folder / "verified")
        for path in _listed(files.get("train", config.data.train_files)):
            read_rows(Path(path), Demonstration)
    except (FolderError, DataFileError) as error:
        print(f"refused before training: {error}", file=sys.stderr)
        return REFUSED
    wanted = [config.model.path, *data_files(config.report.data).values()]
    if missing := [str(path) for path in wanted if not Path(path).exists()]:
        print(f"refused before training: no such file or folder: {', '.join(missing)}", file=sys.stderr)
        return REFUSED
    overrides = [f"data.{split}_files={path}" for split, path in files.items()]
    status = (
        report(config, config.model.path, folder / "before")
        or train_under_torchrun(config, folder, overrides)
        or report(config, trained_model(folder), folder / "after")
    )
    if status == 0 and config.report.data:
        return compare.main([str(folder / "before"), str(folder / "after"), "--out", str(folder / "report.json")])
    return status


def _listed(files: str | ListConfig) -> list[str]:
    return list(files) if isinstance(files, ListConfig) else [files]


def verified_files(config: DictConfig, folder: Path) -> dict[str, str]:
    """The files of `verified.evaluations`, by split; none where no evaluation is named.

    A problem is held out, or trained on, with all its answers. `run_info.json` there says how they were judged. Raises
    FolderError or DataFileError.
    """
    if not config.verified.evaluations:
        return {}
    evaluations = [Path(path) for path in config.verified.evaluations]
    judged = read_judged(evaluations)
    solved, reserved = read_verified(evaluations)
    held_out = int(config.verified.held_out_percent)
    rows: dict[str, list[Demonstration]] = {"train": [], "val": []}
    for row in demonstrations(solved, config.verified.per_problem):
        rows[split_by_hash(row.extra_info.id, {"val": held_out, "train": 100 - held_out})].append(row)
    # verl wants a validation file; of very few problems perhaps none falls into it.
    rows["val"] = rows["val"] or rows["train"][:1]
    count = sum(write_rows(folder / f"{split}.parquet", found) for split, found in rows.items())
    judged.write(folder)
    left_out = f"; {reserved} problems may not be trained on" if reserved else ""
    print(f"{count} accepted answers to {len(solved)} problems{left_out}: {folder}")
    return {split: str(folder / f"{split}.parquet") for split in rows}


def report(config: DictConfig, model: str | Path, out: Path) -> int:
    """Evaluates a model where a report is wanted; returns the exit status."""
    if not config.report.data:
        return 0
    options = shlex.split(config.report.options)
    if config.verified.evaluations:
        options = read_judged([Path(path) for path in config.verified.evaluations]).options(options)
    options = ["--protocol", config.report.protocol, *options]
    platform = "cpu" if config.trainer.device == "cpu" else "gpu"
    return evaluate_model(model, config.report.data, out, "--platform", platform, *options)


def trained_model(folder: Path) -> Path:
    """The Hugging Face folder of the last checkpoint."""
    return max(folder.glob("global_step_*"), key=lambda path: int(path.name.rpartition("_")[2])) / "huggingface"


def train_under_torchrun(config: DictConfig, folder: Path, overrides: Sequence[str]) -> int:
    """The training itself, with its progress on the console; returns the exit status."""
    metrics, log = folder / "metrics.jsonl", folder / "sft.log"
    metrics.unlink(missing_ok=True)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc_per_node={config.trainer.n_gpus_per_node}", "-m", "recipe.sft", *sys.argv[1:], *overrides]
    state = SupervisedState(config.trainer.total_training_steps or 0)
    with open(log, "w") as output, ProgressReporter(metrics, state, SECONDS_BETWEEN_LINES):
        status = subprocess.run(command, stdout=output, stderr=output, env=_environment(config, metrics)).returncode
    if status:
        tail = [line for line in log.read_text().splitlines() if "Error" in line][-3:]
        print("\n".join([*tail, f"the supervised training failed; all of its output: {log}"]), file=sys.stderr)
        return FAILED
    print(f"loss {state.loss:.3f} after {state.step} steps; model in {folder}")
    return 0


def _environment(config: DictConfig, metrics: Path) -> dict[str, str]:
    variables = os.environ | {"VERL_FILE_LOGGER_PATH": str(metrics)}
    if config.trainer.device == "cpu":
        variables["VERL_PLATFORM"] = "cpu"
        variables.setdefault("GLOO_SOCKET_IFNAME", "lo")
        threads = max(1, (os.cpu_count() or 1) // config.trainer.n_gpus_per_node)
        variables.setdefault("OMP_NUM_THREADS", str(threads))
    return variables


def train(config: DictConfig) -> None:
    """One rank of verl's SFT trainer."""
    import torch
    from verl.trainer.sft_trainer import SFTTrainer
    from verl.utils.distributed import initialize_global_process_group

    from workers.engines import prepare_worker_process
    from workers.platform_cpu import is_cpu_platform

    if is_cpu_platform():
        prepare_worker_process()
    else:
        initialize_global_process_group()
    SFTTrainer(config=config).fit()
    torch.distributed.destroy_process_group()


@hydra.main(version_base=None, config_path="pkg://configs", config_name="sft")
def main(config: DictConfig) -> None:
    if "LOCAL_RANK" in os.environ:
        train(config)
    else:
        sys.exit(launch(config))


if __name__ == "__main__":
    main()
