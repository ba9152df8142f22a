"""``recipe.report serve``: answers on real run directories, what it refuses, and the command itself."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from starlette.testclient import TestClient

from recipe import report
from recipe.pages.run_page import run_page
from recipe.records.run_directory import RunDirectory
from recipe.records.versions import VERSION
from recipe.reports import serve
from recipe.reports.serve import MOST, application
from tests.recipe.pages.conftest import HOSTILE, make_run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
NAME = HOSTILE.replace("/", "|").replace("\ud800", "")
"""A folder's name as hostile as a model's text; a file system refuses only the slash and half a character."""


def client(folder: Path, host: str = "127.0.0.1") -> TestClient:
    return TestClient(application(folder, host), base_url="http://127.0.0.1:8123")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("outputs")
    make_run(root, "a")
    make_run(root, NAME)
    return root


@pytest.fixture
def served(folder: Path) -> TestClient:
    return client(folder)


def listed(asked: TestClient) -> dict[str, dict]:
    return {row["id"]: row for row in asked.get("/runs.json").json()["runs"]}


def test_the_list_has_each_run_and_the_page_carries_the_same_as_data(served: TestClient):
    runs = listed(served)
    assert set(runs) == {"quickstart/a", f"quickstart/{NAME}"}
    found = runs["quickstart/a"]
    assert (found["state"], found["step"], found["accuracy"]) == ("failed", 3, 0.5)
    text = served.get("/").text
    island = re.search(r'<script type="application/json" id="data-runs">(.*?)</script>', text)
    assert island is not None
    assert [row["id"] for row in json.loads(island[1])["runs"]] == list(runs)
    assert text.count("<script") == 2
    assert "<img" not in text
    assert HOSTILE[:20] not in text


def test_every_answer_forbids_what_it_does_not_need(served: TestClient):
    policy = served.get("/").headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    for rule in ("connect-src 'self'", "form-action 'self'", "base-uri 'none'", "frame-ancestors 'none'"):
        assert rule in policy
    assert "unsafe-eval" not in policy
    for address in ("/", "/runs.json", "/page?run=quickstart/a", "/page?run=none", "/page"):
        headers = served.get(address).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in headers


def test_pages_are_made_of_one_run_or_of_several(served: TestClient):
    one = served.get("/page", params={"run": "quickstart/a"})
    assert one.status_code == 200
    assert "<title>quickstart / a</title>" in one.text
    assert '<a href="/">All runs</a>' in one.text
    both = served.get("/page", params={"run": ["quickstart/a", f"quickstart/{NAME}", "quickstart/a"]})
    assert both.status_code == 200
    assert both.text.count("<h1>") == 2
    assert "<script>document.title" not in both.text


def test_a_page_is_regenerated_when_a_file_changed_and_only_then(tmp_path: Path, monkeypatch):
    run = make_run(tmp_path, "a")
    made = []

    def noted(runs: list[RunDirectory], now: float, reload: int) -> str:
        made.append(reload)
        return run_page(runs, now, reload=reload)

    monkeypatch.setattr(serve, "run_page", noted)
    asked = client(tmp_path)
    first = asked.get("/page?run=quickstart/a").text
    assert asked.get("/page?run=quickstart/a").text == first
    assert made == [0]  # a run that failed: its page need not renew itself
    assert 'data-reload="0"' in first
    run.log_metrics(4, {"reward/acc": 0.75})
    run.log_event("step", step=4)
    second = asked.get("/page?run=quickstart/a").text
    assert made == [0, serve.RELOAD]
    assert "4 updates" in second
    assert f'data-reload="{serve.RELOAD}"' in second
    assert "refreshes while scrolled to the top" in second


@pytest.mark.parametrize(
    "name",
    ["..", "../a", "/etc", "/etc/passwd", "quickstart", "quickstart/../quickstart/a", "quickstart/a/", "%2e%2e/a",
     "quickstart/a\x00", "quickstart/a/generations", "", "\udcff", "quickstart\\a"],
)  # fmt: skip
def test_a_name_that_is_not_in_the_list_is_not_found(served: TestClient, name: str):
    answer = served.get("/page", params={"run": name.encode("utf-8", "surrogateescape")})
    assert answer.status_code == 404
    assert answer.headers["content-type"].startswith("text/plain")


def test_other_addresses_methods_and_too_many_runs_are_refused(served: TestClient):
    assert served.get("/page").status_code == 400
    assert served.get("/page", params={"run": [str(number) for number in range(MOST + 1)]}).status_code == 400
    for address in (
        "/../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/docs",
        "/openapi.json",
        "/quickstart/a/config.yaml",
    ):
        assert served.get(address).status_code == 404
    assert served.post("/").status_code == 405


@pytest.mark.parametrize(
    ("host", "status"),
    [("127.0.0.1:8123", 200), ("localhost", 200), ("LOCALHOST:9", 200), ("[::1]:8123", 200), ("evil.example", 400),
     ("127.0.0.1.evil.example:8123", 400), ("localhost.evil.example", 400), ("192.0.2.7", 400), ("", 400),
     ("127.0.0.1@evil.example", 400)],
)  # fmt: skip
def test_only_names_of_the_loopback_are_answered(served: TestClient, host: str, status: int):
    assert served.get("/runs.json", headers={"host": host}).status_code == status


def test_a_given_host_is_answered_too(folder: Path):
    asked = client(folder, "box.example")
    assert asked.get("/runs.json", headers={"host": "box.example:1"}).status_code == 200
    assert asked.get("/runs.json", headers={"host": "other.example"}).status_code == 400


def test_runs_that_cannot_be_read_are_listed_and_their_page_says_why(tmp_path: Path):
    half = RunDirectory.prepare(str(tmp_path), "e", "half")
    half.log_event("start")
    other = make_run(tmp_path, "other")
    config = other.path / "config.yaml"
    config.write_text(config.read_text().replace(f"records_version: {VERSION}", "records_version: 99"))
    linked = make_run(tmp_path, "linked")
    (linked.path / "generations" / "train_000009.jsonl").symlink_to("/etc/passwd")
    torn = make_run(tmp_path, "torn")
    (torn.path / "config.yaml").write_text(f"records_version: {VERSION}\n{{]")
    asked = client(tmp_path)
    states = {name: row["state"] for name, row in listed(asked).items()}
    assert (states["e/half"], states["quickstart/other"]) == ("not started", "unreadable")
    reasons = {"e/half": "config.yaml", "quickstart/other": "version 99 of the records",
               "quickstart/linked": "train_000009.jsonl is a link", "quickstart/torn": "cannot be made"}  # fmt: skip
    for name, reason in reasons.items():
        answer = asked.get("/page", params={"run": name})
        assert answer.status_code == 422
        assert reason in answer.text


def test_an_empty_or_vanished_folder_is_an_empty_list(tmp_path: Path):
    root = tmp_path / "outputs"
    root.mkdir()
    asked = client(root)
    assert listed(asked) == {}
    assert "There is no run in this folder yet" in asked.get("/").text
    root.rmdir()
    assert listed(asked) == {}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{root}/none"], "none is not a folder: name the one that holds the runs"),
        (["{root}/run"], "is a run itself"),
        (["{root}", "--port", "70000"], "--port must be 0 to 65535"),
        (
            ["{root}", "--port", "{taken}"],
            "cannot listen at port {taken} of 127.0.0.1: Address already in use; --port 0",
        ),
        (["{root}", "--host", "0.0.0.0", "--port", "0"], "--host 0.0.0.0 is not an address that a browser can open"),
        (["{root}", "--host", "203.0.113.7", "--port", "0"], "cannot listen at port 0 of 203.0.113.7"),
    ],
)
def test_what_cannot_be_served_is_said(tmp_path: Path, capsys, arguments: list[str], message: str):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").touch()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        names = {"root": str(tmp_path), "taken": str(taken.getsockname()[1])}
        assert report.main(["serve", *(one.format(**names) for one in arguments)]) == 2
        assert message.format(**names) in capsys.readouterr().err


@pytest.fixture
def command(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The real command on a free port."""
    process = subprocess.Popen(
        [sys.executable, "-m", "recipe.report", "serve", str(folder), "--port", "0"], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | {"COLUMNS": "200"},
    )  # fmt: skip
    yield process
    process.kill()
    process.wait()


def listening_addresses(process: int) -> set[str]:
    """The addresses on which a process listens, as /proc names them."""
    sockets = {os.readlink(one) for one in Path(f"/proc/{process}/fd").iterdir() if one.is_symlink()}
    tables = [Path(f"/proc/{process}/net/{name}").read_text() for name in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in table.splitlines()[1:]]
    return {row[1].partition(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets}


def test_the_command_serves_on_the_loopback_and_ends_cleanly_by_control_c(command: subprocess.Popen[str]):
    assert command.stdout is not None
    line = command.stdout.readline()
    address = re.search(r"http://127\.0\.0\.1:\d+/", line)
    assert address is not None, line
    started = time.monotonic()
    with httpx.Client(trust_env=False) as asking:  # its connection stays open
        while True:
            try:
                answer = asking.get(f"{address[0]}runs.json")
                break
            except httpx.ConnectError:
                assert time.monotonic() - started < 60
        assert len(answer.json()["runs"]) == 2
        assert listening_addresses(command.pid) == {"0100007F"}
        command.send_signal(signal.SIGINT)
        out, error = command.communicate(timeout=30)
    assert (command.returncode, out, error) == (0, "", "")
