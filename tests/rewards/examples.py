"""One problem per verifier: its ground truth, a correct answer, wrong ones, and its prompt."""

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Example:
    truth: dict[str, Any]
    gold: str
    wrong: tuple[str, ...]
    prompt: str

    @property
    def row(self) -> str:
        """The ground truth in the format of a row."""
        return json.dumps(self.truth)


def thought(answer: str) -> str:
    """An answer after a thinking part."""
    return f"<think>\nLet me see.\n</think>\n{answer}"


SQUARE = {"nodes": ["A", "B", "C", "D"], "edges": [["A", "B"], ["B", "C"], ["C", "D"], ["D", "A"], ["A", "C"]]}
PATH = {"nodes": ["A", "B", "C", "D"], "edges": [["A", "B"], ["B", "C"], ["C", "D"]]}
ETHER = {"atoms": ["C", "O", "C"], "bonds": [[0, 1], [1, 2]]}
ALCOHOL = {"atoms": ["C", "C", "O"], "bonds": [[0, 1], [1, 2]]}


def graph(truth: dict[str, Any], gold: str, *wrong: str, ask: str) -> Example:
    prompt = f"{ask} Nodes and edges: {json.dumps(SQUARE)}. Think in <think> and </think>, then give a list [X, Y]."
    return Example(truth, thought(gold), tuple(map(thought, wrong)), prompt)


