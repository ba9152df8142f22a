"""Driver of calls: a program that evaluates expressions with a solution's functions, inside the sandbox.

Reads {"program": source, "imports": source, "expressions": [text]} from standard input and prints one JSON line per
expression, in order: the value as a Python literal, or null if it fails or has no literal. Needs the standard library
only.
"""

import ast
import json
import os
import sys


def plain(value):
    """The value with builtin containers for those derived from them; TypeError for other objects."""
    if isinstance(value, dict):
        return {plain(key): plain(item) for key, item in value.items()}
    for kind in (tuple, list, frozenset, set):
        if isinstance(value, kind):
            return kind(map(plain, value))
    if value is not None and type(value) not in (bool, int, float, complex, str, bytes):
        raise TypeError(f"{type(value).__name__} is not plain data")
    return value


def literal_of(expression, namespace):
    """The value of an expression as a literal that reads back equal; None if there is none."""
    try:
        text = repr(plain(eval(expression, namespace)))  # noqa: S307  (the sandbox runs it)
        return text if repr(ast.literal_eval(text)) == text else None
    except (Exception, SystemExit):
        return None


def main():
    """Print the value of every expression."""
    job = json.load(sys.stdin)
    answers, sys.stdout = sys.stdout, open(os.devnull, "w")  # noqa: SIM115
    namespace = {"__name__": "solution"}
    exec(job["program"], namespace)  # noqa: S102
    exec(job["imports"], namespace)  # noqa: S102
    for expression in job["expressions"]:
        print(json.dumps(literal_of(expression, namespace)), file=answers, flush=True)


if __name__ == "__main__":
    main()
