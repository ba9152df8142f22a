"""Programs without tricks for verl's data sources of code, right and wrong, in the forms that models write.

Problems are functions of this file: a program that reads its input calls one, a row with `fn_name` tests it. Wrong
programs are made by one change of its text, so they are as trusted as this file. Equal seeds give equal programs.
"""

import inspect
import json
import random
from collections.abc import Callable
from typing import Any

from benchmarks.agreements.clean_answers import CleanAnswer


def widest_gap(xs: list[int]) -> int:
    ordered = sorted(xs)
    return max(ordered[i + 1] - ordered[i] for i in range(len(ordered) - 1))


def mean_of(xs: list[int]) -> float:
    return sum(xs) / len(xs)


def running_totals(xs: list[int]) -> list[int]:
    return [sum(xs[: i + 1]) for i in range(len(xs))]


def steps_to_one(n: int) -> int:
    steps = 0
    while n != 1:
        n = 3 * n + 1 if n % 2 else n // 2
        steps += 1
    return steps


def is_palindrome(text: str) -> str:
    return "YES" if text == text[::-1] else "NO"


def _numbers(rng: random.Random) -> Any:
    return [rng.randint(-50, 99) for _ in range(rng.randint(3, 9))]


def _word(rng: random.Random) -> Any:
    half = "".join(rng.choice("abcdexyz") for _ in range(rng.randint(2, 6)))
    return rng.choice((half + half[::-1], half + "q"))


_PROBLEMS: tuple[tuple[Callable[[Any], Any], Callable[[random.Random], Any], dict[str, str]], ...] = (
    (widest_gap, _numbers, {"sorted(xs)": "xs", "max(": "min("}),
    (mean_of, _numbers, {"len(xs)": "(len(xs) + 1)", "/ len": "// len"}),
    (running_totals, _numbers, {"i + 1": "i", "len(xs)": "len(xs) - 1"}),
    (steps_to_one, lambda rng: rng.randint(3, 200), {"steps = 0": "steps = 1", "n != 1": "n > 2"}),
    (is_palindrome, _word, {'"YES" if': '"NO" if', '"NO"\n': '"No"\n'}),
)
"""Functions, what makes their argument, and changes that make them wrong."""
_READ = {list: "list(map(int, input().split()))", int: "int(input())", str: "input()"}
_PRINTING = {
    "plain": "{code}\n{show}",
    "main": "import math\n\n{code}\ndef main():\n    {show}\n\nmain()",
    "main block": "{code}\nif __name__ == '__main__':\n    {show}",
    "stdin": "import sys\n{code}\ninput = lambda: sys.stdin.readline().strip()\n{show}",
    "exit": "import sys\n{code}\n{show}\nsys.exit(0)",
    "no import": "{code}\n{show}\nsys.stdout.flush()",
    "blank at the end": "{code}\nprint({shown}, end=' \\n')",
    "no newline": "{code}\nprint({shown}, end='')",
    "more than the answer": "{code}\nprint('The answer is:')\n{show}",
}
_CALLED = {
    "function": "{code}",
    "class": "class Solution:\n{method}",
    "class, List not imported": "class Solution:\n{typed}",
    "class, List imported": "from typing import List\n\nclass Solution:\n{typed}",
    "prints, too": "{code}\nprint('ready')",
    "main block": "{code}\nif __name__ == '__main__':\n    print({name}(input()))",
    "a tuple for a list": "{code}\nanswer = {name}\ndef {name}(x):\n    y = answer(x)\n"
    "    return tuple(y) if isinstance(y, list) else y",
    "a text": "{code}\nanswer = {name}\ndef {name}(x):\n    return f'{{answer(x)}} '",
}
_UNPAID = ("no import", "more than the answer", "a text")


def _outcome(source: str, name: str, given: Any) -> Any:
    namespace: dict[str, Any] = {}
    exec(source, namespace)  # noqa: S102 - a function of this file with one change
    try:
        return namespace[name](given)
    except (ArithmeticError, ValueError) as error:
        return error


def program(source: str, rng: random.Random, *, calls: bool) -> CleanAnswer:
    """A function that is called with JSON arguments, or a program that reads its argument and prints the result."""
    function, make, changes = rng.choice(_PROBLEMS)
    code, name = inspect.getsource(function), function.__name__
    given = [make(rng) for _ in range(rng.randint(3, 6))]
    outputs = [function(one) for one in given]
    if is_wrong := rng.random() < 0.5:
        code = code.replace(*rng.choice(sorted(changes.items())))
    passed = sum(_outcome(code, name, one) == out for one, out in zip(given, outputs, strict=True))
    style, template = rng.choice(sorted((_CALLED if calls else _PRINTING).items()))
    shown = f"{'*' * isinstance(outputs[0], list)}{name}({_READ[type(given[0])]})"
    method = "".join(f"    {line}\n" for line in code.replace(f"{name}(", f"{name}(self, ").splitlines())
    typed = method.replace("list[", "List[")
    text = template.format(code=code, name=name, shown=shown, show=f"print({shown})", method=method, typed=typed)
    fenced = rng.choice(("", "A draft:\n```python\npass\n```\nHere it is:\n\n")) + f"```python\n{text}\n```"
    show = json.dumps if calls else _text
    truth = {"inputs": [show(one) for one in given], "outputs": [show(one) for one in outputs]}
    row = truth | ({"fn_name": name} if calls else {})
    kind = f"{style}{', wrong' if is_wrong else ''}"
    return CleanAnswer(source, kind, json.dumps(row), fenced, 0.0 if style in _UNPAID else passed / len(given))


def _text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
