"""The micro suite and its starting model: ``python -m recipe.micro_start [FOLDER [options ...]]``.

Makes the problems, then tokenizer and random weights, then a supervised start. An option ``key=value`` is an override
of recipe.sft, any other one belongs to data_prep.micro. Each part is reused unless its modules, options or inputs have
changed. Only one process at a time works on a folder.
"""

import fcntl
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from data_prep.made_from import ROOT, key, sources

STEPS = 4
"""Steps of scripts/quickstart.sh: these three parts and the training."""
SFT_FILES = ("configs/sft.yaml", "configs/sft_experiment/micro.yaml", "configs/sft_platform/cpu.yaml")


@dataclass(frozen=True)
class StartPart:
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


def parts(folder: Path, options: Sequence[str]) -> list[StartPart]:
    """The parts of a start, in order."""
    model, initial, scratch = folder / "model", folder / "initial_model", folder / "sft"
    train, validation = folder / "sft_train.parquet", folder / "sft_val.parquet"
    overrides = [option for option in options if re.match(r"[\w.+]+=", option)]
    of_data = [option for option in options if option not in overrides]
    return [
        StartPart(
            "micro data: four skills, train, validation and test",
            folder / "train.parquet",
            ("data_prep.micro.__main__",),
            ("data_prep.micro", "--out", str(folder), *of_data),
        ),
        StartPart(
            "micro model: tokenizer and random weights",
            initial,
            ("data_prep.micro.model",),
            ("data_prep.micro.model", "--out", str(initial)),
        ),
        StartPart(
            "supervised start on demonstrations of which a part is wrong (about 5 minutes)",
            model,
            ("recipe.sft", "data_prep.micro.model"),
            (
                "recipe.sft", "sft_experiment=micro", f"model.path={initial}", f"trainer.default_local_dir={scratch}",
                f"data.train_files={train}", f"data.val_files={validation}", *overrides,
            ),
            (train, validation, *(ROOT / name for name in SFT_FILES)),
            scratch,
            lambda: _keep_last_checkpoint(scratch, model),
        ),
    ]  # fmt: skip


def make(number: int, part: StartPart, folder: Path, run: Callable[[Sequence[str]], None]) -> None:
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
    if arguments and arguments[0].startswith("-"):
        wants_help = arguments[0] in ("-h", "--help")
        print(__doc__ if wants_help else f"{arguments[0]}: name a folder before the options", file=sys.stderr)
        return 0 if wants_help else 2
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
