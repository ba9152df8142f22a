"""Supervised training by verl's SFT trainer: ``python -m recipe.sft sft_experiment=NAME key=value ...``.

Starts itself under torchrun with ``trainer.n_gpus_per_node`` ranks and shows their progress. Leaves a Hugging Face
folder at ``<trainer.default_local_dir>/global_step_<N>/huggingface``, and all that the ranks print in ``sft.log``.
"""

import recipe.records.quiet  # noqa: F401  (before the stack is imported)

import os  # isort: skip
import subprocess
import sys
from pathlib import Path

import hydra
from omegaconf import DictConfig

from recipe.training.console import ProgressReporter, SupervisedState

REFUSED, FAILED = 2, 1
SECONDS_BETWEEN_LINES = 10.0


def launch(config: DictConfig) -> int:
    """Run one process a rank under torchrun, show how far they are, and return the exit status."""
    missing = [path for path in (config.data.train_files, config.model.path) if not Path(path).exists()]
    if missing:
        print(f"refused before training: no such file or folder: {', '.join(missing)}", file=sys.stderr)
        return REFUSED
    folder = Path(config.trainer.default_local_dir)
    folder.mkdir(parents=True, exist_ok=True)
    metrics, log = folder / "metrics.jsonl", folder / "sft.log"
    metrics.unlink(missing_ok=True)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc_per_node={config.trainer.n_gpus_per_node}", "-m", "recipe.sft", *sys.argv[1:]]
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

    from workers.platform_cpu import is_cpu_platform, prepare_worker_process

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
