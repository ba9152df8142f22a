"""Supervised training with verl's SFT trainer: ``python -m recipe.sft sft_experiment=NAME key=value ...``.

Demonstrations come from ``data.train_files``, or from the accepted samples of ``verified.evaluations``. Starts itself
under torchrun with ``trainer.n_gpus_per_node`` ranks and shows their progress. ``model.path`` is a folder or a hub
name. Demonstrations over ``data.max_length`` tokens are left out and counted. Writes a Hugging Face folder to
``<trainer.default_local_dir>/global_step_<N>/huggingface``, the ranks' output to ``sft.log``, and with ``report.data``
the evaluations ``before`` and ``after`` and their differences, ``report.json``. Started again, it resumes from the last
checkpoint that has a whole state (``trainer.save_freq``, ``checkpoint.save_contents``).
"""

import recipe.runtime.quiet  # noqa: F401  (before the stack is imported)

import contextlib  # isort: skip
import heapq
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import hydra
from omegaconf import DictConfig, ListConfig, OmegaConf

from data_prep.schema import DataFileError, Demonstration, read_rows, write_rows
from data_prep.splits import split_by_hash
from recipe.capacity.model_shape import UnknownShapeError, shape_of
from recipe.capacity.supervised import supervised_refusals
from recipe.checks.model import ModelError, has_chat_template, left_out_of, model_folder
from recipe.evaluate import evaluate_model
from recipe.evaluation.folder import FolderError, flat
from recipe.evaluation.samples import data_files
from recipe.evaluation.verified import demonstrations, read_judged, read_verified
from recipe.report import main as print_report
from recipe.runtime import TERMINATED, supervised_folder
from recipe.runtime.console import ProgressReporter, SupervisedState
from recipe.runtime.stop_request import end_with_parent, passing_sigterm_on
from recipe.studies.manifest import StudyError, claim
from workers.cpu.processor import cores_note, precision_note, settle_precision, threads_per_rank

REFUSED, FAILED = 2, 1
# Groups of the configuration that affect the result.
GROUPS = ("data", "model", "optim", "verified")
SECONDS_BETWEEN_LINES = 10.0
LAUNCHER = "SKILLCREDIT_SFT_LAUNCHER"
"""Environment variable of ranks: the process that started their torchrun."""


def launch(config: DictConfig) -> int:
    """Run one process per rank under torchrun, show their progress, and return the exit status."""
    folder = Path(config.trainer.default_local_dir)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        model = model_folder(config.model.path)
        if config.trainer.get("device") == "cpu" and (wrong := left_out_of(model, config.model)):
            raise ModelError("\n".join(f"{what} of {model}: {fix}" for what, _, fix in wrong))
        _require_chat_template(model)
        claim(folder, {"start": str(model)}, _sources(config), _settings(config))
        files = demonstration_files(config, model, folder)
        require_room(config, model, files["train"])
    except (FolderError, DataFileError, ModelError, StudyError, RoomError) as error:
        print(f"refused before training: {error}", file=sys.stderr)
        return REFUSED
    if config.trainer.get("device") == "cpu":
        print(precision_note(config.precision, "precision"), cores_note(config.trainer.n_gpus_per_node), sep="\n")
    overrides = [f"model.path={model}", *(f"data.{split}_files=[{','.join(found)}]" for split, found in files.items())]
    status = (
        report(config, model, folder / "before")
        or train_once(config, folder, overrides)
        or report(config, trained_model(folder), folder / "after")
    )
    if status == 0 and config.report.data:
        return print_report(
            ["compare", str(folder / "before"), str(folder / "after"), "--out", str(folder / "report.json")]
        )
    return status


def _require_chat_template(model: Path) -> None:
    """Raise ModelError for a tokenizer that cannot write a chat; from its files, since to load it takes seconds."""
    if (model / "tokenizer_config.json").exists() and not has_chat_template(model):
        raise ModelError(f"the tokenizer in {model} has no chat template: take an instruct version of the model")


