"""Figures of the code and documents of checkouts, side by side (docs/architecture.md):

    python -m scripts.code_figures [CHECKOUT[:FOLDER,FOLDER...] ...]

FOLDERs hold the code (default: this project's packages). Left out: `__init__.py`, tests (folders `tests`, files
`test_*.py`, `*_test.py` and `conftest.py`).
"""

import ast
import io
import sys
import tokenize
from collections.abc import Sequence
from pathlib import Path
from statistics import median, quantiles

PACKAGES = ("recipe", "workers", "rewards", "data_prep", "examples")
_NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
    tokenize.ENDMARKER,
}  # fmt: skip
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


def figures(root: Path, folders: Sequence[str] = PACKAGES) -> dict[str, float]:
    """Every figure of a checkout by its name, from the modules in these folders. A function's lines: with docstring.

    Raises:
        ValueError: the folders hold no module.
    """
    files = [path for name in folders for path in sorted((root / name).rglob("*.py")) if _is_counted(path, root)]
    if not files:
        raise ValueError(f"{root} has no module in {', '.join(folders)}")
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


def _is_counted(path: Path, root: Path) -> bool:
    name, parts = path.name, path.relative_to(root).parts
    is_test = "tests" in parts or name.startswith("test_") or name.endswith("_test.py") or name == "conftest.py"
    return name != "__init__.py" and not is_test


def words_of_pages(root: Path) -> dict[str, int]:
    """Words of README and docs by page. Rules and bars of tables are no words; tables of evidence are a command's."""
    pages = [*root.glob("README.md"), *sorted((root / "docs").rglob("*.md"))]
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
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return 0
    columns = {}
    for argument in arguments or ["."]:
        root, _, folders = argument.partition(":")
        columns[root] = figures(Path(root), folders.split(",") if folders else PACKAGES)
    print(" | ".join(["measure", *columns]))
    for name in next(iter(columns.values())):
        values = (column[name] for column in columns.values())
        print(" | ".join([name, *(f"{value:,.{0 if value == int(value) else 1}f}" for value in values)]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
