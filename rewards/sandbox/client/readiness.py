"""Checks from inside a program that a server's programs can import what answers need: only their view counts."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Collection, Iterable
from typing import Any

IMPORTED = ("numpy",)
"""Actually imported, if the server has them: their compiled parts must load as well."""
FOUND = ("duckdb", "math_verify")
"""Only located, because importing them takes seconds."""
SECONDS = 60.0
MEMORY_MB = 2048

# `os`, `json` and `traceback` are loaded before a program starts, so it can always report what it can't see.
_PROGRAM = """
import json, os, traceback
errors = {}
def attempt(name, step):
    try:
        if step(name) is None:
            errors[name] = f"ModuleNotFoundError: No module named {name!r}"
    except BaseException as error:
        errors[name] = traceback.format_exception_only(error)[-1].strip()
def find(name):
    import importlib.util
    return importlib.util.find_spec(name)
for name in IMPORTED:
    attempt(name, __import__)
for name in FOUND:
    attempt(name, find)
print(json.dumps({"errors": errors, "hidden": [path for path in PATHS if not os.access(path, os.R_OK)]}))
"""


def program(imported: Collection[str], found: Collection[str], paths: Iterable[str] = ()) -> str:
    """A Python program that prints which modules it can't import or find and which of the folders it can't see."""
    return f"IMPORTED, FOUND, PATHS = {list(imported)!r}, {list(found)!r}, {list(paths)!r}\n{_PROGRAM}"


def own_program() -> str:
    """The check program for a server on this interpreter: its programs must import what the interpreter can."""
    has = {name for name in (*IMPORTED, *FOUND) if importlib.util.find_spec(name) is not None}
    installed = [path for path in sys.path if os.path.isdir(path) and path.endswith(("site-packages", "dist-packages"))]
    paths = [os.path.dirname(os.__file__), *installed]
    # `csv` represents the standard library.
    return program(["csv", *(name for name in IMPORTED if name in has)], [name for name in FOUND if name in has], paths)


def problem(result: dict[str, Any]) -> str | None:
    """The problem that a check program's result (outcome, stdout, stderr) reports, or None."""
    if result["outcome"] != "passed":
        lines = result["stderr"].strip().splitlines()
        return f"a program that imports packages ended with {result['outcome']}: {lines[-1] if lines else 'no message'}"
    answer = json.loads(result["stdout"])
    if not answer["errors"]:
        return None
    errors = "; ".join(f"{name}: {line}" for name, line in answer["errors"].items())
    hidden = f". Programs can't see or enter {', '.join(answer['hidden'])}" if answer["hidden"] else ""
    return f"programs can't import what answers need: {errors}{hidden}"
