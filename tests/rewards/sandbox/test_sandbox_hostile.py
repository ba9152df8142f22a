"""Malicious programs: the outcome class of each, and that nothing of it is left behind."""

# Programs stand here as they are sent, in one piece; reading /proc does not block.
# ruff: noqa: E501, ASYNC240

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from rewards.sandbox import RunResult, Sandbox
from tests.rewards.sandbox.conftest import ServerProcess, assert_nothing_left

# A server of its own for each module, and time limits: these run one after another.
pytestmark = pytest.mark.slow


@pytest_asyncio.fixture(autouse=True)
async def nothing_is_left(any_server: ServerProcess, any_sandbox: Sandbox) -> AsyncIterator[None]:
    """After every program of this file: no process and no file of it, and all processes of the server."""
    yield
    await assert_nothing_left(any_server, any_sandbox)


async def run(sandbox: Sandbox, code: str, **options: object) -> RunResult:
    return await sandbox.run(code, **{"timeout": 5.0, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "code", ["while True: pass", "import time; time.sleep(60)", "import os, signal; signal.pause()"]
)
async def test_endless_program_times_out(any_sandbox: Sandbox, code: str) -> None:
    result = await run(any_sandbox, code, timeout=0.5)
    assert (result.outcome, result.return_code) == ("timeout", None)
    assert result.execution_time >= 0.5


async def test_output_before_a_timeout_is_kept(any_sandbox: Sandbox) -> None:
    result = await run(any_sandbox, "print('so far', flush=True)\nwhile True: pass", timeout=0.5)
    assert (result.outcome, result.stdout) == ("timeout", "so far\n")


@pytest.mark.parametrize("code", ["x = [0] * (1 << 30)", "x = bytearray(1 << 31)", "x = 'a'\nwhile True: x += x"])
async def test_memory_hog_is_stopped(any_sandbox: Sandbox, code: str) -> None:
    result = await run(any_sandbox, code, memory_mb=128)
    assert (result.outcome, result.error_type) == ("memory", "MemoryError")


async def test_memory_limit_holds_for_all_processes_together(any_sandbox: Sandbox) -> None:
    code = """
import os, time
for _ in range(6):
    if os.fork() == 0:
        block = bytearray(os.urandom(1) * (60 << 20))
        time.sleep(30)
        os._exit(0)
time.sleep(30)
"""
    result = await run(any_sandbox, code, memory_mb=128, timeout=20.0)
    assert result.outcome == "memory"
    assert result.execution_time < 20


async def test_fork_bomb_hits_the_process_limit(any_sandbox: Sandbox) -> None:
    result = await run(any_sandbox, "import os\nwhile True: os.fork()", timeout=1.0)
    assert result.outcome in ("runtime_error", "timeout")


async def test_number_of_processes_is_limited(any_sandbox: Sandbox) -> None:
    code = """
import os, time
count = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep(30)
        count += 1
except BlockingIOError:
    print(30 < count < 70)
"""
    result = await run(any_sandbox, code)
    assert (result.outcome, result.stdout) == ("passed", "True\n")


async def test_number_of_threads_is_limited(any_sandbox: Sandbox) -> None:
    code = "import threading, time\nfor _ in range(500): threading.Thread(target=time.sleep, args=(9,), daemon=True).start()"
    result = await run(any_sandbox, code)
    assert (result.outcome, result.error_type) == ("runtime_error", "RuntimeError")


async def test_number_of_open_files_is_limited(any_sandbox: Sandbox) -> None:
    result = await run(any_sandbox, "held = [open('/dev/null') for _ in range(1000)]")
    assert (result.outcome, result.error_type) == ("runtime_error", "OSError")
    assert "Too many open files" in (result.error_line or "")


async def test_cpu_time_of_threads_counts(any_sandbox: Sandbox) -> None:
    code = (
        "import threading\ndef spin():\n    while True: pass\nfor _ in range(4): threading.Thread(target=spin).start()"
    )
    assert (await run(any_sandbox, code, timeout=0.5)).outcome == "timeout"


@pytest.mark.parametrize("path", ["/usr/bin/evil", "/evil", "/etc/passwd", "/proc/sysrq-trigger", "/dev/null/x"])
async def test_file_system_is_read_only(any_sandbox: Sandbox, path: str) -> None:
    result = await run(any_sandbox, f"open({path!r}, 'w').write('x')")
    assert result.outcome == "runtime_error"
    assert result.error_type in ("PermissionError", "OSError", "NotADirectoryError", "FileNotFoundError")
    assert not Path("/usr/bin/evil").exists()


async def test_disk_quota(any_sandbox: Sandbox) -> None:
    code = "for i in range(100): open(f'f{i}', 'wb').write(b'x' * (10 << 20))"
    result = await run(any_sandbox, code)
    assert (result.outcome, result.error_type) == ("runtime_error", "OSError")
    assert "No space left" in (result.error_line or "")


async def test_size_of_a_file_is_limited_even_if_sparse(any_sandbox: Sandbox) -> None:
    result = await run(any_sandbox, "f = open('f', 'wb'); f.seek(1 << 40); f.write(b'x'); f.flush()")
    assert (result.outcome, result.error_type) == ("runtime_error", "OSError")
    assert "File too large" in (result.error_line or "")


async def test_number_of_files_is_limited_and_all_are_removed(any_sandbox: Sandbox) -> None:
    code = "for i in range(100000): open(f'/tmp/{i}', 'w').close()"
    result = await run(any_sandbox, code, timeout=20.0)
    assert (result.outcome, result.error_type) == ("runtime_error", "OSError")


async def test_deep_folders_and_links_are_removed(any_sandbox: Sandbox) -> None:
    code = """
import os
os.symlink("/usr", "link"); os.symlink("/tmp/run", "/tmp/loop"); os.mkdir("/dev/shm/deep"); os.mkfifo("/tmp/pipe")
for _ in range(3000):
    os.mkdir("d"); os.chdir("d")
os.chmod(".", 0); os.chmod("/tmp", 0o500)
"""
    result = await run(any_sandbox, code)
    assert result.outcome == "passed"
    assert Path("/usr/bin/env").exists()


async def test_working_directory_replaced_by_a_link(any_sandbox: Sandbox) -> None:
    result = await run(
        any_sandbox, "import os\nos.remove('main.py'); os.rmdir('/tmp/run'); os.symlink('/usr', '/tmp/run')"
    )
    assert result.outcome == "passed"


async def test_huge_stdout_is_truncated_and_reported(any_sandbox: Sandbox) -> None:
    result = await run(any_sandbox, "for _ in range(80): print('x' * 65535)")
    assert (result.outcome, result.stdout_truncated, len(result.stdout)) == ("output_limit", True, 1 << 20)


async def test_output_just_below_the_limit_is_complete(any_sandbox: Sandbox) -> None:
    result = await run(any_sandbox, "print('x' * ((1 << 20) - 1))")
    assert (result.outcome, result.stdout_truncated, len(result.stdout)) == ("passed", False, 1 << 20)


async def test_huge_stderr_is_drained_and_the_error_is_still_known(any_sandbox: Sandbox) -> None:
    result = await run(any_sandbox, "import sys\nsys.stderr.write('x' * (5 << 20))\nsys.stderr.write('\\n')\n1/0")
    assert (result.outcome, result.error_type) == ("runtime_error", "ZeroDivisionError")
    assert (result.stderr_truncated, len(result.stderr)) == (True, 1 << 20)


async def test_both_streams_filled_at_once_do_not_deadlock(any_sandbox: Sandbox) -> None:
    code = "import sys\nfor _ in range(9):\n    sys.stdout.write('o' * 99999)\n    sys.stderr.write('e' * 99999)"
    result = await run(any_sandbox, code)
    assert (result.outcome, len(result.stdout), len(result.stderr)) == ("passed", 899991, 899991)


async def test_null_bytes_and_bad_unicode(any_sandbox: Sandbox) -> None:
    assert (await run(any_sandbox, "print('a')\0")).outcome == "syntax_error"
    assert (await run(any_sandbox, "print('\ud800')")).outcome == "syntax_error"
    assert (await run(any_sandbox, "print(len(input()))", stdin="a\0b\n")).stdout == "3\n"
    odd = await run(any_sandbox, "import sys; sys.stdout.buffer.write(b'a\\xff\\x00b')")
    assert (odd.outcome, odd.stdout) == ("passed", "a\ufffd\0b")
    assert (await run(any_sandbox, "print(input())", stdin="h\u00e9\ud800")).stdout == "h\u00e9?\n"


async def test_too_deep_nesting_is_a_syntax_error(any_sandbox: Sandbox) -> None:
    assert (await run(any_sandbox, "(" * 10000 + ")" * 10000)).outcome == "syntax_error"


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGKILL", "SIGABRT", "SIGTERM", "SIGINT"])
async def test_death_by_a_signal_is_a_runtime_error(any_sandbox: Sandbox, name: str) -> None:
    result = await run(any_sandbox, f"import os, signal\nos.kill(os.getpid(), signal.{name})")
    assert (result.outcome, result.error_type) == ("runtime_error", name)
    assert result.return_code is not None
    assert result.return_code < 0


async def test_crash_of_the_interpreter(any_sandbox: Sandbox) -> None:
    result = await run(any_sandbox, "import ctypes; ctypes.string_at(0)")
    assert (result.outcome, result.return_code, result.error_type) == ("runtime_error", -11, "SIGSEGV")


async def test_daemons_die_with_their_program(any_sandbox: Sandbox) -> None:
    code = """
import os, time, signal
if os.fork() == 0:
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(number, signal.SIG_IGN)
    if os.fork() == 0:
        time.sleep(120)
    os._exit(0)
os.wait()
print("done")
"""
    result = await run(any_sandbox, code)
    assert (result.outcome, result.stdout) == ("passed", "done\n")


async def test_background_process_does_not_hold_the_answer(any_sandbox: Sandbox) -> None:
    result = await run(any_sandbox, "sleep 60 &\necho started", language="bash")
    assert (result.outcome, result.stdout) == ("passed", "started\n")
    assert result.execution_time < 5


NETWORK = """
import socket
for family, address in ((socket.AF_INET, ("127.0.0.1", {port})), (socket.AF_INET, ("1.1.1.1", 53)), (socket.AF_INET6, ("::1", {port}))):
    try:
        socket.socket(family, socket.SOCK_STREAM).connect(address)
    except OSError:
        print("closed")
    else:
        print("OPEN")
"""


async def test_network_is_closed_even_to_the_server(any_sandbox: Sandbox, any_server: ServerProcess) -> None:
    result = await run(any_sandbox, NETWORK.format(port=any_server.url.rpartition(":")[2]))
    assert (result.outcome, result.stdout) == ("passed", "closed\nclosed\nclosed\n")
    left = await run(any_sandbox, "import socket; a, b = socket.socketpair(); a.send(b'x'); print(b.recv(1))")
    assert left.stdout == "b'x'\n"


async def test_environment_has_nothing_of_the_host(any_sandbox: Sandbox) -> None:
    result = await run(any_sandbox, "import os; print(sorted(os.environ)); print(open('/proc/self/environ').read())")
    assert "hunter2" not in result.stdout + result.stderr
    assert set(eval_list(result.stdout)) <= {
        "HOME",
        "LANG",
        "PATH",
        "PYTHONHASHSEED",
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
    }


def eval_list(text: str) -> list[str]:
    import ast

    return list(ast.literal_eval(text.splitlines()[0]))


async def test_files_of_the_host_are_hidden(any_sandbox: Sandbox, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hunter2")
    paths = [
        str(secret),
        "/etc/shadow",
        "/etc/hostname",
        "/var/log",
        str(Path(__file__)),
        "/root/.bashrc",
        "/home",
        str(Path(__file__).parents[3] / "README.md"),
    ]
    code = f"import os\nfor p in {paths!r}:\n    print(os.path.exists(p) and os.access(p, os.R_OK))\nprint(open('/etc/passwd').read().count(':x:'))"
    result = await run(any_sandbox, code)
    assert result.stdout == "False\n" * len(paths) + "2\n"


async def test_memory_and_descriptors_of_the_fork_server_are_closed(any_sandbox: Sandbox) -> None:
    code = """
import os
for path in ("/proc/1/mem", "/proc/1/environ", "/proc/1/fd/0", "/proc/1/maps", "/proc/1/root/etc"):
    try:
        os.close(os.open(path, os.O_RDONLY)); print("OPEN", path)
    except OSError:
        print("closed")
"""
    assert (await run(any_sandbox, code)).stdout == "closed\n" * 5


async def test_parent_cannot_be_killed_stopped_or_slowed(any_sandbox: Sandbox, any_server: ServerProcess) -> None:
    def rights() -> list[tuple[int, int, set[int]]]:
        servers = [any_server.process.pid, *any_server.descendants()]
        return [(pid, os.getpriority(os.PRIO_PROCESS, pid), os.sched_getaffinity(pid)) for pid in servers]

    before = rights()
    code = """
import os, signal, resource
def attempt(action, *arguments):
    try:
        action(*arguments)
    except OSError:
        return
for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
    attempt(os.kill, os.getppid(), number)
attempt(os.setpriority, os.PRIO_PROCESS, os.getppid(), 19)
attempt(os.setpriority, os.PRIO_USER, 0, 19)
attempt(os.setpriority, os.PRIO_USER, os.getuid(), 19)
attempt(os.setpriority, os.PRIO_PGRP, 0, 19)
attempt(resource.prlimit, os.getppid(), resource.RLIMIT_NOFILE, (0, 0))
attempt(os.sched_setaffinity, os.getppid(), [0])
print("still here")
"""
    results = await asyncio.gather(*(run(any_sandbox, code) for _ in range(4)))
    assert [result.stdout for result in results] == ["still here\n"] * 4
    assert rights() == before


async def test_several_processes_share_one_processor(sandbox: Sandbox) -> None:
    code = """
import os, time
children = [os.fork() for _ in range(2)]
time.sleep(0.3)
print(len(os.sched_getaffinity(0)), flush=True)
for child in filter(None, children):
    os.waitpid(child, 0)
"""
    assert (await run(sandbox, code)).stdout == "1\n" * 4


@pytest.mark.parametrize(
    "call",
    [
        "libc.ptrace(16, os.getppid(), 0, 0)",
        "libc.unshare(0x10000000)",
        "libc.mount(b'none', b'/tmp', b'tmpfs', 0, None)",
        "libc.chroot(b'/tmp')",
        "libc.syscall(250, 0, 0)",
        "libc.setns(0, 0)",
        "libc.personality(0x0040000)",
        "libc.shmget(1, 4096, 0o1666)",
        "libc.setuid(0)",
        "libc.process_vm_readv(os.getppid(), 0, 0, 0, 0, 0)",
    ],
)
async def test_dangerous_system_calls_are_refused(any_sandbox: Sandbox, call: str) -> None:
    result = await run(any_sandbox, f"import ctypes, os\nlibc = ctypes.CDLL(None)\nprint({call})")
    assert (result.outcome, result.stdout) == ("passed", "-1\n")


async def test_program_is_nobody_and_has_no_capabilities(any_sandbox: Sandbox) -> None:
    code = """
import os
print(os.getuid(), os.getgid(), os.getgroups())
print([line.split()[1] for line in open("/proc/self/status") if line.startswith(("CapEff", "CapPrm", "NoNewPrivs", "Seccomp:"))])
"""
    result = await run(any_sandbox, code)
    assert result.stdout.splitlines()[0].startswith("1000 1000 ")
    assert result.stdout.splitlines()[1] == "['0000000000000000', '0000000000000000', '1', '2']"


async def test_slots_do_not_see_each_other(any_sandbox: Sandbox) -> None:
    leave = "import os, time\nopen('/tmp/note', 'w').write('mine')\ntime.sleep(0.4)\nprint(len([p for p in os.listdir('/proc') if p.isdigit()]))"
    look = "import os, time\ntime.sleep(0.2)\nprint(os.path.exists('/tmp/note'), len([p for p in os.listdir('/proc') if p.isdigit()]))"
    first, second = await asyncio.gather(run(any_sandbox, leave), run(any_sandbox, look))
    assert (first.stdout, second.stdout, first.stderr) == ("2\n", "False 2\n", "")


async def test_earlier_programs_are_not_in_memory(any_sandbox: Sandbox) -> None:
    marker = "needle-" + "in-the-heap"
    await asyncio.gather(
        *(run(any_sandbox, f"x = '{marker}'\nimport time; time.sleep(0.1)", stdin=marker) for _ in range(4))
    )
    code = """
import ctypes, re
needle = b"-".join([b"needle", b"in", b"the", b"heap"])
found = 0
for line in open("/proc/self/maps"):
    start, end, flags, rest = re.match(r"([0-9a-f]+)-([0-9a-f]+) (\\S+)(.*)", line).groups()
    if flags.startswith("rw"):
        found += ctypes.string_at(int(start, 16), int(end, 16) - int(start, 16)).count(needle)
print(found)
"""
    results = await asyncio.gather(*(run(any_sandbox, code) for _ in range(2)))
    # What it joined itself, and the copy of memory that it searches, is all that it may find.
    assert [result.outcome for result in results] == ["passed", "passed"]
    assert all(1 <= int(result.stdout) <= 4 for result in results), [result.stdout for result in results]
