"""Does every name of verl that our code relies on exist in the installed release, and is what we override unchanged?

    python -m scripts.check_verl_names            # check
    python -m scripts.check_verl_names --write    # after reading the differences: take the installed signatures over

Read from the source with ast: imported names and attributes of them, methods and attributes that our subclasses
override, methods called through super(), attributes of self that verl's classes provide. tests/verl_signatures.json
holds the signatures that the code was written against. Not covered: names in YAML or strings, arguments of calls.
"""

import ast
import importlib
import inspect
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scripts.library_uses import Reader, Use

PROJECT = Path(__file__).resolve().parent.parent
PACKAGES = ("recipe", "workers", "rewards", "data_prep", "upstream", "benchmarks", "scripts")
SNAPSHOT = PROJECT / "tests" / "verl_signatures.json"
REGENERATE = "run python -m scripts.check_verl_names --write and read the difference"


def resolve(name: str) -> Any:
    """The object with a dotted name: the longest part that is a module, then attributes.

    Raises:
        AttributeError: some part does not exist.
    """
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError as error:
            if error.name and not name.startswith(error.name):
                raise  # a module of the library exists, but cannot be imported here
            continue
        for part in parts[length:]:
            found = getattr(found, part)
        return found
    raise AttributeError(f"no module {parts[0]}")


def signature_of(found: Any) -> str:
    """Parameters with defaults and without annotations; ``property`` or ``attribute`` for what is not called."""
    if isinstance(found, property):
        return "property"
    if not callable(found) or inspect.isclass(found):
        return "attribute"
    bare = [parameter.replace(annotation=parameter.empty) for parameter in _parameters(found)]
    text = str(inspect.Signature(bare))
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def _parameters(found: Any) -> list[inspect.Parameter]:
    """Parameters of a function, without those that Ray adds to the methods of its actors."""
    parameters = inspect.signature(found).parameters.values()
    return [parameter for parameter in parameters if not parameter.name.startswith("_ray_")]


def disagreement(theirs: Any, ours: ast.arguments) -> str | None:
    """How an override's parameters differ from the overridden method's, or None.

    The same names in the same order. Ours may leave trailing ones to *args or **kwargs, and may add some with defaults.
    """
    catch_all = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    expected = [parameter.name for parameter in _parameters(theirs) if parameter.kind not in catch_all]
    actual = [argument.arg for argument in (*ours.posonlyargs, *ours.args, *ours.kwonlyargs)]
    required = len(ours.posonlyargs) + len(ours.args) - len(ours.defaults)
    common = min(len(expected), len(actual))
    if actual[:common] != expected[:common]:
        return f"its parameters are ({', '.join(expected)}), ours ({', '.join(actual)})"
    if len(actual) < len(expected) and not (ours.vararg or ours.kwarg):
        return f"ours does not take {', '.join(expected[common:])}"
    if len(actual) > len(expected) and required > len(expected):
        return f"ours asks for {', '.join(actual[common:required])}, which nobody passes"
    return None


def snapshot_of(uses: list[Use]) -> dict[str, str]:
    """Name -> signature of everything that is overridden or called through super(), as installed."""
    found = {}
    for use in uses:
        if use.kind in ("override", "super"):
            member = _member(use.name)
            if member is not None:
                found[use.name] = signature_of(member)
    return dict(sorted(found.items()))


def by_class(snapshot: dict[str, str]) -> dict[str, dict[str, str]]:
    """Class -> member -> signature, as the file has them."""
    found: dict[str, dict[str, str]] = {}
    for name, signature in snapshot.items():
        base, _, member = name.rpartition(".")
        found.setdefault(base, {})[member] = signature
    return found


def kept() -> dict[str, str]:
    """Name -> signature of the file; empty without one."""
    classes = json.loads(SNAPSHOT.read_text()) if SNAPSHOT.exists() else {}
    return {f"{base}.{member}": signature for base, members in classes.items() for member, signature in members.items()}


def problems(uses: list[Use], snapshot: dict[str, str]) -> list[str]:
    """One line for each name that is missing and each signature that changed: place, name, what."""
    found, had_elsewhere = [], _had_from_another_base(uses)
    for use in uses:
        if use.kind == "import":
            try:
                resolve(use.name)
            except AttributeError as error:
                found.append(f"{use.place}: {use.name} does not exist ({error})")
        elif use not in had_elsewhere:
            found += [f"{use.place}: {use.name} {text}" for text in _member_problems(use, snapshot)]
    stale = sorted(snapshot.keys() - {use.name for use in uses})
    found += [f"{SNAPSHOT.name}: {name} is no longer overridden; {REGENERATE}" for name in stale]
    return list(dict.fromkeys(found))


def _had_from_another_base(uses: list[Use]) -> set[Use]:
    """Of a class with several bases in the library: what one lacks that is read or called, another has."""
    reads = [use for use in uses if use.kind in ("self", "super")]
    there = {_read(use) for use in reads if _is_there(use)}
    return {use for use in reads if _read(use) in there and not _is_there(use)}


def _read(use: Use) -> tuple[str, str, str]:
    """A place in our code and what it reads, whichever base has it."""
    return use.place, use.kind, use.name.rpartition(".")[2]


def _is_there(use: Use) -> bool:
    base, attribute = use.name.rsplit(".", 1)
    try:
        assigned = use.kind == "self" and _is_assigned(resolve(base), attribute)
        return assigned or _member(use.name) is not None
    except AttributeError:
        return False


def _member_problems(use: Use, snapshot: dict[str, str]) -> Iterator[str]:
    base, attribute = use.name.rsplit(".", 1)
    try:
        member = _member(use.name)
    except AttributeError:
        return  # the class itself is missing, which its import has said
    if use.kind == "self":
        if member is None and not _is_assigned(resolve(base), attribute):
            yield "is read from self, but neither verl's class nor ours provides it"
        return
    if member is None:
        if use.kind == "super":
            yield "is called through super(), but does not exist"
        elif use.name in snapshot:
            yield "was overridden here, but no longer exists"
        return
    now, then = signature_of(member), snapshot.get(use.name)
    if then is None:
        yield f"is new here; {REGENERATE}"
    elif now != then:
        yield f"was {then} and is {now}"
    if use.own and callable(member) and (difference := disagreement(member, use.own)):
        yield f"is not what ours overrides: {difference}"


def _member(name: str) -> Any:
    """A member of a class of the library, as it stands in the class; None where no class of the library has it."""
    base, attribute = name.rsplit(".", 1)
    for owner in resolve(base).__mro__:
        if attribute in vars(owner):
            found = vars(owner)[attribute]
            return None if owner is object else getattr(found, "__func__", found)
    return None


def _is_assigned(owner: type, attribute: str) -> bool:
    """Whether any class in the hierarchy sets ``self.attribute`` in its source."""
    pattern = re.compile(rf"\bself\.{attribute}\b[^=\n]*=|\bself\.{attribute}\b\s*:")
    for cls in owner.__mro__[:-1]:
        try:
            if pattern.search(inspect.getsource(cls)):
                return True
        except (OSError, TypeError):
            continue
    return False


def main() -> int:
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__)
        return 0
    uses = Reader("verl").read(PROJECT, PACKAGES)
    if "--write" in sys.argv[1:]:
        SNAPSHOT.write_text(json.dumps(by_class(snapshot_of(uses)), indent=0) + "\n")
    found = problems(uses, kept())
    print("\n".join(found) or f"{len({use.name for use in uses})} names of verl are as this code expects them")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
