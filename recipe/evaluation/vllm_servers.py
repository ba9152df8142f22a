"""vLLM servers of one model for the time of an evaluation: one on a CPU, on GPUs one per tensor-parallel group.

On a CPU vLLM gets the values of configs/platform/cpu.yaml, which explains them.
"""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import prod
from pathlib import Path

import httpx
from omegaconf import DictConfig, OmegaConf

import configs
from recipe.evaluation import ServerError
from recipe.runtime.stop_request import end_with_parent

VLLM_PLATFORMS = ("cpu", "gpu")
START_SECONDS = 900.0

# No core for vLLM's scheduler alone, which would be half of a machine with two: it waits while the worker computes.
_NO_RESERVED_CORE = {"VLLM_CPU_NUM_OF_RESERVED_CPU": "0"}
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_GROUP_SIZES = ("--tensor-parallel-size", "-tp", "--pipeline-parallel-size", "-pp")
_OWN_REPLICAS = ("--data-parallel-size", "-dp")

# Read by vLLM and torch. No chunked prefill, because after a chunk vLLM rewinds the request's random generator, which
# torch does not support on a CPU.
_CPU_VARIABLES = ("VLLM_CPU_KVCACHE_SPACE", "TORCH_COMPILE_DISABLE")


@dataclass(frozen=True)
class LocalServer:
    """A started server. gpus: those that it sees, as CUDA_VISIBLE_DEVICES names them; None: what this process sees."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path
    gpus: str | None

    @property
    def death(self) -> str | None:
        """Why it ended; None while it runs."""
        if self.process.poll() is None:
            return None
        place = f"GPU {self.gpus}: " if self.gpus else ""
        return f"{place}{last_error(self.log)}; all of its output: {self.log}"


@contextlib.contextmanager
def vllm_servers(
    model: str,
    platform: str,
    log: Path,
    options: Sequence[str] = (),
    precision: str | None = None,
    most: int | None = None,
) -> Iterator[list[str]]:
    """Start servers of this model and yield their urls; they stop when the block ends, also by an exception.

    platform: `cpu` (one server) or `gpu` (as many as the visible GPUs have room for, each with its own GPUs). options:
    further options of `vllm serve`. log: gets a server's output; of several each has its own, LOG.0 and so on.
    precision: a dtype of vLLM; None: that of the model. most: largest number of servers.
    Raises ServerError if a server does not start. One that ends on the way is reported when the block ends.
    """
    groups: list[str | None] = gpu_groups(visible_gpus(), options)[:most] if platform == "gpu" else [None]
    logs = [log] if len(groups) == 1 else [log.with_suffix(f".{number}{log.suffix}") for number in range(len(groups))]
    servers: list[LocalServer] = []
    try:
        for port, gpus, file in zip(free_ports(len(groups)), groups, logs, strict=True):
            servers.append(_start(command_of(model, platform, port, options, precision), platform, port, gpus, file))
        wait_until_up(servers)
        yield [server.url for server in servers]
        for death in _deaths(servers):
            print(f"warning: a vLLM server has ended: {death}", file=sys.stderr)
    except ServerError as error:
        if not (deaths := _deaths(servers)):
            raise  # the servers are alive, so their logs do not have the reason
        raise ServerError(f"{error}: {'; '.join(deaths)}") from None
    finally:
        end_sessions([server.process for server in servers])


def _deaths(servers: Sequence[LocalServer]) -> list[str]:
    return [death for server in servers if (death := server.death)]


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    named = os.environ.get(_VISIBLE)
    if named is not None:
        gpus = [name.strip() for name in named.split(",")]
        return gpus[: next((place for place, name in enumerate(gpus) if name in ("", "-1")), len(gpus))]
    import torch  # takes seconds, and a CPU does not need it

    return [str(number) for number in range(torch.cuda.device_count())]


def gpu_groups(gpus: Sequence[str], options: Sequence[str]) -> list[str | None]:
    """The GPUs of each server, by the sizes that the options of `vllm serve` name; GPUs too few for one more are idle.

    One server that sees all of them if vLLM makes replicas itself (--data-parallel-size), or if there are none, so that
    vLLM reports what is missing. ServerError if one server needs more than there are.
    """
    numbers = _numbers(options)
    if not gpus or any(name in numbers for name in _OWN_REPLICAS):
        return [None]
    size = prod(numbers.get(name, 1) for name in _GROUP_SIZES)
    if not 1 <= size <= len(gpus):
        raise ServerError(f"--vllm '{' '.join(options)}': a server needs {size} GPUs, and {len(gpus)} are visible")
    return [",".join(gpus[start : start + size]) for start in range(0, len(gpus) - size + 1, size)]


def _numbers(options: Sequence[str]) -> dict[str, int]:
    """The options with a whole number, given as `NAME NUMBER` or `NAME=NUMBER`; vLLM takes `_` for `-`."""
    words = [word for option in options for word in (option.split("=", 1) if option.startswith("-") else [option])]
    return {name.replace("_", "-"): int(value) for name, value in pairwise(words) if value.isdecimal()}


def free_ports(count: int) -> list[int]:
    """Ports that are free now, all different."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def command_of(model: str, platform: str, port: int, options: Sequence[str], precision: str | None) -> list[str]:
    """The command that starts one server."""
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", model, "--host", "127.0.0.1"]
    command += ["--port", str(port), *(cpu_flags() if platform == "cpu" else ())]
    return [*command, *(["--dtype", precision] if precision else []), *options]


