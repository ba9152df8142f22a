"""Commands of README and docs have the overrides and arguments that their modules take; none of them runs.

Launchers of studies: tests/scripts/test_documented_studies.py.
"""

import argparse
import re
import runpy
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_module

from recipe.preflight import compose_training
from recipe.settings import read_settings
from tests.test_docs import PAGES, ROOT, is_runnable, prose

pytestmark = pytest.mark.slow  # imports each module

BLOCK = re.compile(r"^ *```bash *$\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
COMPOSED = {"recipe.train", "recipe.preflight", "recipe.memory"}
# Their arguments are paths or commands, which no parser checks.
UNCHECKED = {
    "recipe.cluster", "scripts.check_pins", "scripts.check_verl_names", "scripts.code_figures", "scripts.cpu_platform",
    "scripts.verl_tests",
}  # fmt: skip
FILLED_IN = {"=NAME": "=quickstart", " N": " 8", "=RATE": "=1e-4", " PROJECT": " mine"}
OURS = ("recipe.", "data_prep.", "rewards.", "examples.", "benchmarks.")
ADDED_BY_PAGE = "experiment=arithmetic"  # tests/test_how_to.py composes its commands
OPTIONS = {"--multirun", "--presets", "--runs", "1"}


class Parsed(Exception):
    """The arguments are valid."""


def commands() -> Iterator[tuple[str, str]]:
    """Page, and ``MODULE ARGUMENTS`` of each command that is shown with its arguments."""
    for page in PAGES:
        text = page.read_text()
        shown = [line for block in BLOCK.findall(text) for line in block.replace("\\\n", " ").splitlines()]
        shown += [" ".join(part.split()) for part in re.findall(r"`([^`]*python -m [^`]*)`", prose(page))]
        for line in shown:
            command = line.split(" # ")[0].partition("python -m ")[2].strip()
            module, _, arguments = command.partition(" ")
            whole = arguments and not re.search(r"\.\.\.|\[-|\[[A-Z]", arguments)
            mentioned = module == "recipe.report" and " " not in arguments  # a subcommand
            if whole and not mentioned and module.startswith(OURS) and is_runnable(module) and module not in UNCHECKED:
                yield str(page.relative_to(ROOT)), command


SHOWN = sorted(set(commands()))


def filled(command: str) -> list[str]:
    """Module and arguments, with a value in place of each name in capitals that an argument must have."""
    for placeholder, value in FILLED_IN.items():
        command = re.sub(rf"{placeholder}\b", value, command)
    return shlex.split(command)


@pytest.mark.parametrize(
    ("page", "command"), [one for one in SHOWN if one[1].split()[0] in COMPOSED and ADDED_BY_PAGE not in one[1]]
)
def test_the_overrides_of_a_run_compose_and_are_valid(page: str, command: str):
    _, *words = filled(command)
    overrides = [word for word in words if "=" in word]
    assert set(words) - set(overrides) <= OPTIONS
    if "--multirun" in words:
        overrides = [re.sub(r"=([^\[,]+),.*", r"=\1", word) for word in overrides if "${hydra:" not in word]
    if not any(word.startswith("experiment=") for word in overrides):
        overrides.append("experiment=quickstart")
    read_settings(compose_training(overrides))


@pytest.mark.parametrize(("page", "command"), [one for one in SHOWN if one[1].split()[0] == "recipe.sft"])
def test_the_overrides_of_a_supervised_training_compose(page: str, command: str):
    with initialize_config_module("configs", version_base=None):
        compose("sft", filled(command)[1:])


@pytest.fixture
def only_parsed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Start a command, which ends by Parsed after its parser, or by SystemExit in it."""
    parse = argparse.ArgumentParser.parse_args

    def parsed(parser: argparse.ArgumentParser, arguments: Sequence[str] | None = None, *_: Any) -> None:
        parse(parser, arguments)
        raise Parsed

    def start(command: str) -> None:
        module, *words = filled(command)
        assert parses(module), f"{module} has no parser: check its arguments, or name it in UNCHECKED"
        monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parsed)
        monkeypatch.setattr(sys, "argv", [module, *words])
        runpy.run_module(module, run_name="__main__", alter_sys=True)

    return start


@pytest.mark.filterwarnings("ignore:.*found in sys.modules after import:RuntimeWarning")  # other tests import them
@pytest.mark.parametrize(
    ("page", "command"), [one for one in SHOWN if one[1].split()[0] not in {*COMPOSED, "recipe.sft"}]
)
def test_the_arguments_of_a_command_are_ones_that_it_takes(page: str, command: str, only_parsed: Callable[[str], None]):
    with pytest.raises(Parsed):
        only_parsed(command)


@pytest.mark.parametrize("command", ["recipe.export RUN --stepp 18", "data_prep.micro --out DIR --skills chess"])
def test_a_wrong_argument_is_noticed(command: str, only_parsed: Callable[[str], None]):
    with pytest.raises(SystemExit):
        only_parsed(command)


def parses(module: str) -> bool:
    """Whether the module, or the package's program, mentions that it parses arguments: it will not run instead."""
    found = find_spec(module)
    assert found is not None
    assert found.origin is not None
    file = Path(found.origin)
    files = file.parent.glob("*.py") if file.name == "__init__.py" else [file]
    return any("parse_args(" in one.read_text() for one in files)
