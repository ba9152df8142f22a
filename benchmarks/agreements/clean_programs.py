"""Programs without tricks for verl's data sources of code, right and wrong, in the forms that models write.

Problems are functions of this file: a program that reads its input calls one, a row with `fn_name` tests it. Wrong
programs are made by one change of its text, so they are trusted as this file is. Equal seeds give equal programs.
"""

from __future__ import annotations

import inspect
import json
import random
from collections.abc import Callable
from typing import Any

from benchmarks.agreements.clean_answers import CleanAnswer

Make = Callable[[random.Random], list[Any]]


def total_of_even(xs: list[int]) -> int:
    return sum(x for x in xs if x % 2 == 0)


def widest_gap(xs: list[int]) -> int:
    ordered = sorted(xs)
    return max(ordered[i + 1] - ordered[i] for i in range(len(ordered) - 1))


def mean_of(xs: list[int]) -> float:
    return sum(xs) / len(xs)


def running_totals(xs: list[int]) -> list[int]:
    return [sum(xs[: i + 1]) for i in range(len(xs))]


def distinct(xs: list[int]) -> list[int]:
    return sorted(set(xs), reverse=True)


def power_modulo(base: int, exponent: int) -> int:
    return pow(base, exponent, 1_000_007)


def steps_to_one(n: int) -> int:
    steps = 0
    while n != 1:
        n = 3 * n + 1 if n % 2 else n // 2
        steps += 1
    return steps


def is_palindrome(text: str) -> str:
    return "YES" if text == text[::-1] else "NO"


def turned(text: str) -> str:
    return "".join(reversed(text))


def _numbers(rng: random.Random) -> list[Any]:
    return [[rng.randint(-50, 99) for _ in range(rng.randint(3, 9))]]


def _word(rng: random.Random) -> list[Any]:
    half = "".join(rng.choice("abcdexyz") for _ in range(rng.randint(2, 6)))
    return [half + half[::-1] if rng.random() < 0.5 else half + "q"]


PROBLEMS: tuple[tuple[Callable[..., Any], Make, dict[str, str]], ...] = (
    (total_of_even, _numbers, {"== 0": "== 1"}),
    (widest_gap, _numbers, {"sorted(xs)": "xs", "max(": "min("}),
    (mean_of, _numbers, {"len(xs)": "(len(xs) + 1)", "/ len": "// len"}),
    (running_totals, _numbers, {"i + 1": "i", "len(xs)": "len(xs) - 1"}),
    (distinct, _numbers, {", reverse=True": "", "set(xs)": "xs[1:]"}),
    (power_modulo, lambda rng: [rng.randint(2, 999), rng.randint(2, 999)], {"1_000_007": "1_000_003"}),
    (steps_to_one, lambda rng: [rng.randint(3, 200)], {"steps = 0": "steps = 1", "n != 1": "n > 2"}),
    (is_palindrome, _word, {'"YES" if': '"NO" if', '"NO"\n': '"No"\n', "text ==": "text.upper() =="}),
    (turned, _word, {"reversed": "sorted"}),
)
"""Functions, what makes their arguments, and changes that make them wrong."""


def _loaded(source: str, name: str) -> Callable[..., Any]:
    namespace: dict[str, Any] = {}
    exec(source, namespace)  # noqa: S102 - a function of this file with one change
    found: Callable[..., Any] = namespace[name]
    return found


def _outcome(function: Callable[..., Any], arguments: list[Any]) -> Any:
    try:
        return function(*json.loads(json.dumps(arguments)))
    except Exception as error:
        return error


def _drawn(rng: random.Random) -> tuple[Callable[..., Any], str, str, list[list[Any]], float]:
    """A problem, the source of an answer, what is wrong with it, the arguments of tests, the share that it passes."""
    function, make, changes = rng.choice(PROBLEMS)
    source = inspect.getsource(function)
    rows = [make(rng) for _ in range(rng.randint(3, 6))]
    what = "right"
    if rng.random() < 0.5:
        old, new = rng.choice(sorted(changes.items()))
        source, what = source.replace(old, new), f"wrong, {new.strip()} for {old.strip()}"
    answer = _loaded(source, function.__name__)
    passed = sum(_outcome(answer, row) == function(*row) for row in rows)
    return function, source, what, rows, passed / len(rows)


