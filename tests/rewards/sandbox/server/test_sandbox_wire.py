"""SandboxFusion's protocol: judged by its official client, its documented answers, and our additions."""

# Programs stand here as they are sent; either branch of a try is an outcome.
# ruff: noqa: E501, PT017, RUF015

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import httpx
import pytest
import sandbox_fusion
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sandbox_fusion import CommandRunStatus, RunCodeRequest, RunStatus

from rewards.sandbox import Sandbox
from rewards.sandbox.server import wire
from rewards.sandbox.worker.languages import KNOWN
from tests.rewards.sandbox.conftest import HTTP, ServerProcess

pytestmark = pytest.mark.slow  # with a server

FIELDS = {"status", "message", "compile_result", "run_result", "executor_pod_name", "files"}
RESULT_FIELDS = {"status", "execution_time", "return_code", "stdout", "stderr"}


def post(server: ServerProcess, **body: object) -> httpx.Response:
    return HTTP.post(server.url + "/run_code", json=body, timeout=30)


def official(server: ServerProcess, **fields: object) -> sandbox_fusion.RunCodeResponse:
    return sandbox_fusion.run_code(RunCodeRequest(**fields), endpoint=server.url, max_attempts=1, client_timeout=30)


def test_official_client_runs_a_program(server: ServerProcess) -> None:
    answer = official(server, code="print(input())", language="python", stdin="hello")
    assert (answer.status, answer.message, answer.compile_result) == (RunStatus.Success, "", None)
    assert answer.run_result.status == CommandRunStatus.Finished
    assert (answer.run_result.return_code, answer.run_result.stdout, answer.run_result.stderr) == (0, "hello\n", "")
    assert 0 < answer.run_result.execution_time < 10


def test_official_client_sees_failures_as_sandbox_fusion_reports_them(server: ServerProcess) -> None:
    failed = official(server, code="1/0", language="python")
    assert (failed.status, failed.run_result.return_code) == (RunStatus.Failed, 1)
    assert failed.run_result.stderr.endswith("ZeroDivisionError: division by zero\n")
    slow = official(server, code="while True: pass", language="python", run_timeout=0.5)
    assert (slow.status, slow.message) == (RunStatus.Failed, "")
    assert (slow.run_result.status, slow.run_result.return_code) == (CommandRunStatus.TimeLimitExceeded, None)


def test_official_client_compiles(server: ServerProcess) -> None:
    good = official(server, code="int main() { return 0; }", language="cpp")
    assert (good.status, good.compile_result.return_code, good.run_result.return_code) == (RunStatus.Success, 0, 0)
    bad = official(server, code="int main( {", language="cpp")
    assert (bad.status, bad.run_result) == (RunStatus.Failed, None)
    assert bad.compile_result.return_code == 1
    assert "error" in bad.compile_result.stderr


def test_official_client_sends_and_fetches_files(server: ServerProcess) -> None:
    content = base64.b64encode(b"\x00\xff data").decode()
    code = "import os\nos.makedirs('out')\nopen('out/b', 'wb').write(open('in/a', 'rb').read() * 2)\nos.symlink('/etc/passwd', 'link')"
    answer = official(
        server, code=code, language="python", files={"in/a": content}, fetch_files=["out/b", "missing", "link", "out"]
    )
    assert answer.status == RunStatus.Success
    assert answer.files == {"out/b": base64.b64encode(b"\x00\xff data\x00\xff data").decode()}


async def test_official_async_client_many_at_once(server: ServerProcess) -> None:
    requests = [RunCodeRequest(code=f"print({n})", language="python") for n in range(20)]
    answers = await asyncio.gather(
        *(sandbox_fusion.run_code_async(request, endpoint=server.url, client_timeout=30) for request in requests)
    )
    assert [answer.run_result.stdout for answer in answers] == [f"{n}\n" for n in range(20)]


def test_official_summary_agrees(server: ServerProcess) -> None:
    mapping = sandbox_fusion.SummaryMapping(Success="ok", Failed="bad", CompileFailed="no", RunTimeout="late")
    summary = sandbox_fusion.summary_run_code_result
    assert summary(official(server, code="print(1)", language="python"), mapping) == "ok"
    assert summary(official(server, code="x", language="cpp"), mapping) == "no"
    assert summary(official(server, code="while 1: pass", language="python", run_timeout=0.3), mapping) == "late"


def test_body_has_sandbox_fusions_fields_and_no_others(server: ServerProcess) -> None:
    response = post(server, code="print(1)", language="python")
    body = response.json()
    assert set(body) == FIELDS
    assert set(body["run_result"]) == RESULT_FIELDS
    assert body["executor_pod_name"] is None
    assert response.headers["x-sandbox-outcome"] == "passed"


