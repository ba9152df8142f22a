"""Preference training: ``python -m recipe.dpo --model MODEL --evaluations DIR ... --out DIR``.

Pairs are verified samples of the same problem (``recipe.evaluate --sampling eval@k`` on a training file) whose pass
ratios differ by at least ``--margin``, with balanced lengths. All evaluations must use the same judge settings, which
are kept in ``DIR/run_info.json``. TRL trains LoRA in a separate environment (``bash scripts/setup.sh dpo``), one
process per GPU. The merged model is in ``DIR/model``, the reward accuracy in ``DIR/training.json``. ``--report``
evaluates the model before and after, with the judge settings of the pairs; ``DIR/report.json`` has the differences.
"""

import recipe.runtime.quiet  # noqa: F401  (before the stack is imported)

import argparse  # isort: skip
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from data_prep.json_lines import write_lines
from data_prep.schema import DataFileError
from data_prep.sources.source import positive
from data_prep.splits import split_by_hash
from recipe.checks.model import ModelError, model_folder
from recipe.evaluate import evaluate_model
from recipe.evaluation.folder import FolderError
from recipe.evaluation.samples import data_files
from recipe.evaluation.verified import JudgedSamples, PreferencePair, pairs, read_judged, read_verified
from recipe.evaluation.vllm_servers import VLLM_PLATFORMS, last_error
from recipe.records.run_directory import read_jsonl, write_atomically
from recipe.report import main as print_report
from recipe.runtime.console import program
from recipe.studies.manifest import StudyError, claim
from recipe.training.preference import DpoSettings

REFUSED, FAILED = 2, 1
HELD_OUT_PERCENT = 10
PROJECT = Path(__file__).resolve().parent.parent
PYTHON = PROJECT / ".venv-dpo" / "bin" / "python"


class DpoError(ValueError):
    """The request is invalid; the message addresses the user."""


def line(pair: PreferencePair) -> dict[str, Any]:
    """A pair in TRL's format."""
    answers = {"chosen": pair.chosen.answer.text, "rejected": pair.rejected.answer.text}
    return {"prompt": list(pair.problem.messages)} | {
        name: [{"role": "assistant", "content": text}] for name, text in answers.items()
    }


def write_pairs(chosen: Sequence[PreferencePair], out: Path) -> dict[str, Path]:
    """Write `train_pairs.jsonl` and `val_pairs.jsonl`, which share no problem; DpoError if one would be empty."""
    shares = {"val": HELD_OUT_PERCENT, "train": 100 - HELD_OUT_PERCENT}
    files = {split: out / f"{split}_pairs.jsonl" for split in shares}
    for split, path in files.items():
        lines = [line(pair) for pair in chosen if split_by_hash(pair.problem.id, shares) == split]
        if not lines:
            raise DpoError(
                f"{len(chosen)} pairs are too few to hold some out: use more samples or problems, or a smaller --margin"
            )
        write_lines(path, lines)
    return files


def reward_accuracy(log: Iterable[dict[str, Any]]) -> float:
    """Share of held-out pairs whose better answer the trained model's implicit reward prefers.

    Undefined before training: model and reference are the same, so all rewards are zero.
    """
    accuracies: list[float] = [entry["eval_rewards/accuracies"] for entry in log if "eval_rewards/accuracies" in entry]
    return accuracies[-1]


def command(settings: DpoSettings, file: Path) -> list[str]:
    """The command that starts TRL: on GPUs with torchrun, one process per GPU, even for a single GPU.

    In a single process that sees several GPUs, transformers would wrap the model in nn.DataParallel and multiply the
    batch size by their number.
    """
    module = ["-m", "recipe.training.preference", str(file.absolute())]
    if settings.device == "cpu":
        return [str(PYTHON), *module]
    ranks = f"--nproc_per_node={settings.ranks}"
    return [str(PYTHON), "-m", "torch.distributed.run", "--standalone", ranks, *module]


def train(settings: DpoSettings, out: Path) -> int:
    """Run TRL in its own environment; returns the exit status."""
    write_atomically(out / "settings.json", json.dumps(asdict(settings), indent=2) + "\n")
    log = out / "dpo.log"
    with open(log, "w") as output:
        status = subprocess.run(
            command(settings, out / "settings.json"),
            stdout=output,
            stderr=output,
            cwd=PROJECT,
            env=os.environ | {"TOKENIZERS_PARALLELISM": "false"},
        ).returncode
    if status:
        print(f"the preference training failed: {last_error(log)}; full output: {log}", file=sys.stderr)
        return FAILED
    accuracy = reward_accuracy(read_jsonl(Path(settings.log)))
    write_atomically(out / "training.json", json.dumps({"reward_accuracy": accuracy}) + "\n")
    print(f"reward accuracy on held-out pairs: {accuracy:.1%}; model in {settings.out}")
    return 0


