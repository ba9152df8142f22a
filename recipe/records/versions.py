"""Versions of a run's records, and the reader of old ones: what their runs did where today's settings have other keys.

1: ``config.yaml`` names no version.
2: it does (``records_version``), and finished runs can be packed into one file (`recipe.records.kept_runs`).

Whoever adds a key to the configuration or removes one raises ``VERSION`` and adds to ``CHANGES`` what runs did before.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from omegaconf import DictConfig, OmegaConf

VERSION = 2
KEY = "records_version"


class RecordsError(ValueError):
    """Records that this release cannot read; the message is for the user."""


@dataclass(frozen=True)
class Change:
    """How a version's settings differ from those of the version before; keys are dotted.

    added: keys that it introduced, with what runs did until then. A key whose group a run lacks is not added.
    replaced: keys whose value of then gives the same training as this value, up to the draw of samples.
    ``${data.seed}`` is the run's own seed.
    renamed: keys with values that have another name: old -> new.
    removed: keys that it dropped, with the only value that means what runs do without them.
    """

    added: Mapping[str, object] = field(default_factory=dict)
    replaced: Mapping[str, object] = field(default_factory=dict)
    renamed: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    removed: Mapping[str, object] = field(default_factory=dict)


_JUDGE = "reward.custom_reward_function.reward_kwargs"

# version -> what it changed
CHANGES: dict[int, Change] = {
    2: Change(
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
}


def take_version(config: DictConfig) -> int:
    """Take the version out of a configuration that was read from a run's records."""
    return int(config.pop(KEY, 1))


def check_version(version: int, where: object) -> None:
    """Raises RecordsError for records of a version that this release does not know."""
    if not 1 <= version <= VERSION:
        raise RecordsError(
            f"{where} has version {version} of the records; this release reads versions 1 to {VERSION}: "
            "use the release that wrote it, or a later one"
        )


def upgraded(config: DictConfig, version: int, where: object) -> DictConfig:
    """The configuration of a run whose records have this version, changed in place, as today's version would name it.

    where: the run, for messages.

    Raises:
        RecordsError: the version is not known, or the run had a setting that no longer exists.
    """
    check_version(version, where)
    for number in range(version + 1, VERSION + 1):
        _apply(CHANGES[number], config, f"{where} (version {version} of the records)")
    return config


def _apply(change: Change, config: DictConfig, where: str) -> None:
    for key, value in change.added.items():
        group = _group(config, key)
        if group is not None and _leaf(key) not in group:
            OmegaConf.update(config, key, value, force_add=True)
    for key, value in change.replaced.items():
        group = _group(config, key)
        if group is not None and _leaf(key) in group:
            OmegaConf.update(config, key, value)
    for key, names in change.renamed.items():
        value = OmegaConf.select(config, key)
        if value in names:
            OmegaConf.update(config, key, names[value])
    for key, neutral in change.removed.items():
        group = _group(config, key)
        if group is None or _leaf(key) not in group:
            continue
        value = group.pop(_leaf(key))
        if value != neutral:
            raise RecordsError(f"{where} was made with {key}={value}, a setting that this release does not have")


def _group(config: DictConfig, key: str) -> DictConfig | None:
    found = OmegaConf.select(config, key.rpartition(".")[0])
    return found if isinstance(found, DictConfig) else None


def _leaf(key: str) -> str:
    return key.rpartition(".")[2]
