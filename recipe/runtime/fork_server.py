"""Ray workers forked from one process that has their imports: torch, verl and vLLM, which each would import again.

Ray starts a worker with the command ``py_executable`` of its runtime environment, followed by the worker's program.
Ours asks a server to fork. The child becomes the worker, and the command waits for its end; the first command becomes
the server. A worker with other environment variables, or one for which there is no server, starts as usual.

For a run with its own Ray on a Linux machine without accelerators: CUDA cannot be used after a fork. This file runs as
a program without site-packages, so that a command costs milliseconds: modules are imported where they are needed.
"""

import contextlib
import json
import os
import secrets
import shlex
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

# Variables that may differ: they belong to one worker, and no import reads them.
OF_ONE_WORKER = (
    "CUDA_VISIBLE_DEVICES", "LOCAL_", "MASTER_", "RANK", "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES", "RAY_LOCAL_",
    "SPT_NOENV", "WG_", "WORLD_SIZE",
)  # fmt: skip
FORKED = b"forked"
CHECKOUT = Path(__file__).parents[2]


def executable(python: str, modules: Sequence[str]) -> str:
    """The value of ``py_executable`` for one run, whose server imports these modules."""
    return shlex.join([python, "-I", "-S", __file__, "run", secrets.token_hex(16), ",".join(modules)])


def run(name: str, modules: str, words: Sequence[str]) -> None:
    """Run a program in a process that the server `name` forks, until it ends; or become the server, or the program.

    words: the program's file and arguments. modules: separated by commas.
    """
    address = f"\0verl-skillcredit-{name}"  # abstract: it vanishes with the server
    server = socket.socket(socket.AF_UNIX)
    try:
        if _refused(server, address):
            listener = socket.socket(socket.AF_UNIX)
            with contextlib.suppress(OSError):  # another command was faster
                listener.bind(address)
                listener.listen(64)
                os.set_inheritable(listener.fileno(), True)
                _execute(__file__, "serve", str(listener.fileno()), modules, *words)
            server.connect(address)
        request = {"words": list(words), "environment": dict(os.environ), "folder": os.getcwd()}
        if _user(server) == os.getuid():
            _send(server, request)
            if server.recv(len(FORKED)) == FORKED:
                server.recv(1)  # nothing comes: it is closed when the worker ends
                return
    except OSError:
        pass
    _execute(*words)


def serve(listener: socket.socket, modules: str, words: Sequence[str]) -> None:
    """Import, fork for the program that was to run here, then for each request; ends with Ray's node."""
    import gc
    import importlib
    import select
    import signal

    environment = dict(os.environ)  # before an import changes it
    # In place of this file's folder, whose names could hide others: the worker's, and the checkout of this file, which
    # is the driver's. Ray adds the driver's paths when a worker connects, after these imports.
    sys.path[:1] = [str(Path(words[0]).parent), str(CHECKOUT)]
    try:
        node = os.pidfd_open(int(os.environ["RAY_RAYLET_PID"]))
        for module in modules.split(","):
            importlib.import_module(module)
    except Exception as error:  # the worker's own imports will show why
        print(f"workers are not forked: {type(error).__name__}: {error}", file=sys.stderr)
        listener.close()
        _execute(*words)
    del sys.path[1]
    gc.collect()
    gc.freeze()  # forked processes share pages that the collector does not touch
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    if os.fork() == 0:
        _become({"words": words, "environment": environment, "folder": os.getcwd()}, listener)
    waits = select.poll()
    for file in (node, listener.fileno()):
        waits.register(file, select.POLLIN)
    while node not in dict(waits.poll()):
        connection, _ = listener.accept()
        if os.fork() == 0:
            if _user(connection) != os.getuid():
                os._exit(0)
            request, files = _received(connection)
            if _shared(request["environment"]) != _shared(environment):
                os._exit(0)
            for number, file in enumerate(files):
                os.dup2(file, number)
                os.close(file)
            connection.sendall(FORKED)  # and stays open: closing it signals that the worker has exited
            _become(request, listener)
        connection.close()


def _become(request: Mapping[str, Any], listener: socket.socket) -> NoReturn:
    """Run the program in this forked process as Python would in a new one."""
    import runpy
    import signal

    listener.close()
    os.setpgid(0, 0)  # as Ray does: when a worker dies, Ray ends its process group
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    if "ray" in sys.modules:
        from ray._raylet import Config  # type: ignore[attr-defined]

        Config.initialize("")  # reads RAY_* again, as Ray does when it has changed one
    if "numpy" in sys.modules:
        import numpy as np

        np.random.seed()  # `random` is seeded after each fork, numpy is not
    sys.argv = list(request["words"])
    runpy.run_path(sys.argv[0], run_name="__main__")
    sys.exit()


def _refused(server: socket.socket, address: str) -> bool:
    """Connect; whether nobody listens."""
    try:
        server.connect(address)
    except ConnectionRefusedError:
        return True
    return False


def _execute(*words: str) -> NoReturn:
    os.execv(sys.executable, [sys.executable, *words])


def _user(connection: socket.socket) -> int:
    """The user at the other end, who could be anybody on this machine."""
    size = struct.calcsize("3i")
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return int(user)


def _send(connection: socket.socket, request: Mapping[str, Any]) -> None:
    """Send a request with this process's standard streams."""
    text = json.dumps(request).encode()
    socket.send_fds(connection, [len(text).to_bytes(8, "big")], [0, 1, 2])
    connection.sendall(text)


def _received(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    head, files, _, _ = socket.recv_fds(connection, 8, 3)
    with connection.makefile("rb") as rest:
        return json.loads(rest.read(int.from_bytes(head, "big"))), files


def _shared(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith(OF_ONE_WORKER)}


if __name__ == "__main__":
    role, place, modules, *words = sys.argv[1:]
    if role == "serve":
        serve(socket.socket(fileno=int(place)), modules, words)
    else:
        run(place, modules, words)
