"""Runs a study in this process, and reads what it shows."""

import os
import re
import shlex
import subprocess
import tempfile
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

from recipe.runtime.options import every_name, names
from recipe.study import STUDIES, declared_options, main

ROOT = Path(__file__).parents[1]


def study(*arguments: str, dry: bool = True, folder: Path = ROOT, **variables: str) -> tuple[int, list[str], str]:
    """Exit status, commands and claims that `python -m recipe.study` shows, and everything that it prints.

    folder: where it runs. variables: the options of the study; the environment's own options do not count.
    """
    environment = {name: value for name, value in os.environ.items() if name.lower() not in every_name()}
    environment |= {"DRY_RUN": "1" if dry else "", **variables}
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        with redirect_stdout(out), redirect_stderr(errors), chdir(folder):
            with patch.dict(os.environ, environment, clear=True):
                status = main(arguments)
        out.seek(0)
        errors.seek(0)
        answer, printed = out.read(), errors.read()
    return status, shown(printed), answer + printed


def taken(name: str, **variables: str) -> dict[str, str]:
    """Those of the variables that are options of this study."""
    options = names(declared_options(STUDIES[name]))
    return {variable: value for variable, value in variables.items() if variable.lower() in options}


def script(*words: str, **variables: str) -> tuple[int, list[str], str]:
    """The same of a launcher in a shell, dry."""
    kept = {name: value for name, value in os.environ.items() if name.lower() not in every_name()}
    environment = {**kept, "DRY_RUN": "1", **variables}
    done = subprocess.run(["bash", *words], cwd=ROOT, env=environment, capture_output=True, text=True)
    return done.returncode, shown(done.stderr), done.stdout + done.stderr


def shown(printed: str) -> list[str]:
    """The commands, without the interpreter, and the claims of folders, as words with one blank between two."""
    lines = re.findall(r"^[+#] (?:\S*python -m )?(.*)$", printed, re.MULTILINE)
    return [" ".join(shlex.split(line)) for line in lines]


def of_module(commands: list[str], module: str) -> list[str]:
    """The commands of a module."""
    return [command for command in commands if command.startswith(f"{module} ")]


def search(pattern: str, text: str) -> re.Match[str]:
    """The first match; fails where there is none."""
    found = re.search(pattern, text)
    assert found is not None, f"no {pattern} in: {text}"
    return found
