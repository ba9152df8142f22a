"""The micro suite and its starting model: ``python -m recipe.micro_start [FOLDER [options of data_prep.micro ...]]``.

Makes the problems, then tokenizer and random weights, then a supervised start. Each part is reused unless its modules,
options or inputs have changed. Only one process at a time works on a folder.

The modules of a part are its command's and all that these import, found by parsing, not by execution. A string that
names a module of the project counts as an import: the registry imports verifiers that way, and the sandbox's client
starts its server that way.
"""

import ast
import fcntl
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

STEPS = 4
"""Steps of scripts/quickstart.sh: these three parts and the training."""
SFT_FILES = ("configs/sft.yaml", "configs/sft_experiment/micro.yaml", "configs/sft_platform/cpu.yaml")


@dataclass(frozen=True)
class Part:
    """One part of the start: `command` makes `result` from the sources of `modules` and from `inputs`.

    scratch: a folder that `command` fills; it must not exist before. finish: called after `command`.
    """

    title: str
    result: Path
    modules: tuple[str, ...]
    command: tuple[str, ...]
    inputs: tuple[Path, ...] = ()
    scratch: Path | None = None
    finish: Callable[[], None] = lambda: None


def sources(modules: Iterable[str], root: Path = ROOT) -> list[Path]:
    """The files of these modules and of all modules below `root` that they import, directly or indirectly; sorted.

    Raises ValueError for an unknown module.
    """
    waiting, found = list(modules), set[Path]()
    for module in waiting:
        if _file(module, root) is None:
            raise ValueError(f"{root} has no module {module}")
    while waiting:
        name = waiting.pop()
        path = _file(name, root)
        if path is None or path in found:
            continue
        found.add(path)
        # Importing a module also imports its packages.
        waiting.extend(name.rpartition(".")[:1])
        waiting.extend(_imported(ast.parse(path.read_bytes())))
    return sorted(found)


def key(command: Sequence[str], files: Iterable[Path], root: Path = ROOT) -> str:
    """A digest of a command's arguments and of the names and contents of the files that its result depends on."""
    digest = hashlib.sha256("\0".join(command).encode())
    for path in sorted(files):
        name = path.relative_to(root) if path.is_relative_to(root) else path.name
        digest.update(f"\0{name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _file(module: str, root: Path) -> Path | None:
    path = root.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if module and file.is_file()), None)


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _is_dotted(node.value):
            yield node.value
            yield f"{node.value}.__main__"  # a package that a subprocess runs


def _is_dotted(text: str) -> bool:
    return "." in text and all(part.isidentifier() for part in text.split("."))


def parts(folder: Path, options: Sequence[str]) -> list[Part]:
    """The parts of a start, in order."""
    model, initial, scratch = folder / "model", folder / "initial_model", folder / "sft"
    train, validation = folder / "sft_train.parquet", folder / "sft_val.parquet"
    return [
        Part(
            "micro data: four skills, train, validation and test",
            folder / "train.parquet",
            ("data_prep.micro.__main__",),
            ("data_prep.micro", "--out", str(folder), *options),
        ),
        Part(
            "micro model: tokenizer and random weights",
            initial,
            ("data_prep.micro.model",),
            ("data_prep.micro.model", "--out", str(initial)),
        ),
        Part(
            "supervised start on demonstrations of which a part is wrong (about 5 minutes)",
            model,
            ("recipe.sft", "data_prep.micro.model"),
            (
                "recipe.sft", "sft_experiment=micro", f"model.path={initial}", f"trainer.default_local_dir={scratch}",
                f"data.train_files={train}", f"data.val_files={validation}",
            ),
            (train, validation, *(ROOT / name for name in SFT_FILES)),
            scratch,
            lambda: _keep_last_checkpoint(scratch, model),
        ),
    ]  # fmt: skip


def make(number: int, part: Part, folder: Path, run: Callable[[Sequence[str]], None]) -> None:
    """Make a part unless it exists, made from the same inputs; `run` gets the arguments after ``python -m``."""
    kept = folder / f".{number}.key"
    wanted = key(part.command, [*sources(part.modules), *part.inputs])
    if part.result.exists() and kept.exists() and kept.read_text().strip() == wanted:
        print(f"[{number}/{STEPS}] {part.title}: using {part.result} of an earlier run", flush=True)
        return
    print(f"[{number}/{STEPS}] {part.title}", flush=True)
    kept.unlink(missing_ok=True)
    _remove(part.result)
    if part.scratch is not None:
        _remove(part.scratch)
    run(part.command)
    part.finish()
    kept.write_text(wanted + "\n")


def _keep_last_checkpoint(folder: Path, model: Path) -> None:
    """Copy the last checkpoint's weights to `model` and remove the checkpoints, which only resuming would need."""
    steps = sorted(folder.glob("global_step_*"), key=lambda path: int(path.name.rpartition("_")[2]))
    shutil.copytree(steps[-1] / "huggingface", model)
    for step in steps:
        shutil.rmtree(step)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _run(command: Sequence[str]) -> None:
    subprocess.run([sys.executable, "-m", *command], check=True)


def main(arguments: Sequence[str], run: Callable[[Sequence[str]], None] = _run) -> int:
    """Run the command line; returns the exit status."""
    folder = Path(arguments[0] if arguments else "data/micro")
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"another process is making {folder}; waiting for it", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            for number, part in enumerate(parts(folder, arguments[1:]), start=1):
                make(number, part, folder, run)
        except subprocess.CalledProcessError as error:
            return error.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