def _sources(config: DictConfig) -> dict[str, Path]:
    """The files that affect the result, by name."""
    files = {f"report_{name}": path for name, path in data_files(config.report.data).items()}
    for number, folder in enumerate(config.verified.evaluations or []):
        files[f"evaluation{number}"] = Path(folder) / "samples.jsonl"
    for split in ("train", "val"):
        if not config.verified.evaluations and config.data.get(f"{split}_files"):
            named = enumerate(_listed(config.data[f"{split}_files"]))
            files |= {f"{split}{number}": Path(path).expanduser() for number, path in named}
    return files


def _settings(config: DictConfig) -> dict[str, str]:
    """The settings that affect the result, by name, without locations of files."""
    groups = {name: OmegaConf.to_container(config[name], resolve=True) for name in GROUPS if name in config}
    trainer = {key: value for key, value in config.trainer.items() if str(key).startswith("total_")}
    locations = ("data.train_files", "data.val_files", "model.path", "verified.evaluations")
    settings = flat(groups | {"trainer": trainer})
    return {name: str(value) for name, value in settings.items() if name not in locations}


def demonstration_files(config: DictConfig, model: Path, folder: Path) -> dict[str, list[str]]:
    """The training and validation files, without demonstrations that are too long.

    A file with such demonstrations is replaced by a copy without them in `folder`.

    Raises:
        FolderError, DataFileError: there are no demonstrations, or some do not fit the schema.
    """
    verified = verified_files(config, folder / "verified")
    named = {split: config.data.get(f"{split}_files") for split in ("train", "val")}
    named = {split: _listed(files) for split, files in (named | verified).items() if files}
    return {
        split: [
            _fitting(Path(path), config, model, folder / "fitting" / f"{split}_{number}.parquet")
            for number, path in enumerate(paths)
        ]
        for split, paths in named.items()
    }


class RoomError(ValueError):
    """This machine lacks memory or disk for the training; the message has the arithmetic."""


def require_room(config: DictConfig, model: Path, files: Sequence[str]) -> None:
    """On a CPU, raise RoomError unless memory and disk suffice: the system would end the training minutes later."""
    if config.trainer.get("device") != "cpu":
        return
    try:
        shape = shape_of(str(model))
    except UnknownShapeError:
        return
    if refusals := supervised_refusals(config, shape, longest_micro_batch(config, model, files)):
        raise RoomError("\n".join(refusals))


CANDIDATES = 16
"""How many demonstrations, those with the most bytes, are tokenized for each place in a micro-batch."""


def longest_micro_batch(config: DictConfig, model: Path, files: Sequence[str]) -> int:
    """Tokens of the micro-batch of the longest demonstrations, of one rank, among those with the most bytes."""
    if config.data.use_dynamic_bsz:
        return int(config.data.max_token_len_per_gpu)
    from verl.utils import hf_tokenizer

    tokenizer, places = hf_tokenizer(str(model)), int(config.data.micro_batch_size_per_gpu)
    rows = (row for path in files for row in read_rows(Path(path), Demonstration))
    chats = [
        [turn.model_dump() for turn in row.messages] for row in heapq.nlargest(CANDIDATES * places, rows, key=_bytes)
    ]
    texts = [tokenizer.apply_chat_template(chat, tokenize=False) for chat in chats]
    lengths = map(len, tokenizer(texts, add_special_tokens=False)["input_ids"])
    return sum(heapq.nlargest(places, lengths))


def _bytes(row: Demonstration) -> int:
    return sum(len(message.content.encode()) for message in row.messages)


