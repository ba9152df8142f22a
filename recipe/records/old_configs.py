"""Reads configurations that earlier versions recorded: values that have another name, keys that they did not have."""

from omegaconf import DictConfig, open_dict

RENAMED = {"projection.method": {"none": "measure"}}
# What a run did whose version had no such key.
ABSENT = {"run.seeded_samples": False, "run.greedy_validation": False}


def as_current(config: DictConfig) -> DictConfig:
    """The same configuration with the names and keys of this version, changed in place; groups it lacks stay absent."""
    with open_dict(config):
        for path, names in RENAMED.items():
            node, key = _parent(config, path)
            if node is not None and node.get(key) in names:
                node[key] = names[node[key]]
        for path, value in ABSENT.items():
            node, key = _parent(config, path)
            if node is not None and key not in node:
                node[key] = value
    return config


def _parent(config: DictConfig, path: str) -> tuple[DictConfig | None, str]:
    group, _, key = path.partition(".")
    node = config.get(group)
    return (node if isinstance(node, DictConfig) else None), key
