"""Access to a server: tokens, Host and Origin; and where the client sends its token."""

# A test may wait for a process.
# ruff: noqa: ASYNC240

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from rewards.sandbox import InfrastructureError, Sandbox
from rewards.sandbox.__main__ import parse_arguments
from rewards.sandbox.client.embedded import shared_server
from rewards.sandbox.server.access import Guard, is_loopback
from rewards.sandbox.server_token import read_token
from tests.rewards.sandbox.conftest import HTTP, ServerProcess, start_server

TOKEN = "correct-horse-battery-staple"
OTHER = "correct-horse-battery-stapl3"


@pytest.fixture(autouse=True)
def _no_token_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SANDBOX_TOKEN", raising=False)
    monkeypatch.delenv("SANDBOX_TOKEN_FILE", raising=False)


def answer(host: str, token: str | None, *headers: tuple[str, str], path: str = "/run_code") -> int:
    """The status that a guard gives a request; 200 if it forwards it."""
    sent: list[dict[str, Any]] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})

    async def send(message: Any) -> None:
        sent.append(message)

    encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    scope = {"type": "http", "path": path, "headers": encoded, "method": "POST"}
    asyncio.run(Guard(application, host, token)(scope, None, send))  # type: ignore[arg-type]
    return int(sent[0]["status"])


LOOPBACK_NAMES = [
    "localhost",
    "localhost:8080",
    "LOCALHOST",
    "localhost.",
    "127.0.0.1:1",
    "127.9.9.9",
    "[::1]:8080",
    "[::1]",
]


@pytest.mark.parametrize("name", LOOPBACK_NAMES)
def test_loopback_names_are_the_servers_own(name: str) -> None:
    assert answer("127.0.0.1", None, ("host", name)) == 200
    assert answer("::1", None, ("host", name)) == 200


@pytest.mark.parametrize(
    "name",
    [
        "evil.example",
        "evil.example:8080",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "10.0.0.5",
        "",
        "[::2]:80",
    ],
)
def test_another_host_is_refused(name: str) -> None:
    assert answer("127.0.0.1", None, ("host", name)) == 403
    assert answer("127.0.0.1", TOKEN, ("host", name), ("authorization", f"Bearer {TOKEN}")) == 403


def test_exactly_one_host_header_is_required() -> None:
    assert answer("127.0.0.1", None) == 403
    assert answer("127.0.0.1", None, ("host", "localhost"), ("host", "evil.example")) == 403
    assert answer("127.0.0.1", None, ("host", "localhost"), ("host", "localhost")) == 403


@pytest.mark.parametrize(
    ("listens", "host", "status"),
    [
        ("10.0.0.5", "10.0.0.5:8080", 200),
        ("node7.cluster", "Node7.Cluster:8080", 200),
        ("node7.cluster", "node8.cluster:8080", 403),
        ("fd00::7", "[fd00::7]:8080", 200),
        ("0.0.0.0", "node7.cluster:8080", 200),
        ("::", "node7.cluster:8080", 200),
    ],
)
def test_the_configured_host_is_the_servers_own(listens: str, host: str, status: int) -> None:
    assert answer(listens, TOKEN, ("host", host), ("authorization", f"Bearer {TOKEN}")) == status


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:8080", 200),
        ("HTTP://LOCALHOST:8080", 200),
        ("http://localhost:3000", 403),
        ("http://localhost", 403),
        ("http://evil.example", 403),
        ("https://evil.example?localhost:8080", 403),
        ("http://evil.example/://localhost:8080", 403),
        ("localhost:8080", 403),
        ("null", 403),
        ("", 403),
    ],
)
def test_pages_of_other_origins_are_refused(origin: str, status: int) -> None:
    assert answer("127.0.0.1", None, ("host", "localhost:8080"), ("origin", origin)) == status


def test_every_origin_counts() -> None:
    both = ("origin", "http://localhost"), ("origin", "http://evil.example")
    assert answer("127.0.0.1", None, ("host", "localhost"), *both) == 403
    assert answer("127.0.0.1", None, ("host", "localhost"), *reversed(both)) == 403


