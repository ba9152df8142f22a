"""The console command ``skillcredit``: every ``python -m recipe.COMMAND`` of this checkout, from any folder.

It stands beside the packages because TransferQueue installs a ``recipe/``, which an installed command would find first.
"""

import ast
import difflib
import os
import re
import runpy
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent
REFUSED = 2


def commands() -> dict[str, str]:
    """What each command does, by its name: read from the modules' docstrings, without importing them."""
    recipe = CHECKOUT / "recipe"
    files = {file.stem: file for file in recipe.glob("[!_]*.py")}
    files |= {file.parent.name: file for file in recipe.glob("*/__main__.py")}
    texts = {name: ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) for name, file in files.items()}
    return {name: purpose(texts[name] or "") for name in sorted(texts)}


def purpose(docstring: str) -> str:
    """The first sentence of a docstring, without its example of a command line."""
    text = re.sub(r":? ``.*?``", "", " ".join(docstring.split()))
    return re.split(r"(?<=\.)(?: |$)", text)[0]


def version() -> str:
    """The version of this checkout, which pyproject.toml states; the installed one may be older."""
    project: dict[str, str] = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    return f"{project['name']} {project['version']}"


def overview() -> str:
    """The help: every command with its purpose."""
    known = commands()
    width = max(map(len, known))
    lines = [f"  {name:{width}}  {text}" for name, text in known.items()]
    ends = "skillcredit COMMAND --help: its arguments; skillcredit --version: the version"
    return "\n".join(["usage: skillcredit COMMAND [ARGUMENT ...]", "", *lines, "", ends])


def put_checkout_first() -> None:
    """Let this process and those that it starts import this checkout's packages."""
    sys.path.insert(0, str(CHECKOUT))
    others = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(CHECKOUT), *([others] if others else [])])


def refusal(name: str) -> str | None:
    """Why this command cannot be run here, and how to fix it; None if it can."""
    known = commands()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        return f"no command {name!r}. " + (f"Did you mean {near[0]}? " if near else "") + f"Valid: {', '.join(known)}"
    from recipe.checks.packages import foreign_in

    return "\n".join(map(str, foreign_in(Path.cwd()))) or None


def run(arguments: Sequence[str]) -> int:
    """Run a command as ``python -m recipe.COMMAND`` does, in this process; returns or raises its exit status."""
    name = arguments[0] if arguments else "--help"
    if name in ("-h", "--help"):
        print(overview())
    elif name == "--version":
        print(version())
    elif problem := refusal(name):
        print(f"skillcredit: {problem}", file=sys.stderr)
        return REFUSED
    else:
        sys.argv[1:] = arguments[1:]
        runpy.run_module(f"recipe.{name}", run_name="__main__", alter_sys=True)
    return 0


def main() -> int:
    """The command line; returns the exit status."""
    put_checkout_first()
    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
