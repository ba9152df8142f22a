"""The study of a task with a verifier: is the data worth it, GRPO, and the base model against the trained one."""

from pathlib import Path

from data_prep.splits import ROLES
from recipe.runtime.options import TaskOptions
from recipe.studies.steps import MadeWith, Steps, Stopped

# A task's module of data_prep.sources and its preset, where they are not its name and none.
SOURCES = {"countdown": "countdown_tasks"}
PRESETS = {"countdown": "qwen3_4b", "gsm8k": "qwen2_5_3b"}
# What makes the data of a smoke test offline.
SMOKE_SOURCES = {"countdown": "countdown", "gsm8k": "arithmetic"}
SMOKE_MODEL = "data/micro/model"


def task(steps: Steps[TaskOptions], name: str, model: str) -> None:
    """Data, probe, training, export and comparison of the task `name`, an experiment of configs/experiment."""
    steps = steps.with_length(name)
    given = steps.options
    data, out = f"data/{given.folder or name}", f"outputs/{given.folder or name}"
    model = steps.local_model(model)
    source = given.source or SOURCES.get(name, name)
    steps.make_rows(data, f"sources.{source}", "--experiment", name, *given.source_options.split())
    for split in ROLES:
        steps.need(f"{data}/{split}.parquet", f"remove {data}: its data lack the split {split}")
    steps.study = MadeWith(out, {"start": model}, {split: f"{data}/{split}.parquet" for split in ROLES})
    _probe(steps, name, model, f"{data}/train.parquet", f"{out}/probe")

    run = given.name or "study"
    # One machine trains adapters, and has no parallel sizes.
    preset = given.preset or PRESETS.get(name)
    presets = [f"model_preset={preset}"] if preset and steps.on_gpus else []
    steps.grpo(
        name, model, run, *presets, f"adaptation={'full' if steps.on_gpus else 'lora'}",
        f"data.train_files={data}/train.parquet", f"data.val_files={data}/dev.parquet",
    )  # fmt: skip
    test = {f"{name}_test": f"{data}/test.parquet"}
    steps.evaluate(name, model, f"{out}/base", test, "--entropy")
    steps.evaluate(name, f"outputs/{name}/{run}/model", f"{out}/trained", test, "--entropy")
    steps.module("recipe.report", "compare", f"{out}/base", f"{out}/trained")


def _probe(steps: Steps[TaskOptions], name: str, model: str, rows: str, out: str) -> None:
    given = steps.options
    how = " ".join(["--experiment", name, "--max-tokens", given.length, *steps.thinking, given.probe])
    steps.claim(MadeWith(out, settings={"probe": how}))
    if not Path(out, "probe.json").exists():
        steps.serve(
            steps.python, "-m", "recipe.probe", "--model", model, "--platform", steps.serving, "--experiment", name,
            "--data", rows, "--limit", "256", "--samples", "16", "--out", out, "--max-tokens", given.length,
            *steps.thinking, *given.probe.split(),
        )  # fmt: skip


def smoke(steps: Steps[TaskOptions], *names: str) -> None:
    """Both tasks at smoke size with the micro model: 640 generated problems, 4 updates."""
    if unknown := set(names) - set(SMOKE_SOURCES):
        raise Stopped(f"unknown task '{min(unknown)}'; valid ones: {', '.join(SMOKE_SOURCES)}")
    steps.need(SMOKE_MODEL, "bash scripts/micro_start.sh")
    run = steps.options.name or "smoke"
    # A byte is a token, and the micro model reads 512 of them.
    overrides = (
        "data.max_prompt_length=448 data.train_batch_size=16 data.val_max_samples=32 "
        "actor_rollout_ref.actor.ppo_mini_batch_size=16 actor_rollout_ref.rollout.n=4 "
        "actor_rollout_ref.model.lora_rank=8 "
        "trainer.total_training_steps=4 trainer.test_freq=4 trainer.save_freq=4"
    )
    for name in names or SMOKE_SOURCES:
        of_task = steps.changed(
            length="48", source=SMOKE_SOURCES[name], source_options="--limit 640", probe="--limit 16 --samples 4",
            evaluate="--limit 32", train=overrides, name=run, folder=f"{name}_{run}",
        )  # fmt: skip
        task(of_task, name, SMOKE_MODEL)
