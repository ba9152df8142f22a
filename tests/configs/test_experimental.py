"""Options that no study uses are marked in the YAML files and listed in one table."""

import re
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

import configs
from recipe.settings import Settings

FOLDER = Path(configs.__path__[0])
TABLE = FOLDER.parent / "docs" / "reference" / "experimental.md"
MARK = re.compile(r"^# Experimental: (.+?) \(docs/reference/experimental\.md\)\.$", re.MULTILINE | re.DOTALL)


def marked() -> set[str]:
    """Options under a mark: ``group.key``, ``group.key=value`` or ``group=file``."""
    texts = [path.read_text(encoding="utf-8") for path in FOLDER.rglob("*.yaml")]
    found = [mark for text in texts for mark in MARK.findall(text)]
    assert len(found) == sum(text.count("Experimental") for text in texts)
    return {option for mark in found for option in re.split(r",\s+(?:# )?", mark)}


def test_the_table_lists_what_is_marked():
    assert set(re.findall(r"^\| `([^`]+)` \|", TABLE.read_text(encoding="utf-8"), re.MULTILINE)) == marked()


@pytest.mark.parametrize("option", sorted(marked()))
def test_a_marked_option_is_declared_and_no_study_sets_it(option: str):
    name, _, value = option.partition("=")
    group, _, key = name.partition(".")
    if key:
        model = Settings.model_fields[group].annotation
        assert model is not None
        assert key in model.model_fields
    else:
        assert (FOLDER / group / f"{value}.yaml").exists()
    for path in (*FOLDER.glob("arm/*.yaml"), *FOLDER.glob("experiment/*.yaml")):
        config = OmegaConf.load(path)
        assert isinstance(config, DictConfig)
        overrides = {f"/{group}": value} if not key else {}
        assert all(
            {f"override {place}": chosen} not in config.get("defaults", []) for place, chosen in overrides.items()
        )
        chosen = OmegaConf.select(config, name) if key else None
        assert chosen is None or (value and chosen != value), f"{path.name} sets {option}"
