"""A program sees a normal Python: its use of streams and exits has the same result as there."""

# Programs stand here as they are sent, in one piece.
# ruff: noqa: E501

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rewards.sandbox import AssertCase, Program, Sandbox, StdioCase

pytestmark = pytest.mark.slow  # with a server

WRAP = "import sys, io\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding='utf-8')\n"
PROGRAMS = {
    "exit": "print(input())\nexit()\nprint('never')",
    "quit with a code": "print(input())\nquit(0)",
    "exit with a failure": "print(input())\nexit(3)",
    "exit with a text": "print(input())\nexit('no')",
    "exit inside try": "try:\n    print(input())\n    exit()\nexcept Exception:\n    print('caught')",
    "SystemExit without a code": "print(input())\nraise SystemExit",
    "stdout wrapped": WRAP + "print(input())",
    "stdout and stdin wrapped": WRAP
    + "sys.stdin = io.TextIOWrapper(sys.stdin.buffer, encoding='utf-8')\nprint(input())",
    "stderr wrapped": "import sys, io\nsys.stderr = io.TextIOWrapper(sys.stderr.buffer)\nprint(input(), file=sys.stderr)\nprint('x')",
    "stdout detached": "import sys\nraw = sys.stdout.detach()\nraw.write(input().encode())\nraw.flush()",
    "stdout reconfigured": "import sys\nsys.stdout.reconfigure(encoding='utf-8', line_buffering=True)\nprint(input())",
    "stdout reopened": "import os, sys\nsys.stdout = os.fdopen(1, 'w', buffering=1, closefd=False)\nprint(input())",
    "stdout closed": "import sys\nprint(input())\nsys.stdout.close()",
    "stdout flushed and closed": "import sys\nprint(input())\nsys.stdout.flush()\nsys.stdout.close()\nsys.stdout = None",
    "stdin closed": "import sys\nprint(input())\nsys.stdin.close()",
    "/dev/stdout": "text = input()\nwith open('/dev/stdout', 'w') as f: f.write(text)",
    "/dev/stderr": "text = input()\nwith open('/dev/stderr', 'w') as f: f.write(text)\nprint(text)",
    "/dev/stdin": "print(open('/dev/stdin').read())",
    "/dev/fd": "text = open('/dev/fd/0').read()\nopen('/dev/fd/1', 'w').write(text)",
    "os.read and os.write": "import os\nos.write(1, os.read(0, 100))",
    "fileinput": "import fileinput\nfor line in fileinput.input(): print(line.strip())",
    "sys.stdin.buffer": "import sys\nsys.stdout.buffer.write(sys.stdin.buffer.read())",
    "sys.stdin as an iterator": "import sys\nfor line in sys.stdin: print(line.rstrip())",
    "fast input": "import sys, io, os\ninput = io.BytesIO(os.read(0, os.fstat(0).st_size or 1 << 16)).readline\nprint(input().decode().strip())",
    "main block": "def main():\n    print(input())\nif __name__ == '__main__':\n    main()",
    "help and licence": "print(callable(help), callable(exit), 'Quitter' in type(quit).__name__, input())",
    "redirected": "import contextlib, io\nbuffer = io.StringIO()\nwith contextlib.redirect_stdout(buffer): print(input())\nprint(buffer.getvalue()[::-1])",
    "print to a closed stream": "import sys\nprint(input(), flush=True)\nsys.stdout.close()\nprint('x')",
    "thread that prints": "import threading\nt = threading.Thread(target=lambda: print(input()))\nt.start()",
    "atexit that prints": "import atexit\natexit.register(lambda: print('end'))\nprint(input())",
    "module names": "import sys\nprint(__name__, sys.modules['__main__'].__name__, input())",
    "recursion in a thread": "import sys, threading\nsys.setrecursionlimit(10**6)\nthreading.stack_size(64 << 20)\ndef f(n): return 0 if n == 0 else 1 + f(n - 1)\nt = threading.Thread(target=lambda: print(f(20000)))\nt.start(); t.join()",
    "carriage returns": "line = input()\nprint(repr(line), 'a\\r\\nb')",
    "detached and wrapped": "import sys, io\nsys.stdout = io.TextIOWrapper(sys.stdout.detach(), encoding='utf-8')\nprint(input())",
    "names of streams": "import sys\nprint(sys.stdin.name, sys.stdout.name, sys.stderr.name, sys.stdout.isatty(), input())",
}


def plainly(code: str, folder: Path) -> tuple[int, str]:
    """Exit code and output of the program under plain Python."""
    (folder / "main.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "-I", "-X", "utf8", "main.py"], input="héllo 7\n".encode(), capture_output=True, cwd=folder
    )
    return done.returncode, done.stdout.decode()


@pytest.mark.parametrize("name", PROGRAMS)
async def test_a_program_exits_and_prints_as_under_python(sandbox: Sandbox, name: str, tmp_path: Path) -> None:
    code, text = plainly(PROGRAMS[name], tmp_path)
    result = await sandbox.run(PROGRAMS[name], stdin="héllo 7\n")
    assert (result.return_code, result.stdout) == (code, text)


@pytest.mark.parametrize("name", PROGRAMS)
async def test_a_program_does_for_each_input_what_it_does_for_one(sandbox: Sandbox, name: str, tmp_path: Path) -> None:
    code, text = plainly(PROGRAMS[name], tmp_path)
    result = await sandbox.check(Program(PROGRAMS[name]), [StdioCase("héllo 7\n", text)] * 3)
    assert [case.passed for case in result.cases] == [code == 0] * 3, result


@pytest.mark.parametrize("ending", ["exit()", "import sys; sys.exit(0)", "import unittest; unittest.main()", "quit(1)"])
async def test_functions_are_tested_even_if_the_program_exits(sandbox: Sandbox, ending: str) -> None:
    code = f"def f(x): return x + 1\nif __name__ == '__main__':\n    f(int(input()))\n{ending}\n"
    cases = [AssertCase("assert f(1) == 2"), AssertCase("x = f(2)\nassert x == 3")]
    assert (await sandbox.check(Program(code), cases)).all_passed
    assert (await sandbox.check(Program(code), cases[:1])).all_passed


@pytest.mark.parametrize("name", ["sum", "bisect", "max", "string"])
async def test_an_entry_point_may_share_its_name_with_a_builtin_or_a_module(sandbox: Sandbox, name: str) -> None:
    code = f"def {name}(x): return x + 1"
    cases = [AssertCase(f"assert {name}(1) == 2"), AssertCase(f"y = {name}(1)\nassert y == 2")]
    for some in (cases[:1], cases[1:], cases):
        assert (await sandbox.check(Program(code), some, entry_points=[name])).all_passed
        assert (await sandbox.check(Program(code), some)).passed == 0


async def test_a_test_of_the_library_alone_is_not_the_programs(sandbox: Sandbox) -> None:
    (result,) = (await sandbox.check(Program("def f(): return 9"), [AssertCase("assert sum([f()]) == 3")])).cases
    assert result.outcome == "wrong_answer"


@pytest.mark.parametrize(
    ("expected", "layout", "passes"),
    [("  1\n 121\n", False, True), ("  1\n 121\n", True, True), ("1\n121\n", True, False), ("1\n121\n", False, True)],
)
async def test_layout_counts_if_a_case_asks_for_it(sandbox: Sandbox, expected: str, layout: bool, passes: bool) -> None:
    cases = [StdioCase("", expected, layout=layout)]
    assert (await sandbox.check(Program("print('  1\\n 121')"), cases)).all_passed is passes
