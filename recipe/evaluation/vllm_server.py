"""vLLM's own server for the time of an evaluation, on a CPU or on GPUs."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx

from recipe.evaluation.endpoints import ServerError

START_SECONDS = 900.0

# What configs/platform/cpu.yaml gives vLLM in a training run, and why, is said there. Prompts in one piece, because
# after a part of a prompt vLLM turns the request's random generator back, which torch has no way of doing on a CPU.
_CPU_OPTIONS = ("--dtype", "float32", "--enforce-eager", "--block-size", "32", "--no-enable-chunked-prefill")
_CPU_ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1", "TORCH_COMPILE_DISABLE": "1"}


@contextlib.contextmanager
def vllm_server(model: str, platform: str, log: Path, options: Sequence[str] = ()) -> Iterator[str]:
    """The url of a server of this model, which ends with the block, however the block ends.

    platform: `cpu` or `gpu`. options: more of `vllm serve`. Raises ServerError when it does not come up; all that it
    prints is in `log`.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", model, "--host", "127.0.0.1"]
    command += ["--port", str(port), *(_CPU_OPTIONS if platform == "cpu" else ()), *options]
    environment = os.environ | (_CPU_ENVIRONMENT if platform == "cpu" else {})
    with open(log, "w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment, start_new_session=True)
    try:
        wait_until_up(process, f"http://127.0.0.1:{port}", log)
        yield f"http://127.0.0.1:{port}"
    except ServerError as error:
        if process.poll() is None:
            raise  # it lives: what its log says is not the reason
        raise ServerError(f"{error}: {last_error(log)}; all of its output: {log}") from None
    finally:
        end_session(process)


def wait_until_up(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    """Returns when the server answers; raises ServerError when it ends, or takes too long."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise ServerError("vLLM did not start")
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{url}/health", timeout=5).status_code == 200:
                return
        time.sleep(0.5)
    raise ServerError(f"vLLM did not come up in {START_SECONDS:.0f} s; what it prints: {log}")


def last_error(log: Path) -> str:
    """The last line of a log that tells of an error, or its last line."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"(Error|Exception)\b: ", line) and "EngineDeadError" not in line]
    return (errors or lines or ["it printed nothing"])[-1][-300:]


def end_session(process: subprocess.Popen[bytes]) -> None:
    """End a server and the engine processes of its session, gently first."""
    for kind, patience in ((signal.SIGTERM, 20.0), (signal.SIGKILL, 20.0)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, kind)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)
            if kind == signal.SIGKILL or not _session_lives(process.pid):
                return


def _session_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
