"""Export a checkpoint to a Hugging Face folder: ``python -m recipe.export RUN [--step N] [--out DIR]``.

verl's model merger merges the shards, PEFT merges LoRA into the model that the run began with. Then vLLM and
transformers answer some validation prompts greedily; if their texts differ by more than a near tie of two tokens, the
command fails and prints where.
"""

import recipe.runtime.quiet  # noqa: F401  (before the stack is imported)

import argparse  # isort: skip
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig, ListConfig

from data_prep.schema import DataFileError, read_rows, row_model
from data_prep.sources.source import positive
from recipe.evaluation import ServerError
from recipe.evaluation.exported import ExportError, checkpoint, merge
from recipe.evaluation.same_model import NEAR_TIE, Messages, differences, prepared
from recipe.evaluation.vllm_servers import VLLM_PLATFORMS
from recipe.records.run_directory import RunDirectory
from recipe.records.versions import RecordsError
from recipe.runtime.console import program

REFUSED, FAILED = 2, 1


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
    options.add_argument("--platform", choices=VLLM_PLATFORMS, default="cpu", help="where vLLM runs")
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