@pytest.mark.parametrize(
    "given",
    [
        "",
        TOKEN,
        f"bearer {TOKEN}",
        f"Bearer {OTHER}",
        f"Bearer {TOKEN} ",
        f"Bearer {TOKEN[:-1]}",
        f"Basic {TOKEN}",
        "Bearer \u00e9",
    ],
)
def test_any_other_token_is_401(given: str) -> None:
    assert answer("127.0.0.1", TOKEN, ("host", "localhost"), ("authorization", given)) == 401
    assert answer("127.0.0.1", TOKEN, ("host", "localhost"), ("authorization", f"Bearer {TOKEN}")) == 200


@pytest.mark.parametrize(
    "path", ["/run_code", "/run_batch", "/capabilities", "/metrics", "/docs", "/v1/ping/", "//v1/ping"]
)
def test_all_routes_but_ping_require_the_token(path: str) -> None:
    assert answer("127.0.0.1", TOKEN, ("host", "localhost"), path=path) == 401
    assert answer("127.0.0.1", TOKEN, ("host", "localhost"), path="/v1/ping") == 200


@pytest.mark.parametrize(
    ("host", "inside"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("a.org", False),
    ],
)
def test_is_loopback(host: str, inside: bool) -> None:
    assert is_loopback(host) is inside


def test_a_token_comes_from_a_file_or_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    assert read_token(environment={}) is None
    assert read_token(environment={"SANDBOX_TOKEN": ""}) is None
    assert read_token(environment={"SANDBOX_TOKEN": TOKEN, "SANDBOX_TOKEN_FILE": "/nowhere"}) == TOKEN
    assert read_token(environment={"SANDBOX_TOKEN_FILE": str(file)}) == TOKEN
    assert read_token(str(file), {"SANDBOX_TOKEN": OTHER}) == TOKEN
    with pytest.raises(OSError, match="nowhere"):
        read_token("/nowhere", {})


def test_a_token_is_found_in_a_replaced_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    # `datasets` does that when it maps with several processes.
    monkeypatch.setattr(os, "environ", {"SANDBOX_TOKEN": TOKEN})
    assert read_token() == TOKEN


