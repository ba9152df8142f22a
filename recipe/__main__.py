"""Every command of this folder under one name: ``skillcredit COMMAND ...``, or ``python -m recipe COMMAND ...``."""

import recipe.checks.packages as packages  # refuses packages of other checkouts before their imports fail

import ast  # isort: skip
import difflib
import re
import runpy
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from recipe.runtime.command_line import started_as

REFUSED = 2


def commands() -> dict[str, str]:
    """What each command does, by its name: read from the modules' docstrings, without importing them."""
    files = sorted(Path(__file__).parent.glob("[!_]*.py"))
    return {file.stem: purpose(ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "") for file in files}


def purpose(docstring: str) -> str:
    """The first sentence of a docstring, without its example of a command line."""
    text = re.sub(r":? ``.*?``", "", " ".join(docstring.split()))
    return re.split(r"(?<=\.)(?: |$)", text)[0]


def version() -> str:
    """The version of this checkout, which pyproject.toml states; the installed one may be older."""
    project: dict[str, str] = tomllib.loads((packages.CHECKOUT / "pyproject.toml").read_text())["project"]
    return f"{project['name']} {project['version']}"


def overview() -> str:
    """The help: every command with its purpose."""
    known = commands()
    width = max(map(len, known))
    lines = [f"  {name:{width}}  {text}" for name, text in known.items()]
    usage = f"usage: {started_as()} COMMAND [ARGUMENT ...]"
    return "\n".join([usage, "", *lines, "", f"{started_as()} COMMAND --help: its arguments; --version: the version"])


def refusal(name: str) -> str | None:
    """Why this command cannot be run here, and how to fix it; None if it can."""
    known = commands()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        return f"no command {name!r}. " + (f"Did you mean {near[0]}? " if near else "") + f"Valid: {', '.join(known)}"
    return "\n".join(map(str, packages.foreign_in(Path.cwd()))) or None


def main(arguments: Sequence[str]) -> int:
    """Run a command as ``python -m recipe.COMMAND`` does, in this process; returns or raises its exit status."""
    name = arguments[0] if arguments else "--help"
    if name in ("-h", "--help"):
        print(overview())
    elif name == "--version":
        print(version())
    elif problem := refusal(name):
        print(f"{started_as()}: {problem}", file=sys.stderr)
        return REFUSED
    else:
        sys.argv[1:] = arguments[1:]
        runpy.run_module(f"recipe.{name}", run_name="__main__", alter_sys=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
