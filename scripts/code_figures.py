"""Figures of a checkout's code and documents (docs/architecture.md).

python -m scripts.code_figures                                    # this project
python -m scripts.code_figures CHECKOUT FOLDER ...                # those folders of any checkout
python -m scripts.code_figures CHECKOUT FOLDER --leave-out 'test_*' --leave-out '*_test.py'
"""

import argparse
import ast
import io
import sys
import tokenize
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from statistics import median, quantiles

PACKAGES = ("recipe", "workers", "rewards", "data_prep", "examples")
_NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
    tokenize.ENDMARKER,
}  # fmt: skip
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


def figures(root: Path, folders: Sequence[str] = PACKAGES, leave_out: Sequence[str] = ()) -> dict[str, float]:
    """Every figure by its name. Modules without `__init__.py`; a function's lines with its docstring.

    Args:
        root: the checkout.
        folders: where its code stands.
        leave_out: patterns of names of files and folders below `folders` that do not count.
    """
    files = [
        path
        for name in folders
        for path in sorted((root / name).rglob("*.py"))
        if path.name != "__init__.py"
        and not any(fnmatch(part, one) for part in path.relative_to(root / name).parts for one in leave_out)
    ]
    texts = [path.read_text() for path in files]
    lines = [len(text.splitlines()) for text in texts]
    nodes = [node for text in texts for node in ast.walk(ast.parse(text)) if isinstance(node, FunctionNode)]
    lengths = [(node.end_lineno or 0) - node.lineno + 1 for node in nodes]
    arguments = [argument for node in nodes for argument in _arguments(node)]
    tokens, code_lines = zip(*map(_tokens, texts), strict=True)
    return {
        "modules": len(files),
        "lines": sum(lines),
        "median module (lines)": median(lines),
        "longest module (lines)": max(lines),
        "median function (lines)": median(lengths),
        "90th percentile of functions (lines)": quantiles(lengths, n=10)[-1],
        "longest function (lines)": max(lengths),
        "tokens per code line": sum(tokens) / sum(code_lines),
        "typed arguments (%)": 100 * sum(one.annotation is not None for one in arguments) / len(arguments),
        "words of docs": sum(words_of_pages(root).values()),
    }


def words_of_pages(root: Path) -> dict[str, int]:
    """Words of README and docs by page. Rules and bars of tables are no words; tables of evidence are a command's."""
    pages = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    return {
        str(page.relative_to(root)): sum(
            any(map(str.isalnum, word))
            for line in page.read_text().splitlines()
            if not (line.startswith("|") and "evidence" in page.relative_to(root).as_posix())
            for word in line.split()
        )
        for page in pages
    }


def _arguments(node: FunctionNode) -> list[ast.arg]:
    given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return [argument for argument in given if argument.arg not in ("self", "cls")]


def _tokens(text: str) -> tuple[int, int]:
    """Tokens of code, and lines that have one; docstrings count, comments and blank lines do not."""
    found = [token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type not in _NO_CODE]
    return len(found), len({line for token in found for line in range(token.start[0], token.end[0] + 1)})


def main(arguments: Sequence[str]) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", nargs="?", type=Path, default=Path("."))
    parser.add_argument("folders", nargs="*", default=PACKAGES, help="where its code stands (default: ours)")
    parser.add_argument(
        "--leave-out", action="append", default=[], help="pattern of files and folders that do not count"
    )
    given = parser.parse_args(arguments)
    if missing := [name for name in given.folders if not (given.checkout / name).is_dir()]:
        parser.error(f"{given.checkout} has no folder {missing[0]}: name the folders of its code")
    for name, value in figures(given.checkout, given.folders, given.leave_out).items():
        print(f"{name:38} {value:9,.{0 if value == int(value) else 1}f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
