"""Kinds of syntax nodes, and the fields that hold statements, which several analyses tell apart."""

import ast

BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
"""The fields of a compound statement that hold other statements, or the handlers and cases around them."""
ENDS = (ast.Return, ast.Raise, ast.Break, ast.Continue)
"""Statements after which the next one of their block is not reached."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)
"""Nodes other than `ast.Name` with a name of their own."""
