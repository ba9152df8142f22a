"""GraphArena's pickles, read without running anything that they name.

A pickle may call any function. Here every name of networkx, numpy and rdkit becomes an inert `Stored`, which keeps
arguments and state, and any other name is refused. Graphs are read from what was stored.
"""

import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from data_prep.schema import DataFileError

_PACKAGES = frozenset({"networkx", "numpy", "rdkit"})


class Stored:
    """An object of a pickle: the arguments that would have made it, and its state."""

    arguments: tuple[Any, ...] = ()
    state: Mapping[str, Any] = {}

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __setstate__(self, state: Any) -> None:
        self.state = state if isinstance(state, dict) else {"state": state}


class _Integer(Stored):
    """A numpy scalar, as a whole number; other scalars do not occur."""

    def __new__(cls, dtype: Stored, raw: bytes) -> Any:
        kind = dtype.arguments[0]
        if kind[0] not in "iu":
            raise pickle.UnpicklingError(f"it has a number of type {kind!r}, but only whole ones are read")
        return int.from_bytes(raw, "big" if ">" in str(dtype.state) else "little", signed=kind[0] == "i")


class _Bytes(Stored):
    """Bytes, as protocol 2 writes them."""

    def __new__(cls, text: str, encoding: str) -> Any:
        return text.encode("latin-1")


# Only classes, on none of which a pickle can set an attribute: its state goes to `__setstate__`.
_KNOWN: dict[tuple[str, str], type] = {
    **{(module, kind.__name__): kind for module in ("builtins", "__builtin__") for kind in (set, frozenset)},
    **{(f"numpy.{core}.multiarray", "scalar"): _Integer for core in ("core", "_core")},
    ("_codecs", "encode"): _Bytes,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _KNOWN:
            return _KNOWN[module, name]
        if module.partition(".")[0] not in _PACKAGES:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which is no part of GraphArena's data")
        return type(name, (Stored,), {})


def read_pickle(path: Path) -> list[Any]:
    """The list that a pickle holds; DataFileError if it names anything but graphs and numbers, or is no list."""
    try:
        with path.open("rb") as stream:
            found = _Unpickler(stream).load()
    except OSError as error:
        raise DataFileError(f"{path}: {error.strerror}") from error
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise DataFileError(f"{path}: refused, {error}; nothing in it was run") from error
    if not isinstance(found, list):
        raise DataFileError(f"{path}: a list of problems was expected, found {type(found).__name__}")
    return found


def nodes_and_edges(graph: Stored) -> tuple[dict[Any, Any], list[tuple[Any, Any]]]:
    """The attributes of a stored graph's nodes, and its edges, each once; the graph may be a view of a larger one."""
    nodes = dict(_items(graph.state["_node"]))
    edges: dict[tuple[Any, Any], None] = {}
    for left in nodes:
        for right, _ in _items(_row(graph.state["_adj"], left)):
            if right in nodes and (right, left) not in edges:
                edges[left, right] = None
    return nodes, list(edges)


def _items(atlas: Any) -> Iterator[tuple[Any, Any]]:
    """The items of a mapping of networkx; a filtered one shows only some nodes of the one below."""
    if isinstance(atlas, dict):
        yield from atlas.items()
        return
    below, shown = atlas.state["_atlas"], atlas.state.get("NODE_OK")
    chosen = shown.state.get("nodes") if isinstance(shown, Stored) else None
    yield from _items(below) if chosen is None else ((node, _row(below, node)) for node in chosen)


def _row(atlas: Any, node: Any) -> Any:
    return atlas[node] if isinstance(atlas, dict) else _row(atlas.state["_atlas"], node)