def _fitting(path: Path, config: DictConfig, model: Path, out: Path) -> str:
    rows = read_rows(path, Demonstration)
    long = too_long(path, rows, config, model)
    if not long:
        return str(path)
    left_out = (
        f"{len(long)} of {len(rows)} demonstrations in {path} exceed data.max_length={config.data.max_length} tokens"
    )
    if len(long) == len(rows):
        raise DataFileError(f"{left_out}, so none is left; raise data.max_length")
    print(f"{left_out} and are left out")
    write_rows(out, (row for number, row in enumerate(rows) if number not in long))
    return str(out)


def too_long(path: Path, rows: Sequence[Demonstration], config: DictConfig, model: Path) -> set[int]:
    """Row numbers of the demonstrations over ``data.max_length`` tokens, on which verl's own data set would raise.

    A token is at least one byte and a chat template adds few tokens, so texts of at most half that many bytes are not
    tokenized.
    """
    limit = int(config.data.max_length)
    doubtful = [number for number, row in enumerate(rows) if _bytes(row) > limit // 2]
    if not doubtful:
        return set()
    from verl.utils import hf_tokenizer
    from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset

    unlimited = OmegaConf.merge(config.data, {"max_length": sys.maxsize, "pad_mode": "no_padding"})
    assert isinstance(unlimited, DictConfig)
    with contextlib.redirect_stdout(sys.stderr):
        tokens = MultiTurnSFTDataset([str(path)], hf_tokenizer(str(model)), unlimited)
    return {number for number in doubtful if len(tokens[number]["input_ids"]) > limit}


def _listed(files: str | ListConfig) -> list[str]:
    return [files] if isinstance(files, str) else list(files)


def verified_files(config: DictConfig, folder: Path) -> dict[str, str]:
    """Write the demonstrations of `verified.evaluations`; returns their files by split, none without evaluations.

    All answers to a problem go to the same split. `run_info.json` in the folder records how they were judged. Raises
    FolderError or DataFileError.
    """
    if not config.verified.evaluations:
        return {}
    evaluations = [Path(path) for path in config.verified.evaluations]
    judged = read_judged(evaluations)
    solved, reserved = read_verified(evaluations)
    held_out = int(config.verified.held_out_percent)
    rows: dict[str, list[Demonstration]] = {"train": [], "val": []}
    for row in demonstrations(solved, config.verified.per_problem):
        rows[split_by_hash(row.extra_info.id, {"val": held_out, "train": 100 - held_out})].append(row)
    # verl needs a validation file, but with very few problems the split may leave it empty.
    rows["val"] = rows["val"] or rows["train"][:1]
    count = sum(write_rows(folder / f"{split}.parquet", found) for split, found in rows.items())
    judged.write(folder)
    left_out = f"; {reserved} problems may not be trained on" if reserved else ""
    print(f"{count} accepted answers to {len(solved)} problems{left_out}: {folder}")
    return {split: str(folder / f"{split}.parquet") for split in rows}


def report(config: DictConfig, model: str | Path, out: Path) -> int:
    """Evaluate a model if a report is configured; returns the exit status."""
    if not config.report.data:
        return 0
    options = shlex.split(config.report.options)
    if config.verified.evaluations:
        options = read_judged([Path(path) for path in config.verified.evaluations]).options(options)
    options = ["--sampling", config.report.sampling, *options]
    platform = "cpu" if config.trainer.device == "cpu" else "gpu"
    return evaluate_model(model, config.report.data, out, "--platform", platform, *options)


def trained_model(folder: Path) -> Path:
    """The Hugging Face folder of the last checkpoint."""
    model = supervised_folder.last_model(folder)
    assert model is not None, "train_once has seen it"
    return model


def train_once(config: DictConfig, folder: Path, overrides: Sequence[str]) -> int:
    """Train, from the last whole checkpoint if there is one, unless it was done before; returns the exit status."""
    if supervised_folder.is_finished(folder):
        print(f"trained before; model in {folder} (to train again, remove it)")
        return 0
    checkpoint = supervised_folder.resumable(folder, config.checkpoint.save_contents)
    supervised_folder.begin(folder, checkpoint)
    step = int(checkpoint.name.rpartition("_")[2]) if checkpoint else 0
    if not step or step < (config.trainer.total_training_steps or sys.maxsize):
        if checkpoint:
            print(f"resuming from step {step}, the last checkpoint in {folder}")
            overrides = [*overrides, "trainer.resume_mode=resume_path", f"trainer.resume_from_path={checkpoint}"]
        if status := train_under_torchrun(config, folder, overrides):
            return status
    if not supervised_folder.finish(folder):
        print(f"{folder} has no Hugging Face folder: add hf_model to checkpoint.save_contents", file=sys.stderr)
        return FAILED
    return 0


def train_under_torchrun(config: DictConfig, folder: Path, overrides: Sequence[str]) -> int:
    """Train, with progress on the console; returns the exit status."""
    metrics, log = folder / supervised_folder.METRICS, folder / "sft.log"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc_per_node={config.trainer.n_gpus_per_node}", "-m", "recipe.sft", *sys.argv[1:], *overrides]
    state = SupervisedState(config.trainer.total_training_steps or 0)
    with open(log, "w") as output, ProgressReporter(metrics, state, SECONDS_BETWEEN_LINES):
        training = subprocess.Popen(
            command, stdout=output, stderr=output, env=_environment(config, metrics), preexec_fn=end_with_parent
        )
        with passing_sigterm_on(training) as asked:
            status = training.wait()
    if asked:
        print("the supervised training was stopped; the same command resumes it", file=sys.stderr)
        return TERMINATED
    if status:
        tail = [line for line in log.read_text().splitlines() if "Error" in line][-3:]
        print("\n".join([*tail, f"the supervised training failed; full output: {log}"]), file=sys.stderr)
        return FAILED
    if state.loss is not None:  # None: no step was left
        print(f"loss {state.loss:.3f} after {state.step} steps; model in {folder}")
    return 0


def _environment(config: DictConfig, metrics: Path) -> dict[str, str]:
    variables = os.environ | {"VERL_FILE_LOGGER_PATH": str(metrics), LAUNCHER: str(os.getpid())}
    if config.trainer.device == "cpu":
        variables["VERL_PLATFORM"] = "cpu"
        variables.setdefault("GLOO_SOCKET_IFNAME", "lo")
        variables.setdefault("OMP_NUM_THREADS", str(threads_per_rank(config.trainer.n_gpus_per_node)))
    return variables


def end_with_launcher() -> None:
    """End a rank with torchrun, or at once if the command that started both has ended; else do nothing.

    Ranks that wait for each other would outlive it by half an hour. Of a torchrun by hand, nothing is known.
    """
    if launcher := os.environ.get(LAUNCHER):
        end_with_parent()
        if not Path("/proc", launcher).exists():
            sys.exit(TERMINATED)


def train(config: DictConfig) -> None:
    """Run one rank of verl's SFT trainer."""
    import torch
    from verl.trainer.sft_trainer import SFTTrainer
    from verl.utils.distributed import initialize_global_process_group

    from workers.cpu.verl_platform import is_cpu_platform
    from workers.engines import prepare_worker_process

    if is_cpu_platform():
        prepare_worker_process()
    else:
        initialize_global_process_group()
    trainer = SFTTrainer(config=config)
    if trainer.resume_global_step % trainer.steps_per_epoch == 0:
        # verl saves the loader's state before the epoch's iteration has ended: it would resume with an empty epoch.
        trainer.train_dataloader.next_iter_state = None
    trainer.fit()
    torch.distributed.destroy_process_group()


@hydra.main(version_base=None, config_path="pkg://configs", config_name="sft")
def main(config: DictConfig) -> None:
    end_with_launcher()
    settle_precision(config, "precision")
    if "LOCAL_RANK" in os.environ:
        train(config)
    else:
        sys.exit(launch(config))


if __name__ == "__main__":
    main()