def _text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def printing(source: str, rng: random.Random) -> CleanAnswer:
    """A program that reads its arguments, one per line, and prints the result."""
    function, code, what, rows, share = _drawn(rng)
    truth = {
        "inputs": ["\n".join(map(_text, row)) + "\n" for row in rows],
        "outputs": [_text(function(*row)) + "\n" for row in rows],
    }
    is_list = isinstance(function(*rows[0]), list)
    reads = {list: "list(map(int, input().split()))", int: "int(input())", str: "input()"}
    call = f"{function.__name__}({', '.join(reads[type(one)] for one in rows[0])})"
    printed = f"print(*{call})" if is_list else f"print({call})"
    lines = [f"sys.stdout.write(str({call}) + '\\n')", f"result = {call}\nprint(result, end='')"]
    bodies = {
        "plain": f"{code}\n\n{printed}",
        "main": f"{code}\n\ndef main():\n    {printed}\n\n\nmain()",
        "main block": f"{code}\n\nif __name__ == '__main__':\n    {printed}",
        "import": f"import math\nfrom collections import defaultdict\n\n{code}\n{printed}",
        "stdin": f"import sys\n\ninput = sys.stdin.readline\n\n{code.replace('text:', 'line:')}\n{printed}"
        if not isinstance(rows[0][0], str) else f"import sys\n\n{code}\n{printed}",
        "exit": f"import sys\n\n{code}\n{printed}\nsys.exit(0)",
        "no import": f"{code}\n\n{printed}\nsys.stdout.flush()",
        "trailing blank": f"{code}\n\n{printed[:-1]}, end=' \\n')",
    }  # fmt: skip
    if not is_list:
        bodies |= {"write": f"import sys\n\n{code}\n{lines[0]}", "no newline": f"{code}\n{lines[1]}"}
    style = rng.choice(sorted(bodies))
    deserved = 0.0 if style == "no import" else share
    if style == "plain" and rng.random() < 0.3:
        style, deserved = "more than the answer", 0.0
        bodies[style] = f"{code}\n\nprint('The answer is:')\n{printed}"
    kind = f"{style}: {'right' if what == 'right' else 'wrong'}"
    return CleanAnswer(source, kind, json.dumps(truth), _fenced(bodies[style], rng), deserved)


def called(source: str, rng: random.Random) -> CleanAnswer:
    """A function, or a method of class Solution, that is called with JSON arguments."""
    function, code, what, rows, share = _drawn(rng)
    name = function.__name__
    outputs = [function(*row) for row in rows]
    truth = {
        "fn_name": name,
        "inputs": ["\n".join(map(json.dumps, row)) for row in rows],
        "outputs": [json.dumps(one) for one in outputs],
    }
    method = "\n".join(f"    {line}" if line else "" for line in code.splitlines()).replace(
        f"{name}(", f"{name}(self, "
    )
    typed = method.replace("list[", "List[")
    bodies = {
        "function": code,
        "class": f"class Solution:\n{method}",
        "class, List not imported": f"class Solution:\n{typed}",
        "class, List imported": f"from typing import List\n\nclass Solution:\n{typed}",
        "helper": code.replace(f"def {name}", "def helper") + f"\n{name} = helper",
        "call at its end": f"{code}\nprint({name}(*{rows[0]!r}))",
        "main block": f"{code}\nif __name__ == '__main__':\n    print({name}(*input()))",
    }
    style = rng.choice(sorted(bodies))
    if isinstance(outputs[0], list) and rng.random() < 0.3:
        style = "a tuple"
        bodies[style] = f"{code.replace(name, 'helper')}\ndef {name}(xs):\n    return tuple(helper(xs))"
    deserved = share
    if isinstance(outputs[0], int) and rng.random() < 0.1:
        style, deserved = "a text", 0.0
        bodies[style] = f"{code.replace(name, 'helper')}\ndef {name}(*xs):\n    return str(helper(*xs))"
    kind = f"{style}: {'right' if what == 'right' else 'wrong'}"
    return CleanAnswer(source, kind, json.dumps(truth), _fenced(bodies[style], rng), deserved)


def _fenced(program: str, rng: random.Random) -> str:
    block = f"```python\n{program}\n```"
    return rng.choice(
        (block, f"Here is my solution:\n\n{block}\nIt runs in linear time.", f"```python\npass\n```\n{block}")
    )
