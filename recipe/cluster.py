"""What the studies ask of a Ray cluster that is up.

``python -m recipe.cluster room experiment=NAME key=value ...`` prints how many runs with these words its free GPUs
hold. ``python -m recipe.cluster run COMMAND ...`` runs a command on a node that has a free GPU, in this folder, and
ends with its exit status.
"""

import recipe.runtime.quiet  # noqa: F401  (before the stack is imported)

import os  # isort: skip
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ray

from recipe.preflight import compose_training
from recipe.settings import SettingsError

REFUSED = 2


def room(words: Sequence[str]) -> int:
    """Prints how many such runs fit beside what runs already; SettingsError for words that recipe.train refuses."""
    trainer = compose_training(list(words)).trainer
    _join()
    print(int(ray.available_resources().get("GPU", 0)) // (trainer.nnodes * trainer.n_gpus_per_node))
    return 0


def run(command: Sequence[str]) -> int:
    """Runs a command that needs one GPU, such as an evaluation that starts vLLM, when and where one is free."""
    _join()
    there: Any = ray.remote(num_gpus=1, max_retries=0)(_lines)
    for reference in there.remote(list(command), os.getcwd(), dict(os.environ)):
        told = ray.get(reference)
        if isinstance(told, int):
            return told
        print(told, end="", flush=True)
    raise RuntimeError("the command ended without an exit status")


def _lines(command: list[str], folder: str, environment: dict[str, str]) -> Iterator[str | int]:
    """What a command prints, line by line, then its exit status; with the GPU that Ray gave this process."""
    given = {name: os.environ[name] for name in ("CUDA_VISIBLE_DEVICES",) if name in os.environ}
    process = subprocess.Popen(
        command, cwd=folder, env=environment | given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:  # noqa: UP028 - Ray sends into the generator, which a file cannot take
        yield line
    yield process.wait()


def _join() -> None:
    address = os.environ.get("RAY_ADDRESS", "auto")
    ray.init(address=address, log_to_driver=False, configure_logging=False)


def main(arguments: list[str]) -> int:
    """The command line; returns the exit status."""
    actions: dict[str, Callable[[Sequence[str]], int]] = {"room": room, "run": run}
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
