"""Free capacity and commands on a running Ray cluster, for the study launchers.

``python -m recipe.cluster room experiment=NAME key=value ...`` prints how many runs with these overrides fit on its
free GPUs. ``python -m recipe.cluster run COMMAND ...`` runs a command on a node with a free GPU, in this folder, and
exits with its status; ``run --all-gpus COMMAND ...`` gives it as many GPUs as are free on one node.
"""

import recipe.runtime.quiet  # noqa: F401  (before the stack is imported)

import os  # isort: skip
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import ray
from ray._private.state import available_resources_per_node

from recipe.preflight import compose_training
from recipe.runtime.ray_session import places
from recipe.settings import SettingsError

REFUSED = 2
ALL_GPUS = "--all-gpus"


def room(overrides: Sequence[str]) -> int:
    """Print how many such runs fit on the free GPUs; SettingsError for overrides that recipe.train refuses."""
    trainer = compose_training(list(overrides)).trainer
    _join()
    print(places(available_resources_per_node().values(), trainer.n_gpus_per_node) // trainer.nnodes)
    return 0


def run(command: Sequence[str]) -> int:
    """Run a command that starts vLLM with one GPU, once a node has one free, or with all that are free on one node."""
    _join()
    gpus = 1
    if command[0] == ALL_GPUS:
        command, gpus = command[1:], most_free(available_resources_per_node())
    remote_lines: Any = ray.remote(num_gpus=gpus, max_retries=0)(_lines)
    for reference in remote_lines.remote(list(command), os.getcwd(), dict(os.environ)):
        line_or_status = ray.get(reference)
        if isinstance(line_or_status, int):
            return line_or_status
        print(line_or_status, end="", flush=True)
    raise RuntimeError("the command ended without an exit status")


def most_free(nodes: Mapping[str, Mapping[str, float]]) -> int:
    """The largest number of GPUs that are free on one node, at least 1; `nodes`: each node's free resources."""
    return max([1, *(int(resources.get("GPU", 0)) for resources in nodes.values())])


def _lines(command: list[str], folder: str, environment: dict[str, str]) -> Iterator[str | int]:
    """A command's output, line by line, then its exit status; it uses the GPUs that Ray assigned to this process."""
    assigned = {name: os.environ[name] for name in ("CUDA_VISIBLE_DEVICES",) if name in os.environ}
    process = subprocess.Popen(
        command, cwd=folder, env=environment | assigned, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:  # noqa: UP028 - Ray calls send() on the generator, which a file does not support
        yield line
    yield process.wait()


def _join() -> None:
    address = os.environ.get("RAY_ADDRESS", "auto")
    ray.init(address=address, log_to_driver=False, configure_logging=False)


def main(arguments: list[str]) -> int:
    """Run the command line; returns the exit status."""
    actions: dict[str, Callable[[Sequence[str]], int]] = {"room": room, "run": run}
    if arguments in (["-h"], ["--help"]):
        print(__doc__)
        return 0
    if len(arguments) < 2 or arguments[0] not in actions:
        print(__doc__, file=sys.stderr)
        return REFUSED
    try:
        return actions[arguments[0]](arguments[1:])
    except (SettingsError, ConnectionError, RuntimeError) as error:
        print(f"recipe.cluster: {error}", file=sys.stderr)
        return REFUSED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
