"""The documentation names what there is."""

import re
from pathlib import Path

import configs

FOLDER = Path(configs.__path__[0])
RUNNING = Path(__file__).parents[1] / "docs" / "running.md"


def test_every_group_and_file_of_the_configuration_is_named_in_the_table():
    named = {}
    for group, files in re.findall(r"^\| `(\w+)` \| (.*?) \|", RUNNING.read_text(), re.MULTILINE):
        named[group] = set(re.findall(r"`(\w+)`", files))
    for group, files in re.findall(r"`(sft_\w+)` \((.*?)\)", RUNNING.read_text()):
        named[group] = set(re.findall(r"`(\w+)`", files))
    folders = (path for path in FOLDER.iterdir() if path.is_dir() and path.name != "__pycache__")
    assert named == {path.name: {file.stem for file in path.glob("[!_]*.yaml")} for path in folders}