def test_truncation_is_reported_in_a_header(server: ServerProcess) -> None:
    response = post(server, code="print('x' * (2 << 20))", language="python")
    assert response.headers["x-sandbox-outcome"] == "output_limit"
    assert response.headers["x-sandbox-truncated"] == "stdout"
    assert response.json()["status"] == "Failed"


def test_a_program_that_ends_before_it_is_killed_for_its_output_gets_the_same_answer(server: ServerProcess) -> None:
    # One byte too many, written last: it has mostly ended by itself when the worker sees that byte.
    code = "import os, sys\nsys.stdout.write('x' * ((1 << 20) + 1))\nsys.stdout.flush()\nos._exit(0)"
    for _ in range(5):
        response = post(server, code=code, language="python")
        assert response.headers["x-sandbox-outcome"] == "output_limit"
        assert response.json()["status"] == "Failed"
        assert response.json()["run_result"]["return_code"] == -9


@pytest.mark.parametrize(
    ("body", "location"),
    [
        ({"language": "python"}, ["body", "code"]),
        ({"code": 1, "language": "python"}, ["body", "code"]),
        ({"code": "x", "language": "klingon"}, ["body", "language"]),
        ({"code": "x", "language": "python", "run_timeout": "soon"}, ["body", "run_timeout"]),
        ({"code": "x", "language": "python", "files": ["a"]}, ["body", "files"]),
    ],
)
def test_bad_request_is_422_with_its_location(
    server: ServerProcess, body: dict[str, object], location: list[str]
) -> None:
    response = post(server, **body)
    assert response.status_code == 422
    assert response.json()["detail"][0]["loc"] == location


def test_body_that_is_not_json_is_422(server: ServerProcess) -> None:
    response = HTTP.post(server.url + "/run_code", content=b"{nope")
    assert (response.status_code, response.json()["detail"][0]["type"]) == (422, "json_invalid")


def test_known_language_without_its_tool_is_a_sandbox_error(server: ServerProcess) -> None:
    response = post(server, code="x", language="lean")
    assert response.status_code == 200
    assert response.json()["status"] == "SandboxError"
    assert "lean is not available" in response.json()["message"]


@pytest.mark.parametrize("path", ["/etc/evil", "../evil", "a/../../evil", "", "a\0b"])
def test_paths_outside_the_folder_are_refused(server: ServerProcess, path: str) -> None:
    for fields in ({"files": {path: ""}}, {"fetch_files": [path]}):
        body = post(server, code="print(1)", language="python", **fields).json()
        assert (body["status"], body["run_result"]) == ("SandboxError", None)


def test_ping_and_metrics_and_capabilities(server: ServerProcess) -> None:
    with httpx.Client(base_url=server.url, trust_env=False) as http:
        assert http.get("/v1/ping").json() == "pong"
        before = counter(http.get("/metrics").text, "sandbox_programs_total")
        http.post("/run_code", json={"code": "print(1)", "language": "python"})
        text = http.get("/metrics").text
        assert counter(text, "sandbox_programs_total") == before + 1
        assert counter(text, 'sandbox_isolation_layer{layer="seccomp"}') == 1
        answer = http.get("/capabilities").json()
        assert answer["run_batch"] is True
        assert set(answer["languages"]) == {"python", "bash", "cpp", "sql"}


def counter(text: str, name: str) -> float:
    return float(next(line for line in text.splitlines() if line.startswith(name + " ")).split()[-1])


def stream(server: ServerProcess, body: dict[str, object]) -> list[dict[str, Any]]:
    with httpx.stream("POST", server.url + "/run_batch", json=body, timeout=30, trust_env=False) as response:
        assert response.status_code == 200
        return [json.loads(line) for line in response.iter_lines() if line]


def test_batch_answers_in_the_order_of_its_programs(server: ServerProcess) -> None:
    programs = [{"code": f"import time; time.sleep({0.3 if n == 0 else 0})\nprint({n})"} for n in range(8)]
    lines = stream(server, {"programs": programs})
    indices = [line["index"] for line in lines]
    assert indices == sorted(indices)
    assert [line["results"][0]["stdout"] for line in lines if line["results"]] == [f"{n}\n" for n in range(8)]


def test_batch_streams_finished_programs_first(server: ServerProcess) -> None:
    programs = [{"code": "print(1)"}, {"code": "import time; time.sleep(1.5)"}]
    arrivals = []
    body = {"programs": programs, "ordered": False}
    with httpx.stream("POST", server.url + "/run_batch", json=body, timeout=30, trust_env=False) as response:
        for line in response.iter_lines():
            arrivals.append((json.loads(line)["index"], response.elapsed if response.is_closed else None))
    assert [index for index, _ in arrivals][0] == 0


