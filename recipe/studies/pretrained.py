"""A small pretrained model learns: model, English suite, supervised start, GRPO, and the model before and after."""

from pathlib import Path

from data_prep.pretrained.errors import PretrainedError
from data_prep.pretrained.folders import check_folder
from recipe.studies.steps import MadeWith, Steps, Stopped, last_checkpoint

MODEL = "data/pretrained/smollm2"
DATA = "data/english"
EXPERIMENT = "pretrained"
LEVELS = ("1", "sql=1,2")
MISREAD = "0.4"  # share of the demonstrations that misread their problem: what training can then unlearn
AS_TRAINED = ("--protocol", "eval@k", "--samples", "1")  # temperature 1


def pretrained(steps: Steps, model: str = "") -> None:
    """The whole study; MODEL, a Hugging Face folder or a hub name, takes the place of SmolLM2-135M-Instruct."""
    steps = steps.with_length(EXPERIMENT)
    given = steps.options
    data, out = given.folder or DATA, given.out or "outputs/pretrained"
    model = model or given.model
    if not model:
        model = MODEL
        steps.module("data_prep.pretrained", "--out", model)
    model = steps.local_model(model)
    if not steps.dry:
        _require_instruct_model(model)
    steps.make_rows(data, "english", "--levels", *LEVELS, "--wrong-share", MISREAD)
    files = {split: f"{data}/{split}.parquet" for split in ("train", "val", "test")}
    steps.study = MadeWith(out, {"start": model}, files)
    start = _supervised_start(steps, model, data, f"{out}/start")
    test = {"english_test": files["test"]}
    steps.evaluate(EXPERIMENT, start, f"{out}/before", test, *AS_TRAINED)
    runs = {seed: f"{given.name or 'study'}.s{seed}" for seed in (given.seeds or "0").split()}
    for seed, run in runs.items():
        words = (f"data.train_files={files['train']}", f"data.val_files={files['val']}", f"data.seed={seed}")
        steps.grpo(EXPERIMENT, start, run, *words)
        after = f"{out}/after.s{seed}"
        steps.evaluate(EXPERIMENT, f"outputs/{EXPERIMENT}/{run}/model", after, test, *AS_TRAINED)
        steps.module("recipe.report", "compare", f"{out}/before", after, "--answers", f"{after}/answers.md")
    steps.module("recipe.report", "summary", *(f"outputs/{EXPERIMENT}/{run}" for run in runs.values()))


def _supervised_start(steps: Steps, model: str, data: str, out: str) -> str:
    """Train all weights on demonstrations of the suite; returns the folder of the model."""
    given = steps.options
    demonstrations = {split: f"{data}/{split}.parquet" for split in ("sft_train", "sft_val")}
    steps.claim(MadeWith(out, {"base": model}, demonstrations, {"sft": given.sft}))
    folder = f"{out}/model"
    if not steps.have(folder):
        steps.module(
            "recipe.sft", "sft_experiment=english", f"sft_platform={steps.serving}", f"model.path={model}",
            f"data.train_files={demonstrations['sft_train']}", f"data.val_files={demonstrations['sft_val']}",
            f"trainer.default_local_dir={out}/sft", *given.sft.split(),
        )  # fmt: skip
        # In two steps: a copy that was stopped is not taken for the model.
        steps.run("cp", "-rT", last_checkpoint(f"{out}/sft"), f"{folder}.partial")
        steps.run("mv", "-T", f"{folder}.partial", folder)
    return folder


def _require_instruct_model(model: str) -> None:
    """Stopped unless the folder is a complete model with a chat template: the supervised start takes minutes."""
    try:
        check_folder(Path(model))
    except PretrainedError as error:
        raise Stopped(str(error)) from error
