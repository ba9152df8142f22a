"""The YAML files and the typed settings state the same defaults."""

import dataclasses
import inspect
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf
from pydantic_core import PydanticUndefined

import configs
from recipe.settings import CreditSettings, ProjectionSettings, Settings
from rewards.counterfactual.replay import Plan
from workers.credit import shape_advantages
from workers.update_request import Protection

FOLDER = Path(configs.__path__[0])
# Keys that a group's file sets; their default only means "off" or no file.
CHOSEN_BY_FILE = {("skills", "names"), ("penalty", "strength")}


def stated(group: str) -> dict[str, list[Any]]:
    """Values of each key of a group in the files that set it."""
    files = [_resolved(path, group) for path in sorted((FOLDER / group).glob("[!_]*.yaml"))]
    found: dict[str, list[Any]] = {}
    for node in (_train().get(group) or OmegaConf.create({}), *files):
        for key in node:
            values = found.setdefault(str(key), [])
            if not OmegaConf.is_missing(node, key):
                values.append(node[key])
    return found


@cache
def _train() -> DictConfig:
    loaded = OmegaConf.load(FOLDER / "train.yaml")
    assert isinstance(loaded, DictConfig)
    return loaded


def _resolved(path: Path, group: str) -> DictConfig:
    """One file merged over the files of its defaults list, at its place in a run's configuration."""
    own = OmegaConf.load(path)
    assert isinstance(own, DictConfig)
    bases = [OmegaConf.load(path.parent / f"{name}.yaml") for name in own.pop("defaults", []) if name != "_self_"]
    root = OmegaConf.create({"data": {"seed": _train().data.seed}, group: OmegaConf.merge(*bases, own)})
    return root[group]


@pytest.mark.slow
@pytest.mark.parametrize("group", Settings.model_fields)
def test_a_typed_default_is_the_one_that_the_files_state(group: str):
    model = Settings.model_fields[group].annotation
    assert model is not None
    files = stated(group)
    assert set(files) == set(model.model_fields) - _set_by_platforms(group)
    for key, field in model.model_fields.items():
        if field.default is not PydanticUndefined and (group, key) not in CHOSEN_BY_FILE:
            assert files[key] == [field.default] * len(files[key]), f"{group}.{key}"


def _set_by_platforms(group: str) -> set[str]:
    return {"seeded_samples"} if group == "run" else set()


def test_only_keys_whose_files_differ_are_left_to_the_files():
    for group, key in CHOSEN_BY_FILE:
        values = stated(group)[key]
        assert any(value != values[0] for value in values[1:]), f"{group}.{key}"


def test_the_libraries_below_have_the_same_defaults():
    credit, projection = CreditSettings(kind="off"), ProjectionSettings(method="off")
    for field in dataclasses.fields(Plan):
        assert getattr(credit, field.name) == field.default, field.name
    parameters = inspect.signature(shape_advantages).parameters
    # mapping, normalization and zero_advantage: the function is the plain formula, which needs no groups.
    for name in ("tolerance", "min_valid"):
        assert parameters[name].default == getattr(credit, name), name
    shared = [one for one in dataclasses.fields(Protection) if one.name in ProjectionSettings.model_fields]
    stated = {one.name: one.default for one in shared if one.default is not dataclasses.MISSING}
    del stated["control"]  # the seed of its signs in place of its name
    assert stated.keys() >= {"space", "average", "closed_loop", "recovery", "metric", "noise", "agreement"}
    assert stated == {name: getattr(projection, name) for name in stated}
