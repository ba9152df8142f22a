"""Versions of the files that later releases read, and upgrades of old configurations to the current settings.

The version of a run's records is ``records_version`` in ``config.yaml``; a run without one has version 1. `CHANGES` has
what each later version changed. To add or remove a configuration key, raise ``VERSION`` and add to ``CHANGES`` how runs
behaved before.

Checkpoints and evaluations have versions too; a release reads its own only.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from omegaconf import DictConfig, OmegaConf

VERSION = 13
KEY = "records_version"
CHECKPOINT_VERSION = 1
"""Of ``checkpoints/model.json``, as `KEY`; release 0.2.0 wrote version 1 without the number."""
EVALUATION_VERSION = 2
"""Of an evaluation's ``run_info.json``, as `KEY`. Version 1 (release 0.2.0) lacks the number, the precision, the mean
score and the accuracy on shown tests."""


class RecordsError(ValueError):
    """Records that this release cannot read; the message addresses the user."""


def unreadable(what: object, error: Exception) -> RecordsError:
    """The error for records in which anything may be written, in one line."""
    return RecordsError(f"{what}: {type(error).__name__}: {str(error).partition(chr(10))[0]}")


@dataclass(frozen=True)
class SettingsChange:
    """Differences between the settings of a version and the version before; keys are dotted.

    added: new keys, with the value that matches the earlier behaviour, or a function that gives it for the run's
    configuration. A key is skipped if the run lacks its group.
    replaced: keys whose earlier value trains the same as this value, or as what a function gives for the run's
    configuration (with the added keys), up to the draw of samples. ``${data.seed}`` is the run's own seed.
    renamed: keys with renamed values: old -> new.
    moved: keys under another name: old key -> new key.
    listed: keys that became a list of values under another name: old key -> new key.
    removed: dropped keys, with the only value that matches the behaviour without them.
    """

    added: Mapping[str, object] = field(default_factory=dict)
    replaced: Mapping[str, object] = field(default_factory=dict)
    renamed: Mapping[str, Mapping[Any, Any]] = field(default_factory=dict)
    moved: dict[str, str] = field(default_factory=dict)
    listed: dict[str, str] = field(default_factory=dict)
    removed: Mapping[str, object] = field(default_factory=dict)


_JUDGE = "reward.custom_reward_function.reward_kwargs"


def _loop_epsilon(config: DictConfig) -> float:
    projection = config.projection
    return float(projection.get("epsilon", 0.0)) if projection.get("closed_loop") else 0.0


# version -> its changes
CHANGES: dict[int, SettingsChange] = {
    2: SettingsChange(
        added={
            "credit.min_valid": 2,
            "credit.zero_advantage": False,
            "protocol.every_skill": False,
            "run.greedy_validation": False,
            "run.seeded_samples": False,
            "sandbox.isolation": None,
            f"{_JUDGE}.partial_credit": True,
            f"{_JUDGE}.timeout": 10.0,
            f"{_JUDGE}.memory_mb": 1024,
            f"{_JUDGE}.sandbox_url": None,
            f"{_JUDGE}.sandbox_isolation": None,
            f"{_JUDGE}.shape": "binary",
            f"{_JUDGE}.think_opener": "response",
            f"{_JUDGE}.countdown_format": 0.1,
            f"{_JUDGE}.countdown_numbers": 0.2,
            f"{_JUDGE}.gsm8k_extraction": "strict",
            f"{_JUDGE}.max_characters": 65536,
            f"{_JUDGE}.forbidden_imports": ["ctypes", "gc", "inspect", "socket", "subprocess"],
            f"{_JUDGE}.refuse": ["empty", "forbidden_import", "length", "special_casing"],
        },
        replaced={
            "actor_rollout_ref.actor.fsdp_config.seed": "${data.seed}",
            "critic.data_loader_seed": "${data.seed}",
            "critic.fsdp.seed": "${data.seed}",
        },
        renamed={"projection.method": {"none": "measure"}},
    ),
    # On a CPU, attention over packed sequences, which computes the same to rounding.
    3: SettingsChange(
        added={"run.precision": "float32"},
        renamed={
            key: {"sdpa": "packed", "fp32": "float32", False: True}
            for key in (
                "actor_rollout_ref.model.use_remove_padding",
                "actor_rollout_ref.model.override_config.attn_implementation",
                "actor_rollout_ref.actor.use_remove_padding",
                "actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype",
                "actor_rollout_ref.ref.use_remove_padding",
                "actor_rollout_ref.ref.fsdp_config.mixed_precision.param_dtype",
                "critic.model.use_remove_padding",
                "critic.model.override_config.attn_implementation",
                "critic.fsdp.mixed_precision.param_dtype",
            )
        },
    ),
    4: SettingsChange(
        added={"credit.mapping": "add", "credit.prefixes": "even"}, listed={"credit.method": "credit.methods"}
    ),
    5: SettingsChange(added={"credit.discount": 1.0, "credit.max_probability": 1.0}),
    6: SettingsChange(
        added={
            "credit.align": False,
            "credit.coverage": False,
            "protocol.val_n_of_others": None,
            "projection.epsilon_of": {},
            "projection.closed_loop": False,
            "projection.recovery": 0.5,
            "projection.verify": False,
            "projection.verify_tries": 6,
            "projection.anchor_solutions": 16,
            "projection.metric": "euclidean",
            "projection.noise": 0.0,
            "projection.agreement": -1.0,
            "projection.per_module": False,
            "projection.control": "none",
        }
    ),
    7: SettingsChange(
        added={
            "protocol.replay_from": "store",
            "protocol.weights": "fixed",
            "protocol.weight_rate": 1.0,
            "protocol.weight_trade": 0.2,
        },
        moved={"penalty.fisher_samples": "penalty.solutions"},
    ),
    8: SettingsChange(added={f"{_JUDGE}.hidden_tests": True}),
    # Where nothing is verified, today's default: the key has no effect.
    9: SettingsChange(
        added={"projection.verify_corrections": lambda config: 0 if config.projection.get("verify") else 3}
    ),
    10: SettingsChange(added={"credit.all_or_nothing": False}),
    11: SettingsChange(added={"projection.held_out": False}),
    12: SettingsChange(added={"run.share_first_validation": False}),
    # A closed loop asked for gain by an epsilon below 0, and promised the anchor itself. (It also let no step lower a
    # level that had not gained that much yet. Until the constraint `<skill>.gain`, one constraint asked for gain.)
    13: SettingsChange(
        added={"projection.gain": lambda config: max(0.0, -_loop_epsilon(config))},
        replaced={"projection.epsilon": lambda config: config.projection.epsilon + config.projection.gain},
    ),
}


def take_version(config: DictConfig) -> int:
    """Remove the version from a configuration read from a run's records, and return it."""
    return int(config.pop(KEY, 1))


