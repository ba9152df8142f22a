"""The micro suite and its starting model: ``python -m recipe.micro_start [FOLDER [options ...]]``.

Makes the problems, then tokenizer and random weights, then a supervised start. An option ``key=value`` is an override
of recipe.sft, ``--model FOLDER`` takes a model that was trained earlier in place of the supervised start, any other one
belongs to data_prep.micro. Each part is reused unless its modules, options or inputs have changed
(``data_prep.made_from``); a supervised start that was interrupted resumes from its last checkpoint. Only one process at
a time works on a folder.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from data_prep.made_from import MadeFiles, MadeFilesError, alone
from recipe.runtime import supervised_folder
from recipe.studies.files import MICRO_ROWS, sft_files

STEPS = 4
"""Steps of scripts/quickstart.sh: these three parts and the training."""


@dataclass(frozen=True)
class StartPart:
    """One part of the start.

    scratch: a folder that its command fills, and resumes from after an interruption. finish: called after the command.
    copies: `finish` does all of it.
    """

    title: str
    files: MadeFiles
    scratch: Path | None = None
    finish: Callable[[], None] = lambda: None
    copies: bool = False


def parts(folder: Path, options: Sequence[str]) -> list[StartPart]:
    """The parts of a start, in order."""
    model, initial, scratch = folder / "model", folder / "initial_model", folder / "sft"
    train, validation = folder / "sft_train.parquet", folder / "sft_val.parquet"
    given, options = _given_model(options)
    overrides = [option for option in options if re.match(r"[\w.+]+=", option)]
    of_data = [option for option in options if option not in overrides]
    duration = "" if options else " (about 5 minutes)"
    return [
        StartPart(
            "micro data: four skills, train, validation and test",
            MadeFiles(
                folder, "1", MICRO_ROWS, ("data_prep.micro", "--out", str(folder), *of_data), ("data_prep.micro",)
            ),
        ),
        StartPart(
            "micro model: tokenizer and random weights",
            MadeFiles(
                folder, "2", ("initial_model/**/*",), ("data_prep.micro.model", "--out", str(initial)),
                ("data_prep.micro.model",),
            ),
        ),
        _copied(folder, given) if given else StartPart(
            f"supervised start on demonstrations of which a part is wrong{duration}",
            MadeFiles(
                folder, "3", ("model/**/*",),
                (
                    "recipe.sft", "sft_experiment=micro", f"model.path={initial}",
                    f"trainer.default_local_dir={scratch}", f"data.train_files={train}",
                    f"data.val_files={validation}", *overrides,
                ),
                ("recipe.sft", "data_prep.micro.model"), (train, validation, *sft_files("micro")),
            ),
            scratch,
            lambda: _move_last_model(scratch, model),
        ),
    ]  # fmt: skip


def _given_model(options: Sequence[str]) -> tuple[Path | None, list[str]]:
    """The folder after `--model`, and the other options; MadeFilesError if it has no model."""
    rest = list(options)
    if "--model" not in rest:
        return None, rest
    place = rest.index("--model")
    model = Path(*rest[place + 1 : place + 2])
    del rest[place : place + 2]
    if not (model / "config.json").is_file():
        raise MadeFilesError(f"--model: {model} has no config.json; name the folder of a trained model")
    return model, rest


def _copied(folder: Path, given: Path) -> StartPart:
    """A model that was trained earlier, by any version of the code: its files are all that it depends on."""
    files = tuple(path for path in sorted(given.rglob("*")) if path.is_file())
    model = MadeFiles(folder, "3", ("model/**/*",), (f"copying {given}",), inputs=files)
    return StartPart(
        f"starting model: a copy of {given}", model, copies=True,
        finish=lambda: _copy(given, folder / "model"),
    )  # fmt: skip


def _copy(given: Path, model: Path) -> None:
    shutil.copytree(given, model, dirs_exist_ok=True)


def make(part: StartPart, run: Callable[[Sequence[str]], None]) -> None:
    """Make a part unless it exists, made from the same inputs; `run` gets the arguments after ``python -m``.

    Raises:
        MadeFilesError: the files in its place are not as its command left them.
    """
    title = f"[{part.files.name}/{STEPS}] {part.title}"
    interrupted = part.files.is_interrupted()

    def begin() -> None:
        print(title, flush=True)
        if part.scratch is not None and not interrupted:
            shutil.rmtree(part.scratch, ignore_errors=True)
        if not part.copies:
            run(part.files.command)
        part.finish()

    if not part.files.make(begin):
        print(f"{title}: using {part.files.folder} of an earlier run", flush=True)


def _move_last_model(folder: Path, model: Path) -> None:
    """Copy the last checkpoint's weights to `model` and remove the checkpoints."""
    if (last := supervised_folder.last_model(folder)) is not None:  # else nothing is made, and the caller reports it
        shutil.copytree(last, model, dirs_exist_ok=True)
    (folder / supervised_folder.FINISHED).unlink(missing_ok=True)  # a model that is half removed is none
    for step in supervised_folder.step_folders(folder):
        shutil.rmtree(step)


def _run(command: Sequence[str]) -> None:
    subprocess.run([sys.executable, "-m", *command], check=True)


def main(arguments: Sequence[str], run: Callable[[Sequence[str]], None] = _run) -> int:
    """Run the command line; returns the exit status."""
    if arguments and arguments[0].startswith("-"):
        wants_help = arguments[0] in ("-h", "--help")
        print(__doc__ if wants_help else f"{arguments[0]}: name a folder before the options", file=sys.stderr)
        return 0 if wants_help else 2
    folder = Path(arguments[0] if arguments else "data/micro")
    with alone(folder, folder / ".lock"):
        try:
            for part in parts(folder, arguments[1:]):
                make(part, run)
        except MadeFilesError as error:
            print(f"recipe.micro_start: {error}", file=sys.stderr)
            return 2
        except subprocess.CalledProcessError as error:
            return error.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
