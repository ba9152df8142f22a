"""The version is stated in pyproject.toml; the citation and the changelog agree with it."""

import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()
SECTIONS = re.split(r"^## ", CHANGELOG, flags=re.MULTILINE)[1:]


def test_the_citation_and_the_last_release_of_the_changelog_have_the_projects_version_and_one_date() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == version
    headings = [section.partition("\n")[0] for section in SECTIONS]
    assert headings[:2] == ["[Unreleased]", f"[{version}] - {citation['date-released']}"]


def test_the_text_for_verls_recipes_requires_the_verl_that_is_pinned() -> None:
    folder = ROOT / "upstream" / "verl_recipe"
    stated = dict(line.split("=", 1) for line in (folder / "REQUIRED_VERL.txt").read_text().splitlines())
    (pinned,) = re.findall(r"^verl==(\S+)$", (ROOT / "requirements" / "gpu.txt").read_text(), re.MULTILINE)
    assert stated["TAG"] == f"v{pinned}"
    assert stated["PIP_INSTALL"] == f"pip install verl=={pinned}"
    assert {"UPSTREAM", "MODE"} <= set(stated)
    assert "## Required `verl` version" in (folder / "README.md").read_text()


def repeated(section: str) -> list[str]:
    """Commands and files that begin more than one point of a section."""
    begun = Counter(re.findall(r"^- `([^`]+)`", section, re.MULTILINE))
    return [name for name, count in begun.items() if count > 1]


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.partition("]")[0].strip("["))
def test_a_release_has_one_point_for_each_thing(section: str) -> None:
    assert repeated(section) == []


def test_a_second_point_is_noticed() -> None:
    assert repeated("- `a b`: c.\n- `d`: e.\n- `a b`: f.\n") == ["a b"]
