"""The model of a run's checkpoint as a Hugging Face folder."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from recipe.evaluation.vllm_servers import last_error
from recipe.records.arms import known_run
from recipe.records.run_directory import RunDirectory


class ExportError(ValueError):
    """The checkpoint cannot be exported; the message addresses the user."""


def checkpoint(run: RunDirectory, step: int | None) -> Path:
    """The actor's folder of a step, by default the last.

    Raises:
        ExportError: there is none; the message lists the available steps.
        RecordsError: this release does not know the version of the run's records.
    """
    if not (run.path / "config.yaml").is_file():
        raise ExportError(f"{run.path} is not a run directory of recipe.train: it has no config.yaml")
    known_run(run.path)
    steps = sorted(int(path.name.removeprefix("global_step_")) for path in run.checkpoints.glob("global_step_*"))
    wanted = run.last_checkpoint if step is None else step
    folder = run.checkpoints / f"global_step_{wanted}" / "actor"
    if not steps:
        raise ExportError(f"{run.path} has no checkpoint; a run writes them with trainer.save_freq")
    if not folder.is_dir():
        available = ", ".join(map(str, steps))
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
