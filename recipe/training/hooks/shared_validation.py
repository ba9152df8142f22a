"""The validation before training, made once for all runs of an experiment that begin alike.

Samples are seeded, so runs with equal weights, prompts, seeds and settings of generation draw the same answers: the
first writes its metrics beside the runs, the others read them. `run.share_first_validation`.
"""

import hashlib
import json
from collections.abc import Mapping
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from recipe.records.digests import data_digest, model_digest, weights_digest
from recipe.records.experiment_page import PACKAGES, source_commit
from recipe.records.run_directory import RunDirectory, write_atomically
from recipe.training.step_samples import GREEDY_MASKED
from rewards import registry
from rewards.manager import SkillCreditRewardManager, has_our_rewards

FOLDER = ".first_validations"
"""In the folder of an experiment."""
MASKED = "skill/masked_share"
MODE, MANAGER = "skillcredit", "recipe.training.agent_workers.SkillCreditAgentLoopManager"
OWN_CODE = (
    "data.custom_cls.path", "data.tool_config_path", "data.function_tool_path", "actor_rollout_ref.model.external_lib",
    "actor_rollout_ref.model.lora_adapter_path", "actor_rollout_ref.model.tokenizer_path",
    "actor_rollout_ref.model.hf_config_path", "actor_rollout_ref.rollout.agent.agent_loop_config_path",
    "actor_rollout_ref.rollout.multi_turn.tool_config_path", "actor_rollout_ref.rollout.multi_turn.function_tool_path",
    "actor_rollout_ref.rollout.agent.custom_async_server.path", "trainer.resume_from_path",
)  # fmt: skip
"""Paths of code and weights of the user's, which may change under their names."""
BESIDE_WEIGHTS = ("*.json", "*.jinja", "*.model", "*.py", "*.txt")
OF_TRAINING = (
    "actor_rollout_ref.actor", "actor_rollout_ref.ref", "agop", "algorithm", "credit", "critic", "data.train_files",
    "failures", "penalty", "projection", "protocol", "run", "trainer",
)  # fmt: skip
"""Settings that do not reach the answers of an untrained policy, nor their verification."""


def shared_file(config: DictConfig, run: RunDirectory) -> Path | None:
    """The file of this run's first validation; None if the run has to make its own.

    It has to where what decides its answers is unknown or drawn without a seed: a model on a hub, a checkout with local
    changes, code of the user's, accelerators, engines that run ahead; and where its samples are wanted elsewhere.

    run: its last event `start` names commit and processor.
    """
    start = _last_start(run)
    rows, model = data_digest(config.data.val_files), Path(config.actor_rollout_ref.model.path)
    known = bool(rows and weights_digest(model)) and _is_clean(start["commit"])
    seeded = config.run.seeded_samples and config.trainer.device == "cpu" and config.trainer.v1.trainer_mode == MODE
    if not (known and seeded) or has_own_code(config) or _shows_samples(config):
        return None
    settings = cast(dict[str, Any], OmegaConf.to_container(config, resolve=True))
    precision = OmegaConf.select(config, "actor_rollout_ref.actor.fsdp_config.model_dtype")
    for key in OF_TRAINING:
        group, _, name = key.rpartition(".")
        (settings[group] if group else settings).pop(name, None)
    begins = [
        start["commit"], start["processor"], [version(name) for name in (*PACKAGES, "vllm")],
        model_digest(model, BESIDE_WEIGHTS), rows, config.run.greedy_validation, precision, settings,
    ]  # fmt: skip
    digest = hashlib.sha256(json.dumps(begins, sort_keys=True).encode()).hexdigest()[:16]
    return run.path.parent / FOLDER / f"{digest}.json"


def _last_start(run: RunDirectory) -> dict[str, Any]:
    return [event for event in run.events() if event["event"] == "start"][-1]


def _is_clean(commit: str) -> bool:
    return commit != "unknown" and " " not in commit


def _shows_samples(config: DictConfig) -> bool:
    """Whether the validation's samples go somewhere: a folder, a tracker, the output of a run that only validates."""
    trackers = set(config.trainer.logger) - {"console", "file"}
    tables = bool(trackers) and config.trainer.log_val_generations > 0
    return tables or bool(config.trainer.validation_data_dir) or config.trainer.val_only


def has_own_code(config: DictConfig) -> bool:
    """Whether answers, rewards or skills come from code or weights of the user's that no commit of ours names."""
    rollout, manager = config.actor_rollout_ref.rollout, config.reward.reward_manager
    ours = (
        has_our_rewards(config)
        and manager.name == SkillCreditRewardManager.__name__
        and rollout.agent.agent_loop_manager_class == MANAGER
        and config.skills.by != "function"
        and not entry_points(group=registry.GROUP)
        and rollout.name == "vllm"
        and not config.skip.rollout_tq.enable
    )
    return not ours or any(OmegaConf.select(config, key) for key in OWN_CODE)


def read_shared(file: Path) -> tuple[str, dict[str, float]] | None:
    """The name of the run that measured, and its metrics; None if no run has, or that run was removed."""
    if not file.exists():
        return None
    found = json.loads(file.read_text())
    if not (file.parent.parent / found["run"] / "config.yaml").exists():
        return None
    return found["run"], found["metrics"]


def share(file: Path, run: RunDirectory, metrics: Mapping[str, float]) -> None:
    """Keep the metrics for the other runs.

    Not if samples were masked, which another run may verify, or if the source changed since the run began: its workers
    may have read either.
    """
    start = _last_start(run)
    complete = metrics.get(MASKED) == 0 and GREEDY_MASKED not in metrics
    if complete and source_commit() == start["commit"]:
        file.parent.mkdir(exist_ok=True)
        kept = {name: float(value) for name, value in metrics.items()}
        write_atomically(file, json.dumps({"run": run.path.name, "metrics": kept}))
