"""The wire formats: SandboxFusion's `/run_code` and our server's additions.

A client discovers the additions through `GET /capabilities`, so it never guesses which server it talks to.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from rewards.sandbox.cases import MAX_TIMEOUTS, OUTPUT_LIMIT, TIMEOUT_SECONDS, require_python
from rewards.sandbox.inside.codec import UNREADABLE, decode
from rewards.sandbox.inside.frames import MAX_FRAME
from rewards.sandbox.worker.languages import KNOWN

CAPABILITIES = {
    "server": "verl-skillcredit-sandbox", "version": 1, "run_batch": True, "checks": True, "tokens": True,
    "coverage": True,
}  # fmt: skip
"""The constant part of the `GET /capabilities` answer; the server adds limits, languages and layers."""

MAX_TIMEOUT = 600.0
MAX_TOTAL_TIMEOUT = 4 * 3600.0
MAX_OUTPUT = 16 << 20
MAX_MEMORY_MB = 1 << 20
MAX_CASES = 10_000
MAX_PROGRAMS = 4096
MAX_RESULTS = 1 << 20
"""Maximum cases in one request, counted once per program that they apply to."""
MAX_FILES = 32
MAX_PATH = 1024
MAX_FETCH = 32 << 10
"""Maximum bytes of all paths to fetch as JSON: they fit in one message to the fork server."""
MAX_JOB = 32 << 20
"""Maximum bytes of one program as JSON, with its cases, input and files."""
MAX_VALUES = MAX_FRAME - (64 << 10)
"""Maximum bytes of a setup, or of one test that calls functions: the size of one message between a program and its
judge. With larger ones a correct program would fail."""
OUTCOME_HEADER = "x-sandbox-outcome"
TRUNCATED_HEADER = "x-sandbox-truncated"


FilePath = Annotated[str, Field(max_length=MAX_PATH)]


class RunCodeRequest(BaseModel):
    """SandboxFusion's request, field by field; unknown fields are ignored, as in SandboxFusion."""

    compile_timeout: float = Field(10, allow_inf_nan=False)
    run_timeout: float = Field(10, allow_inf_nan=False)
    memory_limit_MB: int = Field(-1, le=MAX_MEMORY_MB)
    code: str
    stdin: str | None = None
    language: str
    files: dict[FilePath, str | None] = Field(default_factory=dict, max_length=MAX_FILES)
    fetch_files: list[FilePath] = Field(default_factory=list, max_length=MAX_FILES)

    @field_validator("language")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in KNOWN:
            raise ValueError("Input should be " + ", ".join(repr(name) for name in KNOWN))
        return value

    @field_validator("fetch_files")
    @classmethod
    def _fits_a_message(cls, value: list[str]) -> list[str]:
        if value and len(json.dumps(value)) > MAX_FETCH:
            raise ValueError(f"the paths are longer than {MAX_FETCH} bytes together")
        return value


class WireCase(BaseModel):
    """One test case: `source` (statements), `entry_point` with encoded values (codec.py), or `stdin` and `expected`
    (`layout`: leading and inner blanks must match)."""

    model_config = ConfigDict(extra="forbid")
    source: str | None = None
    entry_point: str | None = None
    args: Any = None
    kwargs: Any = None
    stdin: str | None = None
    expected: Any = None
    layout: bool = False

    @model_validator(mode="after")
    def _one_kind(self) -> WireCase:
        given = self.model_fields_set - {
            name for name in ("args", "kwargs", "expected") if self.entry_point is not None
        }
        if self.source is not None and given == {"source"}:
            require_python(self.source)
        elif self.stdin is not None and given - {"layout"} == {"stdin", "expected"} and isinstance(self.expected, str):
            pass
        elif self.entry_point is not None and given == {"entry_point"}:
            try:
                args, kwargs, _ = map(decode, (self.args, self.kwargs, self.expected))
            except UNREADABLE as error:
                raise ValueError(f"args, kwargs or expected are not encoded values: {error!r}") from None
            if not isinstance(args, list) or not isinstance(kwargs, dict):
                raise ValueError("args must be an encoded list and kwargs an encoded dict")
        else:
            raise ValueError("a case is {source}, {entry_point, args, kwargs, expected} or {stdin, expected}")
        return self


class BatchProgram(BaseModel):
    """A program of a batch; omitted fields default to the batch's. `token`: any text, which its lines repeat, so that
    the client knows whose they are."""

    model_config = ConfigDict(extra="forbid")
    token: str | None = Field(None, max_length=64)
    code: str
    language: str = "python"
    stdin: str | None = None
    files: dict[str, str | None] = Field(default_factory=dict)
    cases: list[WireCase] | None = Field(None, max_length=MAX_CASES)


