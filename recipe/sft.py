"""Supervised training by verl's SFT trainer: ``python -m recipe.sft sft_experiment=NAME key=value ...``.

Starts itself under torchrun with ``trainer.n_gpus_per_node`` ranks. Leaves a Hugging Face folder at
``<trainer.default_local_dir>/global_step_<N>/huggingface``.
"""

import recipe.records.quiet  # noqa: F401  (before the stack is imported)

import os  # isort: skip
import sys
from pathlib import Path

import hydra
from omegaconf import DictConfig


def launch(config: DictConfig) -> None:
    """Replace this process by torchrun, which runs this module once a rank."""
    os.environ["VERL_FILE_LOGGER_PATH"] = str(Path(config.trainer.default_local_dir) / "metrics.jsonl")
    if config.trainer.device == "cpu":
        os.environ["VERL_PLATFORM"] = "cpu"
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // config.trainer.n_gpus_per_node)))
    ranks = f"--nproc_per_node={config.trainer.n_gpus_per_node}"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", ranks, "-m", "recipe.sft"]
    os.execv(sys.executable, [*command, *sys.argv[1:]])


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
    if "LOCAL_RANK" not in os.environ:
        launch(config)
    train(config)


if __name__ == "__main__":
    main()
