"""Which names of a test somebody else must supply: the program, a builtin or a library. Pure."""

from __future__ import annotations

import symtable
from functools import lru_cache

LIBRARIES = {
    "np": "numpy", "pd": "pandas", "plt": "matplotlib.pyplot", "sp": "scipy", "nx": "networkx", "sns": "seaborn",
    "tf": "tensorflow", "sy": "sympy",
    **{name: name for name in (
        "numpy", "pandas", "matplotlib", "scipy", "networkx", "seaborn", "tensorflow", "torch", "sklearn", "sympy",
        "requests", "bs4", "nltk", "cv2", "PIL", "jax", "jnp",
    )},
}  # fmt: skip
"""Names that mean a library beyond the standard one, and the module that each stands for."""


@lru_cache(maxsize=8192)
def free_names(test: str) -> frozenset[str]:
    """The names that a test reads and neither defines nor imports. Raises SyntaxError for what is no Python."""
    table = symtable.symtable(test, "test", "exec")
    bound = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    read: set[str] = set()
    tables = [table]
    while tables:
        current = tables.pop()
        tables += current.get_children()
        for symbol in current.get_symbols():
            is_global = symbol.is_global() or current is table
            if is_global and symbol.is_assigned():
                bound.add(symbol.get_name())
            if is_global and symbol.is_referenced():
                read.add(symbol.get_name())
    return frozenset(read - bound)
