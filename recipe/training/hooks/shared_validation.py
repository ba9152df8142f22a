"""The validation before training, made once for all runs of an experiment that begin alike.

Samples are seeded, so runs with equal weights, prompts, seeds and settings of generation draw the same answers: the
first writes its metrics beside the runs, the others read them. `run.share_first_validation`.
"""

import hashlib
import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from recipe.records.digests import data_digest, model_digest, weights_digest
from recipe.records.experiment_page import PACKAGES
from recipe.records.run_directory import RunDirectory, write_atomically

FOLDER = ".first_validations"
"""In the folder of an experiment."""
MASKED = "skill/masked_share"
OF_TRAINING = (
    "actor_rollout_ref.actor", "actor_rollout_ref.ref", "agop", "algorithm", "credit", "critic", "data.train_files",
    "failures", "penalty", "projection", "protocol", "run", "trainer",
)  # fmt: skip
"""Settings that do not reach the answers of an untrained policy, nor their verification."""
ENGINES = ("vllm", "sglang")
"""Values of `rollout.name` that are names of packages."""


def shared_file(config: DictConfig, run: RunDirectory) -> Path | None:
    """The file of this run's first validation; None if what decides its answers is unknown or drawn without a seed.

    Unknown are a model on a hub, a checkout with local changes, and a user's own functions, whose code may change.

    run: its last event `start` names commit and processor.
    """
    start = [event for event in run.events() if event["event"] == "start"][-1]
    commit, rows = str(start["commit"]), data_digest(config.data.val_files)
    model = Path(config.actor_rollout_ref.model.path)
    known = commit != "unknown" and " " not in commit and bool(weights_digest(model)) and bool(rows)
    seeded = config.run.seeded_samples and config.actor_rollout_ref.rollout.name in ENGINES
    if not (known and seeded) or has_own_functions(config):
        return None
    settings = cast(dict[str, Any], OmegaConf.to_container(config, resolve=True))
    for key in OF_TRAINING:
        group, _, name = key.rpartition(".")
        (settings[group] if group else settings).pop(name, None)
    versions = [version(name) for name in (*PACKAGES, config.actor_rollout_ref.rollout.name)]
    begins = [commit, start["processor"], versions, model_digest(model), rows, config.run.greedy_validation, settings]
    digest = hashlib.sha256(json.dumps(begins, sort_keys=True).encode()).hexdigest()[:16]
    return run.path.parent / FOLDER / f"{digest}.json"


def has_own_functions(config: DictConfig) -> bool:
    """Whether answers, rewards or skills come from code of the user's that no commit of ours names."""
    return (
        OmegaConf.select(config, "reward.custom_reward_function.path") != "pkg://rewards"
        or config.skills.by == "function"
        or bool(config.actor_rollout_ref.rollout.agent.agent_loop_config_path)
    )


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
