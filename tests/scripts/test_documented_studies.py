"""Launchers of studies in README and docs take the options and arguments with which they are shown."""

import re
import shlex
from collections.abc import Iterator

import pytest

from tests.studying import ROOT, study
from tests.test_docs import PAGES

SHOWN = re.compile(
    r"(?P<options>(?:\b[A-Z_]+=(?:\"[^\"]*\"|[^\s\"]+) )*)bash scripts/(?P<launcher>[\w/]+)\.sh(?P<words>[^`\n#|]*)"
)
STARTED = re.compile(r"^study (?P<name>[\w.]+)(?P<words>.*) \"\$@\"$", re.MULTILINE)
FILLED_IN = {"MODEL": "some/model", "REWARD": "binary", "VOLUME": "640", "OUT": "outputs/out"}


def launcher(command: str) -> str:
    found = SHOWN.fullmatch(command)
    assert found is not None
    return (ROOT / "scripts" / f"{found['launcher']}.sh").read_text()


def commands() -> Iterator[tuple[str, str]]:
    """Page and command of each that is shown whole."""
    for page in PAGES:
        for found in SHOWN.finditer(page.read_text().replace("\\\n", " ")):
            command = " ".join(found[0].split())
            added_by_page = not (ROOT / "scripts" / f"{found['launcher']}.sh").exists()
            if not re.search(r"\.\.\.|\[", command) and not added_by_page and STARTED.search(launcher(command)):
                yield str(page.relative_to(ROOT)), command


COMMANDS = sorted(set(commands()))


@pytest.mark.slow
@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_a_documented_launcher_takes_its_options_and_arguments(page: str, command: str):
    found, started = SHOWN.fullmatch(command), STARTED.search(launcher(command))
    assert found is not None
    assert started is not None
    words = [FILLED_IN.get(word, word) for word in shlex.split(found["words"])]
    options = dict(word.split("=", 1) for word in shlex.split(found["options"]))
    status, _, printed = study(
        started["name"], *shlex.split(started["words"]), *words, dry=True, folder=ROOT, **options
    )
    assert status == 0, printed


def test_a_wrong_option_or_argument_is_noticed():
    assert len(COMMANDS) > 40
    for words, options in (
        (["longest"], {}),
        (["longer"], {"TASKS": "chess"}),
        (["longer"], {"TEACHER": "some/model"}),
    ):
        assert study("evidence_credit", *words, dry=True, folder=ROOT, **options)[0] != 0