EXAMPLES = {
    "code": Example(
        {"tests": ["assert f(2) == 4", "assert f(3) == 9"], "visible": 1},
        "```python\ndef f(x):\n    return x * x\n```",
        ("def f(x):\n    return x + 2",),
        "Write f(x), the square of x. For example: assert f(2) == 4",
    ),
    "refactor": Example(
        {
            "tests": ["assert f(2) == 4", "assert f(3) == 9"],
            "visible": 1,
            "original": "def f(x):\n    return x * x",
            "max_statements": 2,
        },
        "```python\ndef f(x):\n    return x**2\n```",
        (
            "```python\ndef f(x):\n    y = x\n    return x * y\n```",
            "```python\ndef f(x): return x**2\n```",
            "```python\ndef f(x):\n    # the same tree\n    return x * x\n```",
            "def f(x):\n    return x + 2",
        ),
        "Write this program in another way:\n```python\ndef f(x):\n    return x * x\n```",
    ),
    "stdio": Example(
        {"cases": [{"stdin": "2\n", "expected": "4\n"}, {"stdin": "3\n", "expected": "9\n"}], "visible": 1},
        "```python\nx = int(input())\nprint(x * x)\n```",
        ("print(2 + int(input()))",),
        "Read x and print its square. For example: 2 gives 4",
    ),
    "calls": Example(
        {
            "function": "f",
            "calls": [{"args": [2, [1]], "expected": [3]}, {"args": [3, []], "expected": []}],
            "visible": 1,
        },
        "class Solution:\n    def f(self, x: int, xs: List[int]) -> Any:\n        return tuple(x + y for y in xs)",
        ("def f(x, xs):\n    return [y + 1 for y in xs]", "def f(x, xs):\n    return [x]"),
        "Write f(x, xs), which adds x to each. For example f(2, [1]) == [3]",
    ),
    "trace": Example(
        {"expected": "(4, 9)"}, "(4, 9)", ("(4, 8)", "[4, 9]"), "run f(2, 3)\ndef f(a, b):\n return a*a, b*b"
    ),
    "sql": Example(
        {"databases": [{"setup": "CREATE TABLE t(a); INSERT INTO t VALUES(1),(2)", "expected": [[2]]}]},
        "SELECT max(a) FROM t",
        ("SELECT min(a) FROM t",),
        "Which is the largest a in t(a)? Answer with one SELECT.",
    ),
    "countdown": Example(
        {"numbers": [3, 5, 7], "target": 22},
        thought("<answer>3 * 5 + 7</answer>"),
        (thought("<answer>3 + 5 + 7</answer>"), thought("<answer>22</answer>")),
        "Make 22 of 3, 5, 7, each once; for example <answer>(1 + 2) / 3</answer>.",
    ),
    "gsm8k": Example(
        {"answer": "1,072"}, "48 and 1024 are\n#### 1072", ("#### 1,073",), "How many? Put the final answer after ####"
    ),
    "latex": Example(
        {"answer": "\\frac{1}{2}"},
        "so it is $\\boxed{\\dfrac{1}{2}}$.",
        ("$\\boxed{2}$", "\\boxed{\\frac{1}{2}\\text{ or }2}"),
        "What is 3/6? Put the final answer in a box.",
    ),
    "mcp": graph(SQUARE | {"optimum": 3}, "[A, B, C]", "[A, B]", "[A, B, D]", ask="Find the largest clique."),
    "mis": graph(SQUARE | {"optimum": 2}, "[B, D]", "[A]", "[A, B]", ask="Find the largest independent set."),
    "mvc": graph(SQUARE | {"optimum": 2}, "[A, C]", "[A, B, C]", "[A, B]", ask="Find the smallest vertex cover."),
    "mcs": graph(
        {"first": ETHER, "second": ALCOHOL, "optimum": 2},
        "[0, 1] and [1, 2]",
        "[0] [1]",
        "[0, 1] [2, 1]",
        ask="Find the largest common subgraph; answer with two lists.",
    ),
    "ged": graph(
        {"first": ETHER, "second": ALCOHOL, "optimum": 2}, "[0, 1, 2]", "[1, 0, 2]", "[0, 1, 1]", ask="Map the atoms."
    ),
    "tsp": graph(
        {
            "nodes": ["A", "B", "C", "D"],
            "distances": [[0, 1, 9, 1.5], [1, 0, 2, 9], [9, 2, 0, 1], [1.5, 9, 1, 0]],
            "optimum": 5.5,
        },
        "[A, B, C, D, A]",
        "[A, C, B, D, A]",
        "[A, B, C, D]",
        ask="Find the shortest tour.",
    ),
    "common_neighbours": graph(
        SQUARE | {"first": "B", "second": "D"}, "[A, C]", "[A]", "[A, B]", ask="Common neighbours of B and D?"
    ),
    "shortest_distance": graph(
        SQUARE | {"first": "B", "second": "D"}, "[B, A, D]", "[B, C, A, D]", "[B, D]", ask="Shortest way from B to D?"
    ),
    "connected_components": graph(
        {"nodes": ["A", "B", "C", "D"], "edges": [["A", "B"]]}, "[C, A, D]", "[B, D]", "[A, B, C]", ask="One of each."
    ),
    "diameter": graph(PATH, "[D, C, B, A]", "[A, B]", "[A, C, D]", ask="A longest shortest path?"),
}

# With a chance to be taken for an answer, or to break what reads one.
GARBAGE = [
    "",
    "  \n\t",
    "\x00\x01\x02\x7f",
    "\ud800\udfff",
    "x" * 100_000,
    "[" * 60_000,
    "[]" * 30_000,
    "(" * 60_000,
    "-" * 60_000,
    "9" * 60_000,
    "#### " * 12_000,
    "```" * 20_000,
    "```python\n" * 6_000,
    "```" + " " * 60_000,
    "<think>\n" * 8_000,
    "</think>" * 8_000,
    "<answer>" * 8_000,
    "<answer>" + "(" * 60_000 + "</answer>",
    "```python\n```",
    "```sql\nSELECT",
    "def f(:",
    "lambda",
    "[[[[7], 8], 9], 10",
    "[\u202eD ,C ,B ,A]",
    "[\uff21, \uff22, \uff23]",
    "[A\u200b, B\u200b, C\u200b]",
    "#### \u0664\u0662",
    "<answer>\uff13*\uff15+\uff17</answer>",
    "é漢🙂" * 1000,
]