class BatchRequest(BaseModel):
    """`POST /run_batch`: programs to run, or to check against their own cases or those of the whole batch.

    Times in seconds, sizes in MiB (`output_limit`: bytes per stream). `timeout` applies per case, `total_timeout` to
    all cases of a program (default: the larger of four times `timeout` and half of it per case). `entry_points`: names
    that the tests take from the program even if a builtin or a library module has that name. `coverage`: the results of
    a check name, as `executed`, the statements that no earlier case executed, counted from 0 in the order of the
    program's text; without that key they are not known.

    The answer is a stream of JSON lines, grouped by program and in the order of the programs:
    `{"index", "first", "results", "done"}` with the results of consecutive cases (a run has one result) and whether
    they are the last, `{"index", "error"}` for a program that could not be run, `{"index", "refused"}` for one that
    this server can never run; empty lines show that work continues. With `ordered` false, lines arrive as programs
    finish. Each line about a program with a `token` repeats it.
    """

    model_config = ConfigDict(extra="forbid")
    programs: list[BatchProgram] = Field(min_length=1, max_length=MAX_PROGRAMS)
    cases: list[WireCase] | None = Field(None, max_length=MAX_CASES)
    setup: str = ""
    timeout: float = Field(TIMEOUT_SECONDS, gt=0, le=MAX_TIMEOUT)
    compile_timeout: float = Field(TIMEOUT_SECONDS, gt=0, le=MAX_TIMEOUT)
    memory_mb: int = Field(-1, le=MAX_MEMORY_MB)
    output_limit: int = Field(OUTPUT_LIMIT, gt=0, le=MAX_OUTPUT)
    max_timeouts: int = Field(MAX_TIMEOUTS, ge=1)
    total_timeout: float | None = Field(None, gt=0, le=MAX_TOTAL_TIMEOUT)
    entry_points: list[str] = Field(default_factory=list, max_length=256)
    stop_on_failure: bool = False
    coverage: bool = False
    ordered: bool = True

    @model_validator(mode="after")
    def _bounded(self) -> BatchRequest:
        results = sum(len(program.cases or self.cases or []) for program in self.programs)
        if results > MAX_RESULTS:
            raise ValueError(f"programs with {results} cases together; at most {MAX_RESULTS} in one request")
        return self


class CommandRunResult(BaseModel):
    """SandboxFusion's result of one command."""

    status: Literal["Finished", "Error", "TimeLimitExceeded"]
    execution_time: float | None = None
    return_code: int | None = None
    stdout: str | None = None
    stderr: str | None = None


class RunCodeResponse(BaseModel):
    """SandboxFusion's response."""

    status: Literal["Success", "Failed", "SandboxError"]
    message: str = ""
    compile_result: CommandRunResult | None = None
    run_result: CommandRunResult | None = None
    executor_pod_name: str | None = None
    files: dict[str, str] = Field(default_factory=dict)


def excess(rest: int, setup: int, cases: list[tuple[bool, int]]) -> str | None:
    """The reason why a job is too large for a worker, or None.

    `rest`: bytes of everything but the cases; `setup`: bytes of the setup; `cases`: for each case whether it has input
    and printed output, and its bytes.
    """
    values = max([setup, *(size for printed, size in cases if not printed)])
    if values > MAX_VALUES:
        return f"a test or its setup is larger than {MAX_VALUES} bytes as JSON"
    if rest + sum(size for _, size in cases) > MAX_JOB:
        return f"code, input, files and cases of one program are larger than {MAX_JOB} bytes as JSON"
    return None


def bad_path(paths: list[str]) -> str | None:
    """The first path that leaves the program's folder or is invalid, or None."""
    return next((path for path in paths if _is_bad(path)), None)


def _is_bad(path: str) -> bool:
    leaves = path.startswith("/") or ".." in path.split("/")
    return leaves or not path or "\0" in path or len(path) > MAX_PATH


def command_result(result: dict[str, Any]) -> dict[str, Any]:
    """One command's result in SandboxFusion's format."""
    timed_out = result["return_code"] is None
    return {
        "status": "TimeLimitExceeded" if timed_out else "Finished",
        "execution_time": result["time"],
        "return_code": result["return_code"],
        "stdout": result["stdout"],
        "stderr": result["stderr"],
    }


def run_code_response(result: dict[str, Any], fetched: list[str]) -> dict[str, Any]:
    """Convert a worker's result into the body of a `/run_code` answer."""
    compiled = result.get("compile")
    ran = result.get("ran", True)
    codes = [part["return_code"] for part in (compiled, result if ran else None) if part is not None]
    files = zip(fetched, result.get("files") or [], strict=False)
    return {
        "status": "Success" if all(code == 0 for code in codes) else "Failed",
        "message": "",
        "compile_result": command_result(compiled) if compiled else None,
        "run_result": command_result(result) if ran else None,
        "executor_pod_name": None,
        "files": {path: content for path, content in files if content is not None},
    }


def sandbox_error(message: str) -> dict[str, Any]:
    """The body for a program that this server could not run."""
    return {
        "status": "SandboxError",
        "message": message,
        "compile_result": None,
        "run_result": None,
        "executor_pod_name": None,
        "files": {},
    }