def test_batch_of_one_program_with_many_cases(server: ServerProcess) -> None:
    cases = [{"stdin": f"{n}\n", "expected": f"{n * 2}\n"} for n in range(50)]
    lines = stream(server, {"programs": [{"code": "print(int(input()) * 2)"}], "cases": cases})
    results = [result for line in lines for result in line.get("results", [])]
    assert [result["outcome"] for result in results] == ["passed"] * 50
    assert lines[-1]["done"] is True


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"programs": []},
        {"programs": [{"code": "x"}], "timeout": 0},
        {"programs": [{"code": "x"}], "nonsense": 1},
        {"programs": [{"code": "x", "cases": [{"stdin": "a", "expected": 3}]}]},
        {"programs": [{"code": "x", "cases": [{}]}]},
        {"programs": [{"code": "x", "cases": [{"source": "assert f() ==="}]}]},
        {"programs": [{"code": "x", "cases": [{"source": "(" * 5000}]}]},
        {"programs": [{"code": "x", "cases": [{"entry_point": "f", "args": {"s": None}, "kwargs": {"d": []}}]}]},
        {"programs": [{"code": "x", "cases": [{"entry_point": "f", "args": {"t": []}, "kwargs": {"d": []}}]}]},
    ],
)
def test_bad_batch_is_422(server: ServerProcess, body: dict[str, object]) -> None:
    assert HTTP.post(server.url + "/run_batch", json=body).status_code == 422


def parsed(schema: type, body: dict[str, object]):
    """The request; None where the server lists errors."""
    from rewards.sandbox.server.listener import BadRequest, parse

    try:
        request: object = parse(schema, json.dumps(body).encode())
    except BadRequest as bad:
        assert bad.response.status_code == 422
        assert json.loads(bytes(bad.response.body))["detail"]
        return None
    assert isinstance(request, schema)
    return request


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.sampled_from(
            ["code", "language", "stdin", "files", "run_timeout", "memory_limit_MB", "fetch_files", "other"]
        ),
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text()
        | st.lists(st.text())
        | st.dictionaries(st.text(), st.text()),
    )
)
def test_any_request_is_a_model_or_a_list_of_errors(body: dict[str, object]) -> None:
    if request := parsed(wire.RunCodeRequest, body):
        assert request.language in KNOWN


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
CASES = st.lists(
    st.fixed_dictionaries({"entry_point": st.text(), "args": ANYTHING}, optional={"kwargs": ANYTHING})
    | st.fixed_dictionaries({"stdin": st.text()}, optional={"expected": ANYTHING})
    | st.fixed_dictionaries({"source": st.text()}, optional={"expected": ANYTHING}),
    max_size=3,
)
PROGRAMS = st.lists(
    st.fixed_dictionaries({"code": st.text()}, optional={"cases": CASES, "stdin": ANYTHING}), max_size=3
)
OPTIONS = dict.fromkeys(("timeout", "memory_mb", "output_limit", "setup", "max_timeouts", "other"), ANYTHING)


@settings(max_examples=100, deadline=None)
@given(st.fixed_dictionaries({"programs": PROGRAMS}, optional={"cases": CASES, **OPTIONS}))
def test_any_batch_is_a_model_or_a_list_of_errors(body: dict[str, object]) -> None:
    if request := parsed(wire.BatchRequest, body):
        assert [program.code for program in request.programs] == [program["code"] for program in body["programs"]]  # type: ignore[attr-defined]
        assert 0 < request.timeout <= wire.MAX_TIMEOUT


async def test_our_client_discovers_the_batch_route(server: ServerProcess) -> None:
    async with Sandbox(server.url + "/run_code") as sandbox:
        await sandbox.run("print(1)")
        (endpoint,) = (await sandbox._servers.connect()).endpoints
        assert (endpoint.has_batch, endpoint.workers) == (True, server.workers)


@settings(max_examples=50)
@given(st.sampled_from([None, 0, 1, -9]), st.text(), st.text(), st.floats(0, 100))
def test_response_model_accepts_every_result(code: int | None, stdout: str, stderr: str, seconds: float) -> None:
    result: dict[str, Any] = {"return_code": code, "stdout": stdout, "stderr": stderr, "time": seconds, "files": []}
    body = wire.run_code_response(result, [])
    model = wire.RunCodeResponse.model_validate(body)
    assert model.status == ("Success" if code == 0 else "Failed")
    assert model.model_dump() == body
