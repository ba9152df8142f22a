"""Speed and endurance of the sandbox. Not a test: it prints measurements.

    python -m benchmarks.sandbox speed        # /run_code, /run_batch, the client; medians over several runs
    python -m benchmarks.sandbox scaling      # 1 and 2 workers, 1, 4, 16, 64 callers
    python -m benchmarks.sandbox soak         # 20,000 programs, 1 in 10 hostile: classes, memory, processes left
    python -m benchmarks.sandbox hostile      # honest callers next to hostile ones, one worker; the slowest frame
    python -m benchmarks.sandbox pairs --other FOLDER   # /run_code, alternating with another checkout of the project

The server runs in a separate process with isolation on; the load generator runs on the same machine and shares its
cores. In addition to the rates, the total processor time per program is printed: on a shared machine it shows the rates
to expect without other load.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from benchmarks.sandbox_server import memory_mib, processor_seconds, running_server, tree
from rewards.sandbox import AssertCase, CallCase, Program, Sandbox, StdioCase
from rewards.sandbox.server.lanes import spare_slots

PRINT = "print(1)"
MBPP = """
def similar_elements(first, second):
    return tuple(sorted(set(first) & set(second)))
assert similar_elements((3, 4, 5, 6), (5, 7, 4, 10)) == (4, 5)
assert similar_elements((1, 2, 3, 4), (5, 4, 3, 7)) == (3, 4)
assert similar_elements((11, 12, 14, 13), (17, 15, 14, 13)) == (13, 14)
"""
# Programs per second of SandboxFusion's server without isolation on a machine of two cores, with 16 callers.
SANDBOX_FUSION = {"print(1)": 39.5, "MBPP-like": 41.5}


class Connection:
    """A persistent connection that repeats the same request, as cheaply as possible in Python."""

    def __init__(self, url: str, path: str, body: Any) -> None:
        self.host, _, port = url.removeprefix("http://").partition(":")
        self.port = int(port)
        content = json.dumps(body).encode()
        lines = [
            f"POST {path} HTTP/1.1",
            "host: localhost",
            "content-type: application/json",
            f"content-length: {len(content)}",
        ]
        self.request = "\r\n".join([*lines, "", ""]).encode() + content

    async def repeat(self, until: float, times: list[float], expected: bytes) -> None:
        """Send requests until this time (perf_counter); append the seconds of each to `times`."""
        reader, writer = await asyncio.open_connection(self.host, self.port)
        while (start := time.perf_counter()) < until:
            writer.write(self.request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(re.search(rb"content-length: (\d+)", head).group(1))  # type: ignore[union-attr]
            body = await reader.readexactly(length)
            if expected not in body:
                raise RuntimeError(f"unexpected answer: {body[:300]!r}")
            times.append(time.perf_counter() - start)
        writer.close()


async def run_code_load(url: str, code: str, callers: int, seconds: float) -> tuple[float, list[float]]:
    """Programs per second through `/run_code`, and the seconds of each request."""
    times: list[float] = []
    body = {"code": code, "language": "python"}
    start = time.perf_counter()
    connections = [Connection(url, "/run_code", body) for _ in range(callers)]
    await asyncio.gather(*(c.repeat(start + seconds, times, b'"status":"Success"') for c in connections))
    return len(times) / (time.perf_counter() - start), times


def spread(values: list[float]) -> str:
    """Median and range."""
    return f"{statistics.median(values):8.1f}  ({min(values):.1f} .. {max(values):.1f})"


async def repeated(
    name: str, unit: str, runs: int, pid: int, once: Callable[[], Awaitable[tuple[float, int]]]
) -> float:
    """Print the median of several runs; `once` returns a rate and the number of units it ran."""
    await once()
    before, count, rates = processor_seconds(pid) + time.process_time(), 0, []
    for _ in range(runs):
        rate, units = await once()
        rates.append(rate)
        count += units
    cost = (processor_seconds(pid) + time.process_time() - before) / count
    free = len(os.sched_getaffinity(0)) / cost
    print(f"{name:46s} {spread(rates)} {unit}; {cost * 1e3:.2f} ms of processor each: {free:.0f} with free processors")
    return statistics.median(rates)


async def speed(url: str, pid: int, runs: int, seconds: float) -> None:
    """Print the rates of `/run_code`, and of the client through `/run_batch`."""
    for name, code in (("print(1)", PRINT), ("MBPP-like", MBPP)):
        times: list[float] = []

        async def once(code: str = code, times: list[float] = times) -> tuple[float, int]:
            rate, taken = await run_code_load(url, code, 16, seconds)
            times.extend(taken)
            return rate, len(taken)

        rate = await repeated(f"/run_code {name}, 16 callers", "programs/s", runs, pid, once)
        times.sort()
        percentiles = [times[int(len(times) * part)] * 1e3 for part in (0.5, 0.95, 0.99)]
        print(f"    p50 {percentiles[0]:.1f} ms, p95 {percentiles[1]:.1f} ms, p99 {percentiles[2]:.1f} ms;", end=" ")
        print(f"{rate / SANDBOX_FUSION[name]:.1f} times SandboxFusion's server without isolation")
    async with Sandbox(url) as sandbox:
        await client_speed(sandbox, pid, runs)


async def client_speed(sandbox: Sandbox, pid: int, runs: int) -> None:
    """Print the rates of the client, which detects `/run_batch`."""
    kinds: dict[str, list[Any]] = {
        "call cases": [CallCase("f", [n], expected=n + 1) for n in range(20)],
        "MBPP-like asserts": [AssertCase(f"assert f({n}) == {n + 1}") for n in range(20)],
        "asserts with code (judge process)": [AssertCase(f"x = f({n})\nassert x == {n + 1}") for n in range(20)],
    }

    async def distinct(cases: list[Any], count: int) -> tuple[float, int]:
        programs = [Program(f"def f(x):\n    return x + 1  # {n}") for n in range(count)]
        start = time.perf_counter()
        results = await sandbox.check_many(programs, cases)
        taken = time.perf_counter() - start
        assert all(result.all_passed for result in results)  # type: ignore[union-attr]
        return count * len(cases) / taken, count * len(cases)

    for name, cases in kinds.items():
        await repeated(
            f"/run_batch, 20 {name} per program", "cases/s", runs, pid, lambda cases=cases: distinct(cases, 100)
        )

    async def printed() -> tuple[float, int]:
        cases = [StdioCase(f"{n}\n", f"{n + 1}\n") for n in range(20)]
        programs = [Program(f"print(int(input()) + 1)  # {n}") for n in range(60)]
        start = time.perf_counter()
        results = await sandbox.check_many(programs, cases)
        assert all(result.all_passed for result in results)  # type: ignore[union-attr]
        return 60 * 20 / (time.perf_counter() - start), 60 * 20

    await repeated("/run_batch, 20 stdin cases per program", "cases/s", runs, pid, printed)

    async def runs_of_distinct() -> tuple[float, int]:
        start = time.perf_counter()
        results = await asyncio.gather(*(sandbox.run(f"print({n})") for n in range(1000)))
        assert [result.stdout for result in results] == [f"{n}\n" for n in range(1000)]
        return 1000 / (time.perf_counter() - start), 1000

    await repeated("/run_batch, distinct programs", "programs/s", runs, pid, runs_of_distinct)
    one = kinds["MBPP-like asserts"][:1]
    await repeated("/run_batch, distinct programs, 1 assert each", "programs/s", runs, pid, lambda: distinct(one, 500))


async def scaling(runs: int, seconds: float) -> None:
    """Print the throughput by workers and callers."""
    print("programs/s of /run_code print(1), median")
    rows = []
    for workers in (1, 2):
        with running_server(workers) as (url, _):
            row = []
            for callers in (1, 4, 16, 64):
                await run_code_load(url, PRINT, callers, seconds / 2)
                row.append(
                    statistics.median([(await run_code_load(url, PRINT, callers, seconds))[0] for _ in range(runs)])
                )
            rows.append((workers, row))
    print("workers   1 caller  4 callers  16 callers  64 callers")
    for workers, row in rows:
        print(f"{workers:7d}  {row[0]:9.1f}  {row[1]:9.1f}  {row[2]:10.1f}  {row[3]:10.1f}")
    print("2 workers to 1:", "  ".join(f"{two / one:.2f}" for one, two in zip(rows[0][1], rows[1][1], strict=True)))


async def pairs(other: Path, workers: int, runs: int, seconds: float) -> None:
    """Print programs/s of `/run_code` with this checkout's server and another's, alternating, and the ratios."""
    with running_server(workers) as (ours, _), running_server(workers, other) as (theirs, _):
        for name, code in (("print(1)", PRINT), ("MBPP-like", MBPP)):
            ratios = []
            for turn in range(-1, runs):
                urls = (ours, theirs) if turn % 2 else (theirs, ours)
                rates = {url: (await run_code_load(url, code, 16, seconds))[0] for url in urls}
                if turn < 0:
                    continue  # warm-up
                ratios.append(rates[ours] / rates[theirs])
                print(
                    f"{name:10s} this {rates[ours]:6.1f}  other {rates[theirs]:6.1f}  ratio {ratios[-1]:.3f}",
                    flush=True,
                )
            print(f"{name:10s} median ratio {statistics.median(ratios):.3f} ({min(ratios):.3f} .. {max(ratios):.3f})")


HOSTILE = [
    ("import os\nwhile True:\n    try: os.fork()\n    except OSError: pass", "timeout"),
    ("x = []\nwhile True: x.append(bytearray(1 << 24))", "memory"),
    ("while True: pass", "timeout"),
    ("print('x' * (5 << 20))", "output_limit"),
]


async def soak(url: str, pid: int, count: int, workers: int) -> None:
    """Run many programs in a row, 1 in 10 hostile; print misclassifications, memory and processes left."""
    wrong: Counter[tuple[str, str]] = Counter()
    outcomes: Counter[str] = Counter()
    async with Sandbox(url, concurrency=64) as sandbox:

        async def one(number: int) -> None:
            if number % 10:
                code, expected, stdout = f"print({number})", "passed", f"{number}\n"
            else:
                (code, expected), stdout = HOSTILE[number // 10 % len(HOSTILE)], None
            result = await sandbox.run(code, timeout=1.0, memory_mb=256)
            outcomes[result.outcome] += 1
            if result.outcome != expected or (stdout is not None and result.stdout != stdout):
                wrong[(expected, result.outcome)] += 1

        await asyncio.gather(*(one(number) for number in range(400)))
        before = memory_mib(pid)
        outcomes.clear()
        start = time.perf_counter()
        for first in range(0, count, 1000):
            await asyncio.gather(*(one(number) for number in range(first, min(count, first + 1000))))
            print(
                f"    {first + 1000:6d} programs, {time.perf_counter() - start:6.1f} s, {memory_mib(pid):.1f} MiB",
                flush=True,
            )
        taken = time.perf_counter() - start
    after = memory_mib(pid)
    left = len(tree(pid)) - 1 - 3 * (workers + spare_slots(workers))
    print(f"{sum(outcomes.values())} results of {count} programs in {taken:.0f} s: {dict(sorted(outcomes.items()))}")
    print(f"misclassified: {sum(wrong.values())} {dict(wrong) or ''}")
    print(f"memory of the server: {before:.1f} MiB before, {after:.1f} MiB after ({(after / before - 1) * 100:+.1f}%)")
    print(f"processes left: {left}")


WORST: dict[str, tuple[str, int]] = {
    "writes to all descriptors": (
        "import os\nfor d in range(3, 250):\n    try: os.write(d, (60000).to_bytes(4, 'big') + b'[' * 60000)\n"
        "    except OSError: pass\ndef f(x): return x + 1\n",
        3,
    ),
    "raises class SIGKILL": ("class SIGKILL(Exception): pass\ndef f(x): raise SIGKILL\n", 3),
    "kills itself": ("import os\ndef f(x): os.kill(os.getpid(), 9)\n", 3),
    "prints 9,000 digits": ("def f(x): return '1' * 9000 + 'e'\nprint('1' * 9000 + 'e')\n", 0),
    "sleeps 0.9 s in each of 20 cases": ("import time\ndef f(x):\n    time.sleep(0.9)\n    return x + 1\n", 20),
    "computes for ever": ("def f(x):\n    while True: pass\n", 3),
    "a fork bomb": ("import os\ndef f(x):\n    while True:\n        try: os.fork()\n        except OSError: pass\n", 3),
    "fills its memory": ("def f(x):\n    a = []\n    while True: a.append(bytearray(1 << 22))\n", 3),
    "a name of 7 MB": ("def f(x): raise type('A' * 7_000_000, (Exception,), {})\n", 3),
}
"""Hostile programs and their numbers of cases; 0: one case that reads the output."""
CALLERS = 10


async def hostile_neighbours(runs: int, seconds: float) -> None:
    """Print checks/s of honest callers, alone and next to hostile ones, each in a closed loop with a limit of 1 s."""
    print(f"\nhonest checks/s of {CALLERS} callers, one worker; share of the rate of as many honest callers alone")
    with running_server(1) as (url, _):
        async with Sandbox(url) as sandbox:
            alone = {n: [await honest_rate(sandbox, n, None, seconds) for _ in range(runs)] for n in (5, 9)}
            print(f"{'':34s} 9 alone {spread(alone[9])}, 5 alone {spread(alone[5])}")
            for name, (code, cases) in WORST.items():
                kept = []
                for honest in (9, 5):
                    rates = [await honest_rate(sandbox, honest, (code, cases), seconds) for _ in range(runs)]
                    shares = [rate / statistics.median(alone[honest]) for rate in rates]
                    range_of = f"({min(shares):.0%} .. {max(shares):.0%})"
                    kept.append(f"{CALLERS - honest} hostile: {statistics.median(shares):5.0%} {range_of}")
                print(f"{name:34s} " + "   ".join(kept), flush=True)


async def honest_rate(sandbox: Sandbox, honest: int, hostile: tuple[str, int] | None, seconds: float) -> float:
    """Checks per second of `honest` callers; if `hostile` is given, the rest of the CALLERS run it."""
    done, until = 0, time.perf_counter() + seconds
    good = [AssertCase(f"assert f({n}) == {n + 1}") for n in range(3)]

    async def friend(number: int) -> None:
        nonlocal done
        while time.perf_counter() < until:
            result = await sandbox.check(Program(f"def f(x): return x + 1  # {number} {done}"), good, timeout=1.0)
            assert result.all_passed, result
            done += 1

    async def foe(number: int) -> None:
        code, count = hostile or ("", 0)
        cases = [AssertCase("assert f(1) == 2")] * count or [StdioCase("", "2.5")]
        while time.perf_counter() < until:
            await sandbox.check(Program(f"{code}# {number}"), cases, timeout=1.0, memory_mb=256)

    foes = [asyncio.create_task(foe(number)) for number in range(CALLERS - honest if hostile else 0)]
    await asyncio.gather(*(friend(number) for number in range(honest)))
    rate = done / seconds
    await asyncio.gather(*foes)
    return rate


def slowest_frames() -> None:
    """Print the processor time of the slowest of 20,000 random and mutated frames, for each reader of frames."""
    from tests.rewards.sandbox.hostile_frames import FIXED, mutated
    from tests.rewards.sandbox.test_sandbox_fuzz import READERS

    frames = [*FIXED, *(mutated(seed) for seed in range(20_000 - len(FIXED)))]
    for read in READERS:
        times = []
        for body in frames:
            start = time.process_time()
            read(body[: 1 << 16])
            times.append((time.process_time() - start, body))
        slowest, body = max(times)
        mean = sum(seconds for seconds, _ in times) / len(times)
        print(f"{read.__name__:18s} mean {mean * 1e6:4.0f} us, slowest {slowest * 1e3:5.1f} ms: {body[:60]!r}")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("speed", "scaling", "soak", "hostile", "pairs"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="duration of one run")
    parser.add_argument("--count", type=int, default=20_000, help="programs of the soak")
    parser.add_argument("--other", type=Path, help="the other checkout of pairs")
    options = parser.parse_args()
    if (options.what == "pairs") != (options.other is not None):
        parser.error("--other FOLDER is required for pairs, and only allowed there")
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f} at start, Python {sys.version.split()[0]}")
    if options.what == "scaling":
        asyncio.run(scaling(options.runs, options.seconds))
        return
    if options.what == "pairs":
        asyncio.run(pairs(options.other.resolve(), options.workers, options.runs, options.seconds))
        return
    if options.what == "hostile":
        slowest_frames()
        asyncio.run(hostile_neighbours(options.runs, options.seconds))
        return
    with running_server(options.workers) as (url, pid):
        if options.what == "speed":
            asyncio.run(speed(url, pid, options.runs, options.seconds))
        else:
            asyncio.run(soak(url, pid, options.count, options.workers))


if __name__ == "__main__":
    main()
