"""A small pretrained model learns: model, English suite, supervised start, GRPO, and the model before and after."""

from collections.abc import Sequence
from pathlib import Path

from data_prep.pretrained import PretrainedError
from data_prep.pretrained.folders import check_folder
from recipe.capacity.model_shape import KNOWN_SHAPES, UnknownShapeError, shape_of
from recipe.checks.model import ModelError, described_model
from recipe.records.run_directory import RunDirectory
from recipe.runtime.options import Options, PretrainedOptions, StartOptions
from recipe.studies import manifest
from recipe.studies.files import sft_files
from recipe.studies.steps import MadeWith, Steps, Stopped, last_checkpoint, say

MODEL = "data/pretrained/smollm2"
DATA, OUT = "data/english", "outputs/pretrained"
EXPERIMENT = "pretrained"
RUNS = f"outputs/{EXPERIMENT}"
LEVELS = ("1", "sql=1,2")
DEMONSTRATION_TOKENS = "215"  # of the longest, by SmolLM2's tokenizer
NAME = "study"
MISREAD = "0.4"  # share of the demonstrations that misread their problem: what training can then unlearn
AS_TRAINED = ("--sampling", "eval@k", "--samples", "1")  # temperature 1


def pretrained(steps: Steps[PretrainedOptions], model: str = "") -> None:
    """The whole study; MODEL, a Hugging Face folder or a hub name, takes the place of SmolLM2-135M-Instruct."""
    steps = steps.with_length(EXPERIMENT)
    given = steps.options
    data, out = given.folder or DATA, given.out or OUT
    runs = _runs(steps, out)
    missing = sum(not Path(RUNS, run, "model").exists() for run in runs.values())
    folder, planned = f"{out}/start", ("--runs", str(missing), f"experiment={EXPERIMENT}", *given.train.split())
    model = base_model(steps, model or given.model, folder, [planned])
    make_english(steps, data)
    files = {split: f"{data}/{split}.parquet" for split in ("train", "val", "test")}
    steps.study = MadeWith(out, {"start": model}, files)
    start = supervised_start(steps, model, data, folder)
    test = {"english_test": files["test"]}
    steps.evaluate(EXPERIMENT, start, f"{out}/before", test, *AS_TRAINED)
    name, evaluated = _name(steps, out), []
    steps.take_kept(RUNS)
    for seed, run in runs.items():
        own = (f"data.train_files={files['train']}", f"data.val_files={files['val']}", f"data.seed={seed}")
        if _was_kept(f"{RUNS}/{run}"):
            # Refused if it has other settings. Its weights were not kept: it is neither exported nor evaluated.
            steps.settle(EXPERIMENT, start, f"{name}.s${{data.seed}}", *own)
            continue
        steps.grpo(EXPERIMENT, start, run, *own)
        after = f"{out}/after.s{seed}" if name == NAME else f"{out}/after.{run}"
        steps.evaluate(EXPERIMENT, f"{RUNS}/{run}/model", after, test, *AS_TRAINED)
        steps.module("recipe.report", "compare", f"{out}/before", after, "--answers", f"{after}/answers.md")
        evaluated.append(after)
    if len(evaluated) > 1:
        steps.module("recipe.report", "compare", f"{out}/before", *evaluated)
    steps.keep_runs(RUNS, *runs.values())
    steps.module("recipe.report", "summary", *(f"{RUNS}/{run}" for run in runs.values()))


def _name(steps: Steps[StartOptions], out: str) -> str:
    """Of the runs: NAME; another OUT names its runs, which all studies keep in one folder."""
    return steps.options.name or (NAME if out == OUT else Path(out).name)


def _runs(steps: Steps[StartOptions], out: str) -> dict[str, str]:
    """The run of each seed."""
    return {seed: f"{_name(steps, out)}.s{seed}" for seed in (steps.options.seeds or "0").split()}


def _was_kept(folder: str) -> bool:
    """Whether a finished run came from the file KEPT; one that ran here has a record of what it was made with."""
    return RunDirectory(Path(folder)).finished and not Path(folder, manifest.FILE).exists()


def base_model(steps: Steps[StartOptions], model: str, start: str, planned: Sequence[Sequence[str]]) -> str:
    """The folder of an instruct model, SmolLM2 if none is named, that fits this machine's memory and disk.

    start: the folder of the supervised start. planned: options of recipe.memory for each kind of run that is to follow.
    """
    if not model:
        model = MODEL
        steps.module("data_prep.pretrained", "--out", model)
    _require_room(steps, model, start, planned)
    model = steps.local_model(model)
    if not steps.dry:
        _require_instruct_model(model)
    return model


def make_english(steps: Steps[Options], data: str, *skills: str) -> None:
    """Rows of the English suite, or of these skills alone, at the levels of the study."""
    # data_prep.english refuses levels of a skill that is not wanted.
    levels = [level for level in LEVELS if not skills or "=" not in level or level.partition("=")[0] in skills]
    chosen = ("--skills", *skills) if skills else ()
    steps.make_rows(data, "english", "--levels", *levels, "--wrong-share", MISREAD, *chosen)


def supervised_start(steps: Steps[StartOptions], model: str, data: str, out: str) -> str:
    """Train all weights on demonstrations of the suite; returns the folder of the model."""
    given = steps.options
    demonstrations = {split: f"{data}/{split}.parquet" for split in ("sft_train", "sft_val")}
    settings = {f"settings {path.stem}": str(path) for path in sft_files("english")}
    steps.claim(MadeWith(out, {"base": model}, demonstrations | settings, {"sft": given.sft}))
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


def _require_room(steps: Steps[StartOptions], model: str, start: str, planned: Sequence[Sequence[str]]) -> None:
    """Plan the memory and disk of what is missing before anything large is fetched or trained.

    Refused if it does not fit.
    """
    given = steps.options
    if steps.on_gpus:
        return
    if not steps.dry and model not in KNOWN_SHAPES:
        try:
            model = described_model(model)
            shape_of(model)
        except ModelError as error:
            raise Stopped(str(error)) from error
        except UnknownShapeError as error:
            say(f"no memory plan: {error}")
            return
    if not Path(f"{start}/model").exists():
        steps.module(
            "recipe.memory", "--supervised", DEMONSTRATION_TOKENS, "sft_experiment=english", f"model.path={model}",
            f"trainer.default_local_dir={start}/sft", *given.sft.split(),
        )  # fmt: skip
    for words in planned:
        steps.module(
            "recipe.memory", f"actor_rollout_ref.model.path={model}", f"data.max_response_length={given.length}", *words
        )


def _require_instruct_model(model: str) -> None:
    """Stopped unless the folder is a complete model with a chat template: the supervised start takes minutes."""
    try:
        check_folder(Path(model))
    except PretrainedError as error:
        raise Stopped(str(error)) from error
