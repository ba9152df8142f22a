"""Whether a program can run code that its own statements do not show: text that is executed, or a way to reach what
executes text. What counts is that the way is there, not that it is used.
"""

import ast
import sys


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Modules that run no text and open no file; what is reached through others is not counted as statements.
_PLAIN_MODULES = _words("""
    __future__ abc array bisect cmath collections copy datetime decimal enum fractions functools heapq itertools
    json math numbers numpy operator random re statistics string time typing dataclasses contextlib textwrap
    unicodedata zlib hashlib
""")
_RUNS_TEXT = _words("""
    exec eval compile execfile breakpoint open input help get_type_hints ForwardRef evaluate_forward_ref
    run_path run_module runctx import_module reload
""")
_REACHES = _words("""
    getattr setattr delattr attrgetter methodcaller globals locals vars dir memoryview __import__ __builtins__
    builtins modules FunctionType CodeType LambdaType MethodType f_globals f_locals f_builtins f_back gi_frame
    tb_frame ag_frame cr_frame mro
""")
_HIDING = _RUNS_TEXT | _REACHES
_OTHER_MODULES = (sys.stdlib_module_names - _PLAIN_MODULES) | {"sys", "os"}
_DUNDERS = frozenset(("__init__", "__name__", "__doc__"))


def hides_code(source: str) -> bool:
    """Whether a program names anything that runs text, reaches other namespaces, or imports a module that may."""
    tree = ast.parse(source)
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = {(alias.asname or alias.name).partition(".")[0] for node in imports for alias in node.names}
    return any(_hides(node, modules) for node in ast.walk(tree))


def _hides(node: ast.AST, modules: set[str]) -> bool:
    if isinstance(node, ast.Name):
        return node.id in _HIDING or _is_dunder(node.id)
    if isinstance(node, ast.Attribute):
        if node.attr == "compile" and getattr(node.value, "id", None) == "re":
            return False
        of_module = _root(node) in modules
        inner = node.attr in _OTHER_MODULES or node.attr.startswith("_")
        return node.attr in _HIDING or _is_dunder(node.attr) or (of_module and inner)
    if isinstance(node, ast.Import):
        return any(not _is_plain(alias.name) for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        names = [alias.name for alias in node.names]
        inner = any(name in _HIDING | _OTHER_MODULES or (name.startswith("_") and name != "*") for name in names)
        return bool(node.level) or not _is_plain(node.module or "") or inner
    if isinstance(node, ast.MatchClass):
        return any(name in _HIDING or _is_dunder(name) for name in node.kwd_attrs)
    return False


def _root(node: ast.expr) -> str | None:
    """The name at the left end of `a.b.c`."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return getattr(node, "id", None)


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__") and name not in _DUNDERS


def _is_plain(module: str) -> bool:
    return module.partition(".")[0] in _PLAIN_MODULES
