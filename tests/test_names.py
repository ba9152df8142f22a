"""A name of a class or of a type stands for one thing in the repository.

Not covered: private names (`_X`), which their module alone reads, and what stands in tests.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("recipe", "workers", "rewards", "data_prep", "examples", "benchmarks", "scripts")


def definitions(source: str) -> Iterator[tuple[str, str]]:
    """The public classes, also nested ones, and the module's types: (name, how it is defined, "" for a class)."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name, ""
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                # A class or a type is written like ThisOne, a constant like THIS_ONE.
                if isinstance(target, ast.Name) and target.id[0].isupper() and not target.id.isupper():
                    yield target.id, ast.unparse(node.value)


def homonyms(sources: Mapping[str, str]) -> dict[str, list[str]]:
    """Names with more than one definition, and the files. An alias of the same type in two files is one thing."""
    meanings: dict[str, set[str]] = defaultdict(set)
    places: dict[str, list[str]] = defaultdict(list)
    for file, source in sources.items():
        for name, definition in definitions(source):
            meanings[name].add(definition or f"class in {file}, number {len(places[name])}")
            places[name].append(file)
    return {name: files for name, files in places.items() if len(meanings[name]) > 1}


@pytest.mark.slow
def test_a_name_of_a_class_or_type_stands_for_one_thing():
    files = [file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.py"))]
    assert len(files) > 200
    assert homonyms({str(file.relative_to(ROOT)): file.read_text() for file in files}) == {}


def test_the_scan_sees_classes_nested_ones_and_types():
    step, alias = "class Step: ...", "Step = tuple[int, str]"
    assert homonyms({"a": step, "b": step}) == {"Step": ["a", "b"]}
    assert homonyms({"a": step, "b": alias}) == {"Step": ["a", "b"]}
    assert homonyms({"a": step, "b": f"class Outer:\n    {step}"}) == {"Step": ["a", "b"]}
    assert homonyms({"a": alias, "b": "Step = int"}) == {"Step": ["a", "b"]}
    assert homonyms({"a": alias, "b": alias}) == {}
    assert homonyms({"a": "class _Step: ...", "b": "class _Step: ..."}) == {}
    assert homonyms({"a": "STEP = 1", "b": "STEP = 2"}) == {}
