"""`python -m rewards.sandbox serve`: the sandbox server alone."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ipaddress
import logging
import os
import socket
import sys

from rewards.sandbox.embedded import Leases, write_state
from rewards.sandbox.pool import Pool
from rewards.sandbox.server import build_app
from rewards.sandbox.slot import Settings, Slot, SlotFailed

log = logging.getLogger("rewards.sandbox")


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line; exits with usage on a mistake."""
    parser = argparse.ArgumentParser(prog="python -m rewards.sandbox", description=__doc__)
    serve = parser.add_subparsers(dest="command", required=True).add_parser("serve", help="run the server")
    serve.add_argument(
        "--host", default="127.0.0.1", help="address to listen on; beyond loopback implies strict isolation"
    )
    serve.add_argument("--port", type=int, default=8080, help="0: any free port, printed at start")
    serve.add_argument("--workers", type=int, default=default_workers(), help="programs that run at a time")
    serve.add_argument("--isolation", choices=("strict", "best", "none"), help="default: best on loopback, else strict")
    serve.add_argument("--memory-mb", type=int, default=1024, help="limit for programs that ask for none")
    serve.add_argument("--disk-mb", type=int, default=64, help="what a program may keep in its folder")
    serve.add_argument("--queue", type=int, default=4096, help="programs that may wait before callers get 429")
    serve.add_argument("--state", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.workers < 1 or options.queue < 1:
        parser.error("--workers and --queue must be at least 1")
    options.isolation = options.isolation or ("best" if is_loopback(options.host) else "strict")
    if options.isolation != "strict" and not is_loopback(options.host):
        parser.error(
            f"--isolation {options.isolation} is refused on {options.host}: beyond loopback only strict is served"
        )
    return options


def default_workers() -> int:
    """Two programs a processor: one may sleep or wait for its end while the other computes."""
    return 2 * len(os.sched_getaffinity(0))


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def report_layers(slots: list[Slot], isolation: str) -> None:
    """Log what protects this machine; raises `SystemExit` when strict isolation is asked for and not there."""
    if isolation == "none":
        log.warning("isolation: NONE, programs run with limits only; use this for code that you trust")
        return
    missing = {layer: reason for slot in slots for layer, reason in slot.missing.items()}
    log.info("isolation: active layers: %s", " ".join(slots[0].active))
    if missing:
        listed = "; ".join(f"{layer} ({reason})" for layer, reason in sorted(missing.items()))
        if isolation == "strict":
            raise SystemExit(
                f"isolation strict: this machine lacks {listed}. Use --isolation best on loopback to go without."
            )
        log.warning("isolation best: going without %s", listed)


async def serve(options: argparse.Namespace) -> None:
    """Start the workers, then answer until a signal or, for an embedded server, until nobody holds a lease."""
    import uvicorn

    settings = Settings(
        isolate=options.isolation != "none", quota_mb=options.disk_mb, memory_mb=options.memory_mb, queue=options.queue
    )
    pool = Pool(options.workers, settings)
    try:
        await pool.start()
        report_layers(pool.slots, options.isolation)
        listener = socket.create_server((options.host, options.port), reuse_port=False, backlog=2048)
        config = uvicorn.Config(build_app(pool), log_level="warning", access_log=False, timeout_graceful_shutdown=3)
        server = uvicorn.Server(config)
        leases = await Leases.open(options.state, server) if options.state else None
        port = listener.getsockname()[1]
        if options.state:
            write_state(options.state, f"http://127.0.0.1:{port}")
        log.info("serving on http://%s:%d with %d workers", options.host, port, options.workers)
        await server.serve(sockets=[listener])
        if leases is not None:
            leases.close()
    finally:
        pool.close()


def main() -> None:
    """Entry point."""
    options = parse_arguments()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s", stream=sys.stderr)
    try:
        with contextlib.suppress(ImportError):
            # A faster event loop, where it is installed; uvicorn would take it, but starts after the workers.
            import uvloop

            asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
        asyncio.run(serve(options))
    except (SlotFailed, OSError) as error:
        raise SystemExit(f"the sandbox could not start: {error}") from None
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
