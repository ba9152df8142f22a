"""`python -m rewards.sandbox serve`: the sandbox as a standalone server."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import socket
import sys

from rewards.sandbox.cases import OUTPUT_LIMIT
from rewards.sandbox.client import readiness
from rewards.sandbox.client.embedded import Leases, write_state
from rewards.sandbox.server import modes
from rewards.sandbox.server.access import Guard, is_loopback
from rewards.sandbox.server.listener import uvicorn_server, watch
from rewards.sandbox.server.modes import MODES
from rewards.sandbox.server.pool import Counters, Pool
from rewards.sandbox.server.server import build_app
from rewards.sandbox.server.slot import SlotSettings, WorkerFailed
from rewards.sandbox.server_token import read_token

log = logging.getLogger("rewards.sandbox")


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line; exits with the usage text on an error."""
    parser = argparse.ArgumentParser(prog="python -m rewards.sandbox", description=__doc__)
    serve = parser.add_subparsers(dest="command", required=True).add_parser("serve", help="run the server")
    serve.add_argument(
        "--host", default="127.0.0.1", help="address to listen on; beyond loopback: needs a token and strict isolation"
    )
    serve.add_argument("--port", type=int, default=8080, help="0: any free port, printed at start")
    serve.add_argument("--workers", type=int, default=default_workers(), help="concurrent programs")
    serve.add_argument("--isolation", choices=MODES, help="default: best on loopback, else strict")
    serve.add_argument(
        "--token-file", help="file with the token that callers must send; or set SANDBOX_TOKEN, SANDBOX_TOKEN_FILE"
    )
    serve.add_argument(
        "--memory-mb", type=int, default=SlotSettings.memory_mb, help="MiB for programs whose request sets no limit"
    )
    serve.add_argument(
        "--disk-mb", type=int, default=SlotSettings.quota_mb, help="MiB that a program may store in its folder"
    )
    serve.add_argument(
        "--queue", type=int, default=SlotSettings.queue, help="programs that may wait before callers get 429"
    )
    serve.add_argument("--state", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.workers < 1 or options.queue < 1:
        parser.error("--workers and --queue must be at least 1")
    options.isolation = options.isolation or ("best" if is_loopback(options.host) else "strict")
    if options.isolation != "strict" and not is_loopback(options.host):
        parser.error(
            f"--isolation {options.isolation} is refused on {options.host}: beyond loopback use --isolation strict"
        )
    try:
        options.token = read_token(options.token_file)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    if options.token is None and not is_loopback(options.host):
        parser.error(f"{options.host} is open to other machines: give a token (--token-file or SANDBOX_TOKEN)")
    return options


def default_workers() -> int:
    """Two programs per CPU: one may sleep or be shutting down while the other computes."""
    return 2 * len(os.sched_getaffinity(0))


async def require_packages(pool: Pool) -> None:
    """Raise `SystemExit` if programs can't import the packages that this interpreter has."""
    job = {
        "code": readiness.own_program(),
        "language": "python",
        "timeout": readiness.SECONDS,
        "compile_timeout": 1.0,
        "memory_mb": readiness.MEMORY_MB,
        "output_limit": OUTPUT_LIMIT,
    }
    async for results, _ in pool.results(job):
        if results:
            problem = readiness.problem(results[0])
    if problem:
        raise SystemExit(f"the sandbox could not start: {problem}")
    pool.counters = Counters()  # callers see counts of their own programs only


async def serve(options: argparse.Namespace) -> None:
    """Start the workers, then serve until a signal or, for an embedded server, until no lease is held."""
    settings = SlotSettings(
        isolate=options.isolation != "none", quota_mb=options.disk_mb, memory_mb=options.memory_mb, queue=options.queue
    )
    pool = Pool(options.workers, settings)
    watching = None
    try:
        await pool.start()
        modes.require(pool.slots, options.isolation)
        await require_packages(pool)
        family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
        listener = socket.create_server((options.host, options.port), family=family, backlog=2048)
        server = uvicorn_server(Guard(build_app(pool), options.host, options.token), timeout_graceful_shutdown=3)
        watching = asyncio.create_task(watch(server))
        leases = await Leases.open(options.state, server) if options.state else None
        port = listener.getsockname()[1]
        if options.state:
            write_state(options.state, f"http://127.0.0.1:{port}", options.token)
        shown = f"[{options.host}]" if ":" in options.host else options.host
        log.info("serving on http://%s:%d with %d workers", shown, port, options.workers)
        await server.serve(sockets=[listener])
        if leases is not None:
            leases.close()
    finally:
        if watching is not None:
            watching.cancel()
        pool.close()


def main() -> None:
    """Entry point."""
    options = parse_arguments()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s", stream=sys.stderr)
    try:
        with contextlib.suppress(ImportError):
            # A faster event loop, if it is installed; uvicorn would set it too, but only after the workers start.
            import uvloop

            asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
        asyncio.run(serve(options))
    except (WorkerFailed, OSError) as error:
        raise SystemExit(f"the sandbox could not start: {error}") from None
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
