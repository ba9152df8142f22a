"""Export a checkpoint to a Hugging Face folder: ``python -m recipe.export RUN [--step N] [--out DIR]``.

verl's model merger merges the shards, PEFT merges LoRA into the model that the run began with. Then vLLM and
transformers answer some validation prompts greedily; if their texts differ by more than a near tie of two tokens, the
command fails and prints where.
"""

import recipe.runtime.quiet  # noqa: F401  (before the stack is imported)

import argparse  # isort: skip
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig, ListConfig

from data_prep.schema import DataFileError, read_rows, row_model
from data_prep.sources.source import positive
from recipe.evaluation.agreement import NEAR_TIE, Messages, differences, prepared
from recipe.evaluation.servers import ServerError
from recipe.evaluation.vllm_servers import last_error
from recipe.records.run_directory import RunDirectory
from recipe.records.versions import RecordsError
from recipe.runtime.command_line import program

REFUSED, FAILED = 2, 1


class ExportError(ValueError):
    """The checkpoint cannot be exported; the message addresses the user."""


def checkpoint(run: RunDirectory, step: int | None) -> Path:
    """The actor's folder of a step, by default the last; ExportError lists the available steps."""
    if not (run.path / "config.yaml").is_file():
        raise ExportError(f"{run.path} is not a run directory of recipe.train: it has no config.yaml")
    steps = sorted(int(path.name.removeprefix("global_step_")) for path in run.checkpoints.glob("global_step_*"))
    wanted = run.last_checkpoint if step is None else step
    folder = run.checkpoints / f"global_step_{wanted}" / "actor"
    if not folder.is_dir():
        available = ", ".join(map(str, steps)) or "none"
        raise ExportError(f"{run.path} has no checkpoint of step {wanted}; available steps: {available}")
    return folder


def merge(actor: Path, base: str, out: Path) -> None:
    """Write the model of a checkpoint to `out`, which appears only once it is complete.

    base: the model that training began with. LoRA is merged into its original weights, because verl's merger rounds
    all weights to bfloat16. Raises ExportError if the merger fails, OSError if the disk is full.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as folder:
        merged, log = Path(folder) / "merged", Path(folder) / "log"
        command = [sys.executable, "-m", "verl.model_merger", "merge", "--backend", "fsdp"]
        command += ["--local_dir", str(actor), "--target_dir", str(merged)]
        with open(log, "w") as output:
            if subprocess.run(command, stdout=output, stderr=output).returncode:
                raise ExportError(f"verl's model merger failed on {actor}: {last_error(log)}")
        if (merged / "lora_adapter").is_dir():
            merged = merge_adapter(base, merged / "lora_adapter", Path(folder) / "with_adapter")
        shutil.move(merged, out)


def merge_adapter(base: str, adapter: Path, out: Path) -> Path:
    """Merge a LoRA adapter into the base model; keeps the base's dtype and tokenizer. Returns `out`."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base, dtype="auto"), adapter)
    model.merge_and_unload().save_pretrained(out)
    AutoTokenizer.from_pretrained(base).save_pretrained(out)
    return out


def validation_prompts(config: DictConfig, count: int) -> list[Messages]:
    """The first prompts of the run's validation files; DataFileError if they are missing."""
    files, model = config.data.val_files, row_model(config.skills.by, config.skills.column)
    paths = files if isinstance(files, ListConfig) else [files]
    rows = [row for path in paths for row in read_rows(Path(path), model)]
    return [[message.model_dump() for message in row.prompt] for row in rows[:count]]


def compare(out: Path, prompts: Sequence[Messages], max_tokens: int, platform: str, options: Sequence[str]) -> None:
    """Print how vLLM's greedy texts compare with transformers'; ServerError if they differ by more than a near tie."""
    asked = prepared(out, prompts, max_tokens)
    if not asked:
        raise ServerError(f"no validation prompt fits into the context of {out}; --prompts 0 leaves out the comparison")
    differing = differences(out, asked, platform, options)
    if wrong := [each for each in differing if not each.is_near_tie]:
        raise ServerError(
            f"vLLM and transformers give different greedy texts for {out}, by more than a near tie ({NEAR_TIE} nats): "
            f"one of them does not compute this model. {wrong[0]}"
        )
    equal = f"{len(asked) - len(differing)} of {len(asked)}" if differing else str(len(asked))
    print(f"vLLM and transformers give the same greedy text for {equal} validation prompts")
    for each in differing:
        print(f"a near tie, no error: {each}")


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    options = argparse.ArgumentParser(prog=program("export"), description=__doc__)
    options.add_argument("run", type=Path, help="run directory of recipe.train")
    options.add_argument("--step", type=positive, help="of the checkpoint (default: the last)")
    options.add_argument("--out", type=Path, help="folder of the model (default: RUN/export/global_step_N)")
    options.add_argument("--prompts", type=int, default=8, help="validation prompts to compare on; 0: no comparison")
    options.add_argument("--max-tokens", type=positive, default=64, help="per answer in the comparison")
    options.add_argument("--platform", choices=("cpu", "gpu"), default="cpu", help="where vLLM runs")
    options.add_argument(
        "--vllm", default="", metavar="OPTIONS", help="more options of `vllm serve`, as one quoted string"
    )
    return options.parse_args(arguments)


def export(options: argparse.Namespace) -> Path:
    """Merge and compare; the model's folder appears once both are done.

    Raises ExportError, DataFileError, ServerError or OSError with a message for the user.
    """
    run = RunDirectory(options.run)
    actor = checkpoint(run, options.step)
    out = options.out or run.path / "export" / actor.parent.name
    if out.exists():
        raise ExportError(f"{out} exists already; remove it, or choose another --out")
    config = run.read_config()
    prompts = validation_prompts(config, options.prompts)
    unchecked = out.with_name(f"{out.name}.unchecked")
    shutil.rmtree(unchecked, ignore_errors=True)  # of an earlier try
    merge(actor, config.actor_rollout_ref.model.path, unchecked)
    if prompts:
        print(f"merged: {unchecked}")
        compare(unchecked, prompts, options.max_tokens, options.platform, shlex.split(options.vllm))
    unchecked.rename(out)
    print(f"model: {out}")
    return out


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    try:
        export(_arguments(arguments))
    except (ExportError, DataFileError, RecordsError) as error:
        print(f"recipe.export: {error}", file=sys.stderr)
        return REFUSED
    except (ServerError, OSError) as error:
        print(f"recipe.export: {error}", file=sys.stderr)
        return FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
