"""Options that no study uses are marked in the YAML files and listed in one table."""

import re
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

import configs
from recipe.settings import Settings
from recipe.studies.arm_options import STRENGTHS
from rewards.settings import JudgeSettings

pytestmark = pytest.mark.slow

FOLDER = Path(configs.__path__[0])
TABLE = FOLDER.parent / "docs" / "reference" / "experimental.md"
MARK = re.compile(r"^# Experimental: (.+?) \(docs/reference/experimental\.md\)\.$", re.MULTILINE | re.DOTALL)

# Neither experimental nor set by a study: what depends on the machine and the user's data, and options that the studies
# leave at their defaults (another value of some is marked).
AT_DEFAULT = {
    "run": (
        "root", "directory", "command", "poll_interval", "greedy_validation", "max_masked_share",
        "generations_per_step", "gpu_memory_gib", "line_every_seconds",
    ),
    "skills": ("column",),
    "protocol": ("mixing", "memory_size", "seed", "weight_rate", "weight_trade"),
    "credit": ("skip_equal_groups", "patience", "cache_size", "seed", "tolerance", "min_valid"),
    "projection": (
        "protected", "recovery", "verify_corrections", "verify_tries", "anchor_solutions", "solutions_per_protected",
        "forgetting_margin", "max_protected",
    ),
    "agents": ("role", "observation_characters", "feedback"),
    "penalty": ("solutions",),
    "sandbox": ("url", "isolation", "memory_mb"),
}  # fmt: skip
CHOSEN_BY_FILE = {"kind", "method"}
REWARD_AT_DEFAULT = {
    "timeout", "memory_mb", "sandbox_url", "sandbox_isolation",  # the group `sandbox` has them
    "countdown_format", "countdown_numbers", "gsm8k_extraction", "max_characters", "forbidden_imports",
}  # fmt: skip


def marked() -> set[str]:
    """Options under a mark: ``group.key``, ``group.key=value`` or ``group=file``."""
    texts = [path.read_text(encoding="utf-8") for path in FOLDER.rglob("*.yaml")]
    found = [mark for text in texts for mark in MARK.findall(text)]
    assert len(found) == sum(text.count("Experimental") for text in texts)
    return {option for mark in found for option in re.split(r",\s+(?:# )?", mark)}


def test_the_table_lists_what_is_marked():
    assert set(re.findall(r"^\| `([^`]+)` \|", TABLE.read_text(encoding="utf-8"), re.MULTILINE)) == marked()


@cache
def stated() -> dict[Path, DictConfig]:
    """What each arm and experiment states."""
    found = {}
    for path in (*FOLDER.glob("arm/*.yaml"), *FOLDER.glob("experiment/*.yaml")):
        config = OmegaConf.load(path)
        assert isinstance(config, DictConfig)
        found[path] = config
    return found


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
    for path, config in stated().items():
        overrides = {f"/{group}": value} if not key else {}
        assert all(
            {f"override {place}": chosen} not in config.get("defaults", []) for place, chosen in overrides.items()
        )
        chosen = OmegaConf.select(config, name) if key else None
        assert chosen is None or (value and chosen != value), f"{path.name} sets {option}"


def set_keys() -> set[str]:
    """Every ``group.key`` that an experiment, arm, platform or study sets, or a how-to page shows."""
    keys = set()
    for path in (path for folder in ("arm", "experiment", "platform") for path in FOLDER.glob(f"{folder}/*.yaml")):
        config = OmegaConf.load(path)
        assert isinstance(config, DictConfig)
        for group, values in config.items():
            keys |= {f"{group!s}.{key!s}" for key in values} if isinstance(values, DictConfig) else set()
    folders = (FOLDER.parent / name for name in ("scripts", "recipe/studies", "docs/how-to"))
    files = [path for folder in folders for path in folder.rglob("*") if path.suffix in (".sh", ".py", ".md")]
    found = (re.findall(r"\b(\w+\.\w+)=", path.read_text(encoding="utf-8")) for path in files)
    return keys.union({key for key, _ in STRENGTHS.values()}, *found)


def test_every_option_is_set_somewhere_or_marked_or_at_its_default_on_purpose():
    declared = {
        f"{group}.{key}"
        for group, field in Settings.model_fields.items()
        for key in getattr(field.annotation, "model_fields", {})
        if key not in CHOSEN_BY_FILE
    }
    listed = {f"{group}.{key}" for group, keys in AT_DEFAULT.items() for key in keys}
    assert listed <= declared
    assert listed & (marked() | set_keys()) == set()
    assert declared - set_keys() - marked() - listed == set()


def test_every_reward_setting_is_set_somewhere_or_at_its_default_on_purpose():
    declared = {field.name for field in fields(JudgeSettings)}
    stated_by_files = (
        OmegaConf.select(config, f"{group}custom_reward_function.reward_kwargs")
        for config in stated().values()
        for group in ("", "reward.")
    )
    names = {str(name) for settings in stated_by_files for name in settings or ()}
    names |= {key.removeprefix("reward_kwargs.") for key in set_keys() if key.startswith("reward_kwargs.")}
    assert names & REWARD_AT_DEFAULT == set()
    assert declared == names | REWARD_AT_DEFAULT
