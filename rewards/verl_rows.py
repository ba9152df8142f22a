"""Rows of verl's own preprocess scripts: their data sources and ground truths in the terms of our verifiers. Pure.

With `reward.custom_reward_function.path=pkg://rewards` verl passes such rows to `compute_score` as they are. Of
HumanEval's published form `check(candidate)` becomes unit tests.
"""

import ast
import json
from functools import lru_cache
from typing import Any

from rewards.verifiers import entry_points

# The names that verl 0.9.1's default_compute_score knows, except those of images and of search; and HumanEval, of which
# verl has no script: its rows hold the published fields.
_VERIFIERS = {
    "openai/gsm8k": "gsm8k",
    **dict.fromkeys(("lighteval/MATH", "DigitalLearningGmbH/MATH-lighteval", "HuggingFaceH4/MATH-500"), "latex"),
    **dict.fromkeys(("math", "math_dapo", "math_dapo_reasoning"), "latex"),
    **dict.fromkeys(("numina_aops_forum", "numina_synthetic_math", "numina_amc_aime"), "latex"),
    **dict.fromkeys(("numina_synthetic_amc", "numina_cn_k12", "numina_olympiads"), "latex"),
    **dict.fromkeys(("codecontests", "apps", "codeforces", "taco"), "stdio"),
    **dict.fromkeys(("humaneval", "openai/openai_humaneval"), "code"),
}
_AIME = "aime"
# Their scorer reads the last `Answer:`, that of the others the last box.
_BY_LINE = ("math", "math_dapo", "math_dapo_reasoning")


def verifier_of(data_source: str) -> str | None:
    """The verifier of a data source of verl's; None if the name is none of those."""
    return "latex" if data_source.startswith(_AIME) else _VERIFIERS.get(data_source)


@lru_cache(maxsize=256)
def row_of(data_source: str, ground_truth: str) -> tuple[str, str]:
    """The verifier of a row of verl's and its ground truth as JSON; ValueError if it is not of a known form.

    The answer is text in mathematics. Programs have `{"inputs": [...], "outputs": [...]}`, each a text or its lines.
    With `fn_name` they are arguments, as JSON lines or a list, and what is returned; `assert_case` holds unit tests.
    HumanEval has `test`, `entry_point` and, if the tests use its imports or helper functions, `prompt`.
    """
    verifier = verifier_of(data_source)
    if verifier is None:
        raise ValueError(f"{data_source} is no data source of verl's")
    if verifier in ("latex", "gsm8k"):
        by_line = data_source in _BY_LINE or data_source.startswith(_AIME)
        return verifier, json.dumps({"answer": ground_truth} | ({"answer_line": True} if by_line else {}))
    tests = json.loads(ground_truth)
    if verifier == "code":
        return verifier, json.dumps(_human_eval(data_source, tests))
    function = tests.get("fn_name") if isinstance(tests, dict) else None
    if isinstance(tests, dict) and tests.get("assert_case"):
        return "code", json.dumps({"tests": tests["assert_case"], "entry_points": [function] if function else []})
    if not isinstance(tests, dict) or not {"inputs", "outputs"} <= tests.keys():
        raise ValueError(f"{data_source}: the ground truth needs 'inputs' and 'outputs', or 'assert_case'")
    pairs = list(zip(tests["inputs"], tests["outputs"], strict=True))
    if function is not None:
        return "calls", json.dumps({"function": function} | _calls(pairs))
    return "stdio", json.dumps({"cases": [{"stdin": joined(given), "expected": joined(out)} for given, out in pairs]})


def _human_eval(data_source: str, record: Any) -> dict[str, Any]:
    if not isinstance(record, dict) or not {"test", "entry_point"} <= record.keys():
        raise ValueError(f"{data_source}: the ground truth needs 'test' and 'entry_point'")
    name = record["entry_point"]
    return human_eval_truth(record.get("prompt") or f"def {name}(*_):\n", record["test"], name)


def joined(lines: Any) -> str:
    """A text that is given as such or as its lines; "" for None."""
    return "\n".join(map(str, lines)) if isinstance(lines, list) else "" if lines is None else str(lines)


def _calls(pairs: list[tuple[Any, Any]]) -> dict[str, Any]:
    calls = [
        {"args": _arguments(given),
         "expected": json.loads(out) if isinstance(given, str) else out}
        for given, out in pairs
    ]  # fmt: skip
    # Some sets put every value into a list: whether it belongs to the value cannot be read in the row.
    return {"calls": calls, "wrapped": all(isinstance(c["expected"], list) and len(c["expected"]) == 1 for c in calls)}


def _arguments(given: Any) -> list[Any]:
    return [json.loads(line) for line in given.split("\n") if line.strip()] if isinstance(given, str) else list(given)


def human_eval_truth(prompt: str, test: str, entry_point: str, solution: str = "    pass\n") -> dict[str, Any]:
    """The ground truth of a problem; SyntaxError or ValueError if its parts are not of the published form.

    prompt: the head of the function, after imports and helper functions. test: defines `check(candidate)`.
    entry_point: the function's name. solution: the rest of the function.
    """
    program = f"{prompt}\n{solution}"
    tests = [entry_points.with_imports(program, unit) for unit in unit_tests(prompt, test, entry_point)]
    return {"tests": tests} | entry_points.named(program, tests)


def unit_tests(prompt: str, test: str, entry_point: str) -> list[str]:
    """The published `check(candidate)` as unit tests: one per assertion if it contains only assertions, which allows
    partial credit, else one for all of it. Tests may use the prompt's helper functions.
    """
    tree = ast.parse(test)
    checks = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "check"]
    if len(checks) != 1 or not checks[0].args.args:
        raise ValueError("the test must define one function check(candidate)")
    check = checks[0]
    before = [node for node in tree.body if node is not check and not _is_idle(node)]
    helpers = "\n".join(map(ast.unparse, [*_helpers(prompt, entry_point), *before]))
    body = [node for node in check.body if not _is_idle(node)]
    if all(isinstance(node, ast.Assert) for node in body):
        pieces = [f"{check.args.args[0].arg} = {entry_point}\n{ast.unparse(node)}" for node in body]
    else:
        pieces = [f"{ast.unparse(check)}\ncheck({entry_point})"]
    return [f"{helpers}\n{piece}".strip() for piece in pieces]


def _helpers(prompt: str, entry_point: str) -> list[ast.stmt]:
    tree = ast.parse(prompt + "\n    pass\n")
    helpers = [node for node in tree.body if not (isinstance(node, ast.FunctionDef) and node.name == entry_point)]
    return helpers if any(isinstance(node, ast.FunctionDef) for node in helpers) else []


def _is_idle(node: ast.stmt) -> bool:
    """Whether a test does not need a statement: documentation, METADATA, `assert True`."""
    if isinstance(node, ast.Assert):
        return isinstance(node.test, ast.Constant) and bool(node.test.value)
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Name) and target.id == "METADATA" for target in node.targets)
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
