"""Every way to end has its class, with exception type and last line, the same each time."""

from __future__ import annotations

import asyncio

import pytest

from rewards.sandbox import InfrastructureError, Sandbox
from rewards.sandbox.inside.outcomes import classify_end, last_exception

# A server of its own for each module, and time limits: these run one after another.
pytestmark = pytest.mark.slow

PYTHON = [
    ("print(1)", "passed", None, None),
    ("import sys; sys.exit(0)", "passed", None, None),
    ("import sys; sys.exit(3)", "runtime_error", None, None),
    ("import sys; sys.exit('no')", "runtime_error", None, "no"),
    ("1/0", "runtime_error", "ZeroDivisionError", "ZeroDivisionError: division by zero"),
    ("class Odd(Exception): pass\nraise Odd('a\\nb')", "runtime_error", "Odd", "Odd: a"),
    ("assert 1 == 2, 'differs'", "runtime_error", "AssertionError", "AssertionError: differs"),
    ("assert 1 == 2", "runtime_error", "AssertionError", "AssertionError"),
    ("raise KeyboardInterrupt", "runtime_error", "KeyboardInterrupt", "KeyboardInterrupt"),
    ("def f(:", "syntax_error", "SyntaxError", "SyntaxError: invalid syntax"),
    ("if 1:\nx = 1", "syntax_error", "IndentationError", None),
    ("eval('1 +')", "runtime_error", "SyntaxError", None),
    ("def f(): f()\nf()", "runtime_error", "RecursionError", None),
    ("import json; json.loads('{')", "runtime_error", "JSONDecodeError", None),
    ("x = bytearray(1 << 40)", "memory", "MemoryError", "MemoryError"),
    ("print('x' * (2 << 20))", "output_limit", None, None),
    ("while True: pass", "timeout", None, None),
    ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "runtime_error", "SIGSEGV", None),
]


@pytest.mark.parametrize(("code", "outcome", "error_type", "line"), PYTHON)
async def test_class_of_a_python_program(
    sandbox: Sandbox, code: str, outcome: str, error_type: str | None, line: str | None
) -> None:
    results = await asyncio.gather(*(sandbox.run(code, timeout=1.0) for _ in range(3)))
    assert {result.outcome for result in results} == {outcome}
    assert {result.error_type for result in results} == {error_type}
    if line is not None:
        assert {result.error_line for result in results} == {line}


OTHERS = [
    ("bash", "echo $((1 + 1))", "passed", "2\n"),
    ("bash", "cat", "passed", "input\n"),
    ("bash", "exit 4", "runtime_error", ""),
    ("bash", "while true; do :; done", "timeout", ""),
    (
        "cpp",
        "#include <iostream>\nint main() { std::string s; std::cin >> s; std::cout << s << 1 << '\\n'; }",
        "passed",
        "input1\n",
    ),
    ("cpp", "int main() { return 3; }", "runtime_error", ""),
    ("cpp", "int main() { int *p = 0; *p = 1; }", "runtime_error", ""),
    ("cpp", "int main( {", "syntax_error", ""),
    ("cpp", "#include <vector>\nint main() { std::vector<char> v(3ul << 30); return v[5]; }", "memory", ""),
    ("sql", "CREATE TABLE t (a); INSERT INTO t VALUES (1), (2); SELECT sum(a) FROM t;", "passed", "3\n"),
    ("sql", "SELECT nothing FROM nowhere;", "runtime_error", ""),
]


@pytest.mark.parametrize(("language", "code", "outcome", "stdout"), OTHERS)
async def test_class_of_other_languages(sandbox: Sandbox, language: str, code: str, outcome: str, stdout: str) -> None:
    result = await sandbox.run(code, language=language, stdin="input\n", timeout=1.0)
    assert (result.outcome, result.stdout) == (outcome, stdout)


async def test_an_unavailable_language_gives_no_result(sandbox: Sandbox) -> None:
    with pytest.raises(InfrastructureError, match="language go is not available"):
        await sandbox.run("package main", language="go")


async def test_a_program_that_waits_for_a_cpu_is_not_charged_for_it(sandbox: Sandbox) -> None:
    # Eight programs of 0.3 s each on two workers, under a limit of 0.8 s: however busy the machine, each has its time.
    code = "import time\nwhile time.process_time() < 0.3: pass\nprint('done')"
    results = await asyncio.gather(*(sandbox.run(code, timeout=0.8) for _ in range(8)))
    assert [result.outcome for result in results] == ["passed"] * 8


async def test_two_runs_draw_the_same_random_numbers(sandbox: Sandbox) -> None:
    code = "import random\nprint(random.random(), hash('a'), list({'a', 'b', 'c'}))"
    outputs = {result.stdout for result in await asyncio.gather(*(sandbox.run(code) for _ in range(6)))}
    assert len(outputs) == 1


async def test_files_left_open_are_written(sandbox: Sandbox) -> None:
    code = "import subprocess, sys\nf = open('a', 'w'); f.write('kept')\nimport atexit\natexit.register(print, 'end')"
    assert (await sandbox.run(code)).stdout == "end\n"


@pytest.mark.parametrize(
    ("return_code", "stderr", "expected"),
    [
        (None, "", ("timeout", None, None)),
        (0, "Traceback\nValueError: x", ("passed", None, None)),
        (
            1,
            "Traceback (most recent call last):\n  ...\nValueError: x\n",
            ("runtime_error", "ValueError", "ValueError: x"),
        ),
        (1, "Traceback (most recent call last):\n  ...\nMemoryError\n", ("memory", "MemoryError", "MemoryError")),
        (
            1,
            '  File "a.py", line 1\n    x (\n      ^\nSyntaxError: no',
            ("syntax_error", "SyntaxError", "SyntaxError: no"),
        ),
        (-11, "", ("runtime_error", "SIGSEGV", "killed by SIGSEGV")),
        (-24, "", ("timeout", None, None)),
        (-6, "what():  std::bad_alloc", ("memory", "SIGABRT", "what():  std::bad_alloc")),
        (-250, "", ("runtime_error", "signal 250", "killed by signal 250")),
        (1, "", ("runtime_error", None, None)),
    ],
)
def test_classify_end(return_code: int | None, stderr: str, expected: tuple[str, str | None, str | None]) -> None:
    assert classify_end(return_code, stderr) == expected


def test_last_exception_of_text_without_an_exception() -> None:
    assert last_exception("hello: world\nplain words") == (None, "plain words")