def _start(command: Sequence[str], platform: str, port: int, gpus: str | None, log: Path) -> LocalServer:
    cpu_variables = cpu_environment() | _NO_RESERVED_CORE if platform == "cpu" else {}
    environment = os.environ | cpu_variables | ({_VISIBLE: gpus} if gpus else {})
    with open(log, "w") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env=environment, start_new_session=True, preexec_fn=end_with_parent
        )
    return LocalServer(process, f"http://127.0.0.1:{port}", log, gpus)


def wait_until_up(servers: Sequence[LocalServer]) -> None:
    """Return once all are healthy; raise ServerError if one exits, or takes too long."""
    deadline, waiting = time.monotonic() + START_SECONDS, list(servers)
    while time.monotonic() < deadline:
        if _deaths(waiting):
            raise ServerError("vLLM did not start")
        waiting = [server for server in waiting if not _is_healthy(server.url)]
        if not waiting:
            return
        time.sleep(0.5)
    raise ServerError(f"vLLM did not start within {START_SECONDS:.0f} s; its output: {waiting[0].log}")


def _is_healthy(url: str) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(f"{url}/health", timeout=5).status_code == 200
    return False


def last_error(log: Path) -> str:
    """The last line of a log that reports an error; without one, the last line."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"(Error|Exception)\b: ", line) and "EngineDeadError" not in line]
    return (errors or lines or ["it printed nothing"])[-1][-300:]


def end_sessions(servers: Sequence[subprocess.Popen[bytes]]) -> None:
    """Stop servers and the engine processes of their sessions: SIGTERM to all first, then SIGKILL."""
    for kind in (signal.SIGTERM, signal.SIGKILL):
        for process in servers:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, kind)
        deadline = time.monotonic() + 20.0
        for process in servers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
        if not any(_session_lives(process.pid) for process in servers):
            return


def _session_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@cache
def cpu_options() -> dict[str, bool | int]:
    """Engine arguments of vLLM by their names in Python."""
    rollout = _cpu_platform().actor_rollout_ref.rollout
    return {
        "enforce_eager": rollout.enforce_eager,
        "block_size": rollout.engine_kwargs.vllm.block_size,
        "enable_chunked_prefill": rollout.enable_chunked_prefill,
    }


def cpu_flags() -> list[str]:
    """The same as options of `vllm serve`."""
    flags = []
    for name, value in cpu_options().items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            flags.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            flags += [f"--{flag}", str(value)]
    return flags


@cache
def cpu_environment() -> dict[str, str]:
    """Environment variables of the engine's process."""
    variables = _cpu_platform().ray_kwargs.ray_init.runtime_env.env_vars
    return {name: variables[name] for name in _CPU_VARIABLES}


def _cpu_platform() -> DictConfig:
    loaded = OmegaConf.load(Path(configs.__path__[0], "platform", "cpu.yaml"))
    assert isinstance(loaded, DictConfig)
    return loaded