def prepare(options: argparse.Namespace) -> tuple[DpoSettings, JudgedSamples]:
    """Write the pairs and return the settings and the pairs' judge settings, before anything expensive starts.

    Raises:
        DpoError, ModelError, StudyError, FolderError, DataFileError: with a message for the user.
    """
    if not PYTHON.exists():
        raise DpoError(f"no {PYTHON}: TRL needs a separate environment; create it with bash scripts/setup.sh dpo")
    model = model_folder(options.model)
    if gone := [str(path) for path in data_files(options.report).values() if not path.is_file()]:
        raise DpoError(f"--report: no such file: {', '.join(gone)}")
    if (options.out / "model").exists():
        raise DpoError(f"{options.out / 'model'} exists already; choose another --out")
    ranks = 1 if options.platform == "cpu" else options.ranks or gpus()
    if options.batch_size % (ranks * options.micro_batch_size):
        raise DpoError(
            f"--batch-size {options.batch_size} is not a multiple of {ranks} processes x --micro-batch-size "
            f"{options.micro_batch_size}"
        )
    judged = read_judged(options.evaluations)
    solved, reserved = read_verified(options.evaluations)
    files_of = {f"evaluation{number}": path / "samples.jsonl" for number, path in enumerate(options.evaluations)}
    claim(options.out, {"start": str(model)}, files_of)
    chosen = pairs(solved, min_margin=options.margin, per_problem=options.per_problem, seed=options.seed)
    files = write_pairs(chosen, options.out)
    judged.write(options.out)
    surplus = sum(pair.surplus for pair in chosen) / len(chosen)
    print(f"{len(chosen)} pairs of {len({pair.problem.key for pair in chosen})} problems; ", end="")
    print(f"better answers are {surplus:+.1f} tokens longer on average; {reserved} problems may not be trained on")
    values = {field.name: getattr(options, field.name) for field in fields(DpoSettings) if hasattr(options, field.name)}
    paths = {"train_pairs": files["train"], "val_pairs": files["val"], "model": model}
    paths |= {"out": options.out / "model", "log": options.out / "metrics.jsonl"}
    values |= {name: str(path.absolute()) for name, path in paths.items()}
    values |= {"device": "cpu" if options.platform == "cpu" else "cuda", "ranks": ranks}
    return DpoSettings(**values), judged


def gpus() -> int:
    """Number of GPUs of this machine, at least 1."""
    import torch

    return max(1, torch.cuda.device_count())


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    options = argparse.ArgumentParser(prog=program("dpo"), description=__doc__)
    options.add_argument("--model", required=True, help="a Hugging Face folder or a hub name (owner/model)")
    options.add_argument("--evaluations", type=Path, nargs="+", required=True, help="folders of recipe.evaluate")
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--platform", choices=VLLM_PLATFORMS, default="cpu")
    options.add_argument("--ranks", type=positive, help="processes, one per GPU (default: all GPUs of the machine)")
    options.add_argument(
        "--margin", type=float, default=0.5, help="minimal difference of pass ratios in a pair (default 0.5)"
    )
    options.add_argument("--per-problem", type=positive, default=2, help="pairs per problem (default 2)")
    options.add_argument("--report", nargs="+", default=[], metavar="FILE", help="rows to evaluate on before and after")
    options.add_argument(
        "--report-options", default="", metavar="OPTIONS", help="options of recipe.evaluate, as one quoted string"
    )
    for field in fields(DpoSettings):
        if field.name in ("model", "train_pairs", "val_pairs", "out", "log", "device", "ranks"):
            continue
        name = f"--{field.name.replace('_', '-')}"
        if field.type is bool:
            options.add_argument(name, action="store_true")
        else:
            default = field.default
            options.add_argument(name, type=type(default), default=default, help=f"(default {default})")
    return options.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = _arguments(arguments)
    try:
        settings, judged = prepare(options)
    except (DpoError, ModelError, StudyError, FolderError, DataFileError) as error:
        print(f"refused before training: {error}", file=sys.stderr)
        return REFUSED
    report = ("--platform", options.platform, *judged.options(shlex.split(options.report_options)))
    folders = {name: options.out / name for name in ("before", "after")}
    if options.report and (status := evaluate_model(settings.model, options.report, folders["before"], *report)):
        return status
    if status := train(settings, options.out):
        return status
    if not options.report:
        return 0
    return evaluate_model(settings.out, options.report, folders["after"], *report) or print_report(
        ["compare", str(folders["before"]), str(folders["after"]), "--out", str(options.out / "report.json")]
    )


if __name__ == "__main__":
    sys.exit(main())
