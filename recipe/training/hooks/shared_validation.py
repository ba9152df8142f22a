"""The validation before training, made once for all runs of an experiment that begin alike.

Samples are seeded, so runs with equal weights, prompts, seeds and settings of generation draw the same answers: the
first writes its metrics beside the runs, the others read them. `run.share_first_validation`.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from recipe.checks.model import data_digest
from recipe.records.run_directory import RunDirectory, write_atomically

FOLDER = ".first_validations"
"""In the folder of an experiment."""
MASKED = "skill/masked_share"
OF_TRAINING = (
    "actor_rollout_ref.actor", "actor_rollout_ref.ref", "agop", "algorithm", "credit", "critic", "data.train_files",
    "failures", "penalty", "projection", "protocol", "run", "trainer",
)  # fmt: skip
"""Settings that do not reach the answers of an untrained policy, nor their verification."""
OF_A_START = ("weights", "commit", "processor")


def shared_file(config: DictConfig, run: RunDirectory) -> Path | None:
    """The file of this run's first validation; None if what decides its answers is unknown or drawn without a seed.

    run: its last event `start` names weights, commit and processor.
    """
    start = [event for event in run.events() if event["event"] == "start"][-1]
    known = [str(start.get(name, "")) for name in OF_A_START]
    rows = data_digest(config.data.val_files)
    clean = known[1] not in ("", "unknown") and " " not in known[1]  # a commit without local changes
    if not (config.run.seeded_samples and rows and known[0] and clean):
        return None
    settings = cast(dict[str, Any], OmegaConf.to_container(config, resolve=True))
    for key in OF_TRAINING:
        group, _, name = key.rpartition(".")
        (settings[group] if group else settings).pop(name, None)
    decides = json.dumps([known, rows, config.run.greedy_validation, settings], sort_keys=True)
    return run.path.parent / FOLDER / f"{hashlib.sha256(decides.encode()).hexdigest()[:16]}.json"


def read_shared(file: Path) -> tuple[str, dict[str, float]] | None:
    """The name of the run that measured, and its metrics; None if no run has."""
    if not file.exists():
        return None
    found = json.loads(file.read_text())
    return found["run"], found["metrics"]


def share(file: Path, run: RunDirectory, metrics: Mapping[str, float]) -> None:
    """Keep the metrics for the other runs, unless samples were masked: another run may verify them all."""
    if metrics.get(MASKED, 0.0) == 0:
        file.parent.mkdir(exist_ok=True)
        kept = {name: float(value) for name, value in metrics.items()}
        write_atomically(file, json.dumps({"run": run.path.name, "metrics": kept}))