@pytest.mark.parametrize("text", ["", "\n", "short", "two words that are long", "line\nline line line", "\u00e9" * 20])
def test_an_invalid_token_is_refused_without_being_shown(text: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    with pytest.raises(ValueError, match="the token of ") as raised:
        read_token(str(file), {})
    assert not text.strip() or text.strip() not in str(raised.value)


def test_beyond_loopback_a_token_is_required(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for host in ("0.0.0.0", "10.0.0.5", "::", "node7"):
        with pytest.raises(SystemExit):
            parse_arguments(["serve", "--host", host])
        assert "--token-file or SANDBOX_TOKEN" in capsys.readouterr().err
    monkeypatch.setenv("SANDBOX_TOKEN", TOKEN)
    options = parse_arguments(["serve", "--host", "0.0.0.0"])
    assert (options.isolation, options.token) == ("strict", TOKEN)
    for mode in ("best", "minimal", "none"):
        with pytest.raises(SystemExit):
            parse_arguments(["serve", "--host", "0.0.0.0", "--isolation", mode])
    monkeypatch.delenv("SANDBOX_TOKEN")
    assert (parse_arguments(["serve"]).isolation, parse_arguments(["serve"]).token) == ("best", None)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server on all addresses that requires a token."""
    file = tmp_path_factory.mktemp("token") / "token"
    file.write_text(TOKEN)
    server = start_server("--host", "0.0.0.0", "--token-file", str(file), workers=1)
    server.url = server.url.replace("0.0.0.0", "127.0.0.1")
    yield server
    server.stop()


@pytest.mark.slow
def test_a_server_beyond_loopback_serves_only_its_token(guarded: ServerProcess) -> None:
    body = {"code": "print(1)", "language": "python"}
    with httpx.Client(base_url=guarded.url, trust_env=False) as http:
        refused = http.post("/run_code", json=body)
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert http.get("/capabilities").status_code == 401
        assert http.get("/v1/ping").json() == "pong"
        right = {"Authorization": f"Bearer {TOKEN}"}
        assert http.post("/run_code", json=body, headers=right).json()["run_result"]["stdout"] == "1\n"
        page = {**right, "Origin": "http://evil.example"}
        assert http.post("/run_code", json=body, headers=page).status_code == 403
    # A page's cross-origin questions come without the token, and are refused as well.
    assert httpx.options(guarded.url + "/run_code", headers={"Origin": "http://evil.example"}).status_code == 403


@pytest.mark.slow
def test_the_token_is_in_no_log_and_no_command_line(guarded: ServerProcess) -> None:
    assert not any(TOKEN in line for line in guarded.log)
    lines = [Path(f"/proc/{pid}/cmdline").read_text() for pid in (guarded.process.pid, *guarded.descendants())]
    assert not any(TOKEN in line for line in lines)


@pytest.mark.slow
async def test_programs_do_not_see_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    server = start_server(workers=1, variables={"SANDBOX_TOKEN": TOKEN})
    try:
        async with Sandbox(server.url, token=TOKEN) as sandbox:
            assert "TOKEN" not in (await sandbox.run("import os; print(dict(os.environ))")).stdout
    finally:
        server.stop()


@pytest.mark.slow
async def test_the_client_sends_its_token(
    guarded: ServerProcess, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with Sandbox(guarded.url, token=TOKEN) as sandbox:
        assert (await sandbox.run("print(1)")).stdout == "1\n"
    for token in (None, OTHER):
        async with Sandbox(guarded.url, token=token) as sandbox:
            with pytest.raises(InfrastructureError, match="401"):
                await sandbox.run("print(1)")
    monkeypatch.setenv("SANDBOX_TOKEN", TOKEN)
    async with Sandbox(guarded.url) as sandbox:
        assert (await sandbox.run("print(2)")).stdout == "2\n"


class _Listening(BaseHTTPRequestHandler):
    """Forwards every request to another server and records its headers."""

    heard: list[dict[str, str]] = []  # noqa: RUF012
    target = ""

    def _answer(self) -> None:
        self.heard.append({name.lower(): value for name, value in self.headers.items()})
        self.send_response(302)
        self.send_header("Location", self.target)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST = _answer

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.mark.slow
async def test_the_token_goes_only_to_named_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_TOKEN", TOKEN)
    servers = [HTTPServer(("127.0.0.1", 0), type("Handler", (_Listening,), {"heard": []})) for _ in range(2)]
    named, elsewhere = servers
    named.RequestHandlerClass.target = f"http://127.0.0.1:{elsewhere.server_port}/"  # type: ignore[attr-defined]
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        async with Sandbox(f"http://127.0.0.1:{named.server_port}", attempts=1) as sandbox:
            with pytest.raises(InfrastructureError, match="302"):
                await sandbox.run("print(1)")
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()
    heard = named.RequestHandlerClass.heard  # type: ignore[attr-defined]
    assert {headers["authorization"] for headers in heard} == {f"Bearer {TOKEN}"}
    assert elsewhere.RequestHandlerClass.heard == []  # type: ignore[attr-defined]


@pytest.mark.slow
async def test_the_embedded_server_has_its_own_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("SANDBOX_TOKEN", TOKEN)
    # Not the arguments of another test: this process holds its lease as long as it lives.
    async with Sandbox(workers=1, isolation="best") as sandbox:
        assert (await sandbox.run("print(1)")).stdout == "1\n"
        address = shared_server(("--workers", "1", "--isolation", "best"))
        assert address.token not in (None, TOKEN)
        body = {"code": "print(1)", "language": "python"}
        for given in ({}, {"Authorization": f"Bearer {TOKEN}"}):
            assert HTTP.post(address.url + "/run_code", json=body, headers=given).status_code == 401
    (state,) = tmp_path.glob("*/*.json")
    assert state.stat().st_mode & 0o777 == 0o600
    assert json.loads(state.read_text())["token"] == address.token
    assert not any(str(address.token) in log.read_text() for log in tmp_path.glob("*/*.log"))