def check_version(version: int, where: object) -> None:
    """Raise RecordsError if this release does not know this version of the records."""
    if not 1 <= version <= VERSION:
        raise RecordsError(
            f"{where} has version {version} of the records; this release reads versions 1 to {VERSION}: "
            "use the release that wrote it, or a later one"
        )


def starting_weights(start: Mapping[str, Any], version: Callable[[], int], where: object) -> str:
    """Digest of the weights that a run began with, from its event ``start``; empty if unknown.

    Unknown are those of a model on a hub, and of early runs of version 1, which did not record them. version: called
    only for a run without the digest. where: the run, for messages.

    Raises:
        RecordsError: a run of a later version has none.
    """
    if "weights" not in start and version() > 1:
        raise RecordsError(f"{where}: the event 'start' in events.jsonl has no weights; restore the file")
    return str(start.get("weights", ""))


def upgraded(config: DictConfig, version: int, where: object) -> DictConfig:
    """Upgrade the configuration of a run whose records have this version to the current one, in place.

    where: the run, for messages.

    Raises:
        RecordsError: the version is unknown, or the run used a setting that this release does not have.
    """
    check_version(version, where)
    for number in range(version + 1, VERSION + 1):
        _apply(CHANGES[number], config, f"{where} (version {version} of the records)")
    return config


def _apply(change: SettingsChange, config: DictConfig, where: str) -> None:
    for key, value in change.added.items():
        group = _group(config, key)
        if group is not None and _leaf(key) not in group:
            OmegaConf.update(config, key, value(config) if callable(value) else value, force_add=True)
    for key, value in change.replaced.items():
        group = _group(config, key)
        if group is not None and _leaf(key) in group:
            OmegaConf.update(config, key, value(config) if callable(value) else value)
    for key, names in change.renamed.items():
        value = OmegaConf.select(config, key)
        if value in names:
            OmegaConf.update(config, key, names[value])
    for key, new in (change.moved | change.listed).items():
        group = _group(config, key)
        if group is not None and _leaf(key) in group:
            value = group.pop(_leaf(key))
            OmegaConf.update(config, new, [value] if key in change.listed else value, force_add=True)
    for key, neutral in change.removed.items():
        group = _group(config, key)
        if group is None or _leaf(key) not in group:
            continue
        value = group.pop(_leaf(key))
        if value != neutral:
            raise RecordsError(f"{where} was made with {key}={value}, a setting that this release does not have")


def _group(config: DictConfig, key: str) -> DictConfig | None:
    group = OmegaConf.select(config, key.rpartition(".")[0])
    return group if isinstance(group, DictConfig) else None


def _leaf(key: str) -> str:
    return key.rpartition(".")[2]
