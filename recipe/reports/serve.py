"""A list of all runs below a folder, live in a browser on this machine.

Each run has its state, step, last metrics and page; checked runs share one page. Pages are made on request, from
the files as they are then. Nothing is written. It listens on 127.0.0.1: to see it from another machine, forward the
port (ssh -L 8123:127.0.0.1:8123 MACHINE). Control-C ends it.
"""

import argparse
import contextlib
import json
import socket
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from urllib.parse import parse_qsl

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from recipe.pages.run_files import page_files, signature
from recipe.pages.run_list import RunList, RunRow, list_page
from recipe.pages.run_page import run_page
from recipe.records.arms import ReportError
from recipe.records.run_directory import RunDirectory
from rewards.sandbox.server.access import is_wildcard

PORT = 8123
MOST = 12
"""Runs on one page."""
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

LIVE = "running"
RELOAD = 60
"""Seconds after which the page of a run under way loads itself again."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subcommand."""
    parser.add_argument("folder", type=Path, nargs="?", default=Path("outputs"), help="(default: %(default)s)")
    parser.add_argument("--port", type=int, default=PORT, help="0 takes a free one (default: %(default)s)")
    parser.add_argument("--host", default="127.0.0.1", help="another name or address of this machine: NO PASSWORD")


def run(options: argparse.Namespace) -> None:
    """Run the subcommand."""
    require_folder(options.folder)
    listening = listening_socket(options.host, options.port)
    host = shown(options.host)
    if host not in LOOPBACK:
        print(
            f"warning: everyone who reaches {host} can read every run in {options.folder}: there is no password. "
            "Without --host only this machine can.",
            file=sys.stderr,
        )
    config = uvicorn.Config(
        application(options.folder, host), log_level="warning", access_log=False, ws="none", server_header=False,
        timeout_graceful_shutdown=2,
    )  # fmt: skip
    print(f"runs of {options.folder}: http://{host}:{listening.getsockname()[1]}/ (Control-C ends it)", flush=True)
    with contextlib.suppress(KeyboardInterrupt):  # uvicorn raises it again when it has ended
        uvicorn.Server(config).run(sockets=[listening])


def require_folder(folder: Path) -> None:
    """Raise ReportError unless this is a folder that may hold runs."""
    if not folder.is_dir():
        raise ReportError(
            f"{folder} is not a folder: name the one that holds the runs, outputs/ unless run.root= chose another"
        )
    if (folder / "events.jsonl").exists() or (folder / "config.yaml").exists():
        raise ReportError(f"{folder} is a run itself: name the folder that holds runs, or use recipe.report page")


def listening_socket(host: str, port: int) -> socket.socket:
    """A socket that listens at this address; ReportError if it cannot."""
    if not 0 <= port <= 65535:
        raise ReportError(f"--port must be 0 to 65535, got {port}")
    if is_wildcard(host):
        raise ReportError(f"--host {host} is not an address that a browser can open: give this machine's own")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        free = "; --port 0 takes a free one" if port else ""
        cause = str(error.strerror).partition(" (")[0]  # Python adds the address
        raise ReportError(f"cannot listen at port {port} of {host}: {cause}{free}") from error


def shown(host: str) -> str:
    """The host as a URL names it."""
    return f"[{host}]" if ":" in host else host.lower()


class PageCache:
    """The last few pages, each with what it was made from; one is made at a time, as each takes a core."""

    def __init__(self, root: Path, capacity: int = 8):
        self._root, self._capacity = root, capacity
        self._pages: OrderedDict[tuple[str, ...], tuple[object, str]] = OrderedDict()
        self._lock = threading.Lock()

    def page(self, runs: Sequence[tuple[RunDirectory, RunRow]], now: float) -> str:
        """The HTML of the page of these runs, made at time `now` or kept from an earlier call.

        Raises:
            RecordsError: this release cannot read a run, or a link in it leads out of the folder.
        """
        key = tuple(row.id for _, row in runs)
        with self._lock:
            source = [
                (row.state, [(str(file), signature(file)) for file in page_files(run.path, self._root)])
                for run, row in runs
            ]
            if key not in self._pages or self._pages[key][0] != source:
                reload = RELOAD if any(row.state == LIVE for _, row in runs) else 0
                self._pages[key] = source, run_page([run for run, _ in runs], now, reload=reload)
            self._pages.move_to_end(key)
            while len(self._pages) > self._capacity:
                self._pages.popitem(last=False)
            return self._pages[key][1]


def application(folder: Path, host: str = "127.0.0.1") -> Starlette:
    """The application for the runs below a folder.

    It answers requests to this host and to names of the loopback alone: another site's name that was made to lead here
    (DNS rebinding) is refused.
    """
    runs = RunList(folder)
    pages = PageCache(runs.root)

    def listed() -> dict[str, object]:
        now = time.time()
        return {"now": now, "most": MOST, "runs": [asdict(row) for row in runs.rows(now)]}

    def index(request: Request) -> Response:
        text, policy = list_page(str(folder), listed())
        return HTMLResponse(text, headers=HEADERS | {"Content-Security-Policy": policy})

    def rows(request: Request) -> Response:
        return JSONResponse(listed(), headers=HEADERS)

    def page(request: Request) -> Response:
        names = asked_runs(request)
        if not 1 <= len(names) <= MOST:
            return refusal(400, f"name 1 to {MOST} runs: /page?run=EXPERIMENT/RUN&run=...")
        now = time.time()
        runs.rows(now)  # a run may have begun since the last look
        rows = [runs.row(name, now) for name in names]
        if missing := [name for name, one in zip(names, rows, strict=True) if one is None]:
            return refusal(404, f"there is no run {json.dumps(missing[0])} in this folder")
        try:
            text = pages.page([one for one in rows if one], now)
        except Exception as error:  # the files of a run may be anything
            return refusal(422, f"the page cannot be made: {type(error).__name__}: {error}")
        return HTMLResponse(text.encode("utf-8", "replace"), headers=HEADERS)

    routes = [Route("/", index), Route("/runs.json", rows), Route("/page", page)]
    hosts = Middleware(TrustedHostMiddleware, allowed_hosts=[*LOOPBACK, host], www_redirect=False)
    return Starlette(routes=routes, middleware=[hosts])


def asked_runs(request: Request) -> list[str]:
    """The ids in a request's query, each once, in order."""
    pairs = parse_qsl(request.url.query, keep_blank_values=True, errors="backslashreplace")
    return list(dict.fromkeys(value for key, value in pairs if key == "run"))


def refusal(status: int, why: str) -> Response:
    """An answer in plain text, in which nothing can run."""
    return PlainTextResponse(f"{why}\n".encode("utf-8", "replace"), status, headers=HEADERS)
