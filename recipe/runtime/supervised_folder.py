"""The folder of a supervised training: its models, the state that it resumes from, and the mark that it has ended."""

import shutil
from collections.abc import Collection
from pathlib import Path

# verl's name of the file with the number of the last complete checkpoint.
TRACKER = "latest_checkpointed_iteration.txt"
FINISHED = "finished"
METRICS = "metrics.jsonl"
STATE_FILES = ("model_world_size_*.pt", "optim_world_size_*.pt", "extra_state_world_size_*.pt", "data_*.pt")
"""Of a checkpoint: what only the training itself reads."""
STATE = frozenset({"model", "optimizer", "extra"})
"""Contents of a checkpoint from which the training resumes as if it had not stopped."""


def step_folders(folder: Path) -> list[Path]:
    """Folders of the checkpoints, in the order of their steps."""
    return sorted(folder.glob("global_step_*"), key=lambda path: int(path.name.rpartition("_")[2]))


def last_model(folder: Path) -> Path | None:
    """The Hugging Face folder of the last step, if there is one."""
    models = [path / "huggingface" for path in step_folders(folder) if (path / "huggingface").is_dir()]
    return models[-1] if models else None


def resumable(folder: Path, contents: Collection[str]) -> Path | None:
    """The last complete checkpoint, if checkpoints hold a whole state; contents: of a checkpoint."""
    tracker = folder / TRACKER
    if not set(contents) >= STATE or not tracker.is_file():
        return None
    checkpoint = folder / f"global_step_{tracker.read_text().strip()}"
    return checkpoint if checkpoint.is_dir() else None


def begin(folder: Path, checkpoint: Path | None) -> None:
    """Make the folder ready for a start that resumes from `checkpoint`, or from nothing.

    Other checkpoints are removed: verl forgets them. Metrics of the starts before are kept beside those that verl will
    write if this start resumes from it.
    """
    metrics = folder / METRICS
    for each in step_folders(folder):
        if each != checkpoint:
            shutil.rmtree(each)
    if checkpoint is None:
        (folder / TRACKER).unlink(missing_ok=True)
        for each in folder.glob("metrics*.jsonl"):
            each.unlink()
    elif metrics.exists():
        with open(folder / f"metrics.until_{checkpoint.name}.jsonl", "ab") as earlier:
            earlier.write(metrics.read_bytes())
        metrics.unlink()


def is_finished(folder: Path) -> bool:
    """Whether the training has ended well and its model is there."""
    return (folder / FINISHED).exists() and last_model(folder) is not None


def finish(folder: Path) -> bool:
    """Mark the training as ended; returns whether it left a model.

    Earlier checkpoints and the last one's training state are removed: nothing resumes from them.
    """
    model = last_model(folder)
    if model is None:
        return False
    (folder / FINISHED).touch()
    for each in step_folders(folder):
        if each != model.parent:
            shutil.rmtree(each)
    for pattern in STATE_FILES:
        for file in model.parent.glob(pattern):
            file.unlink()
    (folder / TRACKER).unlink(missing_ok=True)
    return True
