"""Three steps of GRPO by verl on a machine without an accelerator, with the files of this folder and no others.

    PYTHONPATH=. python grpo.py actor_rollout_ref.model.path=MODEL data.train_files=ROWS data.val_files=ROWS

MODEL: a folder in Hugging Face's format. ROWS: a parquet file as verl's preprocess scripts write it; the reward sees
the answer alone. verl's trainer, engine and agent loop are used as they are but for the two classes of `cpu_trainer`.
"""

import os
from pathlib import Path

import hydra
from omegaconf import DictConfig

# All processes inherit them; verl reads them when it is imported.
os.environ |= {"VERL_PLATFORM": "cpu", "VERL_USE_EXTERNAL_MODULES": "workers.cpu.verl_platform"}


@hydra.main(version_base=None, config_path=str(Path(__file__).parent), config_name="grpo")
def main(config: DictConfig) -> None:
    from cpu_trainer import CpuTaskRunner
    from verl.trainer.main_ppo import run_ppo

    run_ppo(config, CpuTaskRunner)


if __name__ == "__main__":
    main()
