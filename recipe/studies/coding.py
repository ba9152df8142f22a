"""The coding pipeline: a baseline, SFT, preferences, GRPO and repair in several turns, each from the model before it.

The model that a phase leaves is OUT/phaseN/model, its evaluation on the dev set OUT/phaseN/dev.
"""

import os
from dataclasses import replace
from functools import partial
from pathlib import Path

from data_prep.files import file_hash
from data_prep.made_from import MadeFiles
from recipe.records.run_directory import RunDirectory
from recipe.runtime.options import CodingOptions, Options, RejectionOptions
from recipe.settings import SettingsError, read_agents
from recipe.studies.arm_options import SEED, stop_if_a_run_failed
from recipe.studies.files import MICRO_ROWS, sft_files
from recipe.studies.steps import MadeWith, Steps, Stopped, last_checkpoint, say

PARTIAL_CREDIT = {"dense": "true", "sparse": "false"}


def _prepared(steps: Steps[CodingOptions]) -> Steps[CodingOptions]:
    """The pipeline's defaults, and what its phases share."""
    given = steps.options
    experiment = given.experiment or "code_grpo"
    data, out = given.data or "data/coding", given.out or "outputs/coding"
    steps = steps.changed(experiment=experiment, data=data, out=out, agents=given.agents or "standard")
    steps = steps.with_length(experiment)
    # phase0/model links to the model that the study began with.
    rows = {split: f"{data}/{split}.parquet" for split in ("train", "dev")}
    steps.study = MadeWith(out, {"start": f"{out}/phase0/model"}, rows)
    return steps


def phase0(steps: Steps[CodingOptions], model: str) -> None:
    """The model as it is, evaluated on the dev set (of each source) and, to compare with later, on the test set."""
    steps = _prepared(steps)
    given, out = steps.options, f"{steps.options.out}/phase0"
    steps.need(
        f"{given.data}/dev.parquet", f"python -m data_prep.govern ... --out {given.data} (docs/reference/data.md)"
    )
    model = steps.local_model(model)
    manifest = Path(given.data, "manifest.jsonl")
    say(f"data: {given.data} ({file_hash(manifest) if manifest.exists() else 'no manifest'})")
    steps.claim_folder(MadeWith(given.out, {"start": model}))
    _link(steps, model, out)
    _evaluate_dev(steps, out)
    _evaluate_test(steps, out)


def phase1(steps: Steps[CodingOptions]) -> None:
    """Supervised training on the model's own accepted samples (rejection sampling)."""
    steps = _prepared(steps)
    given, before, out = steps.options, f"{steps.options.out}/phase0", f"{steps.options.out}/phase1"
    experiment, samples = given.sft_experiment or "verified", given.samples or "8"  # as `learn_accepted` has it
    steps.need(f"{before}/model", "bash scripts/coding/phase0_baseline.sh MODEL")
    steps.claim(MadeWith(out, settings={"sft": f"{experiment} samples={samples} {given.sft}"}))
    if steps.have(f"{out}/model"):
        return
    _evaluate_samples(steps, f"{before}/model", f"{out}/samples", samples)
    learn_accepted(steps, f"{before}/model", f"{out}/samples", out)
    _evaluate_dev(steps, out)
    _compare(steps, f"{before}/dev", f"{out}/dev", out)


def phase2(steps: Steps[CodingOptions]) -> None:
    """Preferences among verified samples of the same problem."""
    steps = _prepared(steps)
    given, before, out = steps.options, f"{steps.options.out}/phase1", f"{steps.options.out}/phase2"
    samples = given.samples or "8"
    steps.need(f"{before}/model", "bash scripts/coding/phase1_sft.sh")
    steps.claim(MadeWith(out, {"phase1": f"{before}/model"}, settings={"dpo": f"samples={samples} {given.dpo}"}))
    if steps.have(f"{out}/model"):
        return
    _evaluate_samples(steps, f"{before}/model", f"{out}/samples", samples)
    steps.module(
        "recipe.dpo", "--model", f"{before}/model", "--evaluations", f"{out}/samples", "--out", out,
        "--platform", steps.serving, *given.dpo.split(),
    )  # fmt: skip
    _evaluate_dev(steps, out)
    _compare(steps, f"{before}/dev", f"{out}/dev", out)


def phase3(steps: Steps[CodingOptions]) -> None:
    """GRPO with verifiable rewards, from phase 2's model, or phase 1's where phase 2 was left out."""
    steps = _prepared(steps)
    given, out, start = steps.options, f"{steps.options.out}/phase3", _before_grpo(steps)
    reward = given.reward or "dense"
    if reward not in PARTIAL_CREDIT:
        raise Stopped(f"unknown REWARD '{reward}'; valid ones: {', '.join(PARTIAL_CREDIT)}")
    steps.claim(MadeWith(out, {"begins": f"{start}/model"}, settings={"reward": reward}))
    name = f"{Path(given.out).name}_{reward}"
    steps.grpo(
        given.experiment, f"{start}/model", name, f"data.train_files={given.data}/train.parquet",
        f"data.val_files={given.data}/dev.parquet",
        f"reward.custom_reward_function.reward_kwargs.partial_credit={PARTIAL_CREDIT[reward]}",
    )  # fmt: skip
    _link(steps, f"outputs/{given.experiment}/{name}/model", out)
    _evaluate_dev(steps, out)
    _compare(steps, f"{start}/dev", f"{out}/dev", out)
    if _evaluate_test(steps, out):
        _compare(steps, f"{given.out}/phase0/test", f"{out}/test", f"{out}/test")


def ablate_rewards(steps: Steps[CodingOptions]) -> None:
    """Phase 3 with the dense and the sparse reward, several seeds of each: learning speed, and the models on dev."""
    steps = _prepared(steps)
    given, start = steps.options, _before_grpo(steps)
    experiment, seeds = f"{Path(given.out).name}_rewards", (given.seeds or "0 1").split()
    runs = f"outputs/{experiment}"
    assert steps.study is not None
    steps.study = MadeWith(
        runs, {"begins": f"{start}/model"}, steps.study.data, {"train": f"{given.length} {given.train}"}
    )
    for reward, credit in PARTIAL_CREDIT.items():
        steps.grpo_runs(
            given.experiment, f"{start}/model", f"{reward}.{SEED}", f"run.experiment={experiment}",
            f"data.train_files={given.data}/train.parquet", f"data.val_files={given.data}/dev.parquet",
            f"reward.custom_reward_function.reward_kwargs.partial_credit={credit}", f"data.seed={','.join(seeds)}",
        )  # fmt: skip
    names = [f"{runs}/{reward}.s{seed}" for reward in PARTIAL_CREDIT for seed in seeds]
    finished = [run for run in names if steps.dry or RunDirectory(Path(run)).finished]
    for run in finished:
        if not steps.have(f"{run}/model"):
            steps.export(run)
        _evaluate_dev(steps, run)
    steps.module("recipe.report", "choose", *(f"{run}/dev" for run in finished))
    steps.module("recipe.report", "speed", runs, *(["--reach", given.reach] if given.reach else []))
    stop_if_a_run_failed(steps.failed)


def _before_grpo(steps: Steps[CodingOptions]) -> str:
    """The phase whose model GRPO begins with: 2, or 1 where 2 was left out."""
    given = steps.options
    steps.need(f"{given.out}/phase1/model", "bash scripts/coding/phase1_sft.sh")
    with_two = "2" not in given.without.split() and Path(given.out, "phase2/model").exists()
    return f"{given.out}/phase{2 if with_two else 1}"


def phase4(steps: Steps[CodingOptions]) -> None:
    """Repair in several turns: GRPO over whole episodes from phase 3's model.

    `before` and `repair` are evaluations in several turns, with the share of first-turn failures that end accepted;
    `dev` is one in a single turn, as of all phases. A turn has LENGTH tokens, and a response of the training as many
    times that as there are turns.
    """
    steps = _prepared(steps)
    given, out = steps.options, f"{steps.options.out}/phase4"
    steps.need(f"{given.out}/phase3/model", "bash scripts/coding/phase3_grpo.sh")
    turns = _max_turns(given.agents)
    rows = _rows_for_agents(steps, f"{out}/rows")
    _evaluate_turns(steps, f"{given.out}/phase3/model", f"{out}/before", rows["dev"])
    name = f"{Path(given.out).name}_repair"
    steps.grpo(
        given.experiment, f"{given.out}/phase3/model", name, f"data.train_files={rows['train']}",
        f"data.val_files={rows['dev']}", f"agents={given.agents}",
        f"data.max_response_length={turns * int(given.length)}", *given.repair.split(),
    )  # fmt: skip
    _link(steps, f"outputs/{given.experiment}/{name}/model", out)
    _evaluate_dev(steps, out)
    _evaluate_turns(steps, f"{out}/model", f"{out}/repair", rows["dev"])
    _compare(steps, f"{out}/before", f"{out}/repair", out)


def pipeline(steps: Steps[CodingOptions], model: str) -> None:
    """All phases but those of WITHOUT, and one table over them."""
    out, without = steps.options.out or "outputs/coding", steps.options.without.split()
    phase0(steps, model)
    phases = [number for number in PHASES if str(number) not in without]
    for number in phases:
        PHASES[number](steps)
    folders = [f"{out}/phase{number}/dev" for number in (0, *phases)]
    in_turns = ["--beside", f"{out}/phase4/before", f"{out}/phase4/repair"] if 4 in phases else []
    steps.module("recipe.report", "choose", *folders, *in_turns)


PHASES = {1: phase1, 2: phase2, 3: phase3, 4: phase4}


def micro(steps: Steps[CodingOptions]) -> None:
    """All phases on the micro model and two of its skills, without a GPU; phase 2 needs .venv-dpo."""
    data, out = "data/micro_coding", steps.options.out or "outputs/micro_coding"
    steps.run("bash", "scripts/micro_start.sh")
    _micro_data(steps, data)
    without = steps.options.without if Path(".venv-dpo/.stamp").exists() else "2"
    # Sampled answers: the most likely ones of the micro model are nearly all right before any training.
    # An episode has three turns of 64 tokens with two answers of the environment between them.
    of_pipeline = Steps(
        replace(
            steps.options, data=data, out=out, experiment="quickstart", length="64", agents="micro", samples="4",
            without=without, evaluate="--sampling eval@k --samples 4 --vllm=--max-model-len=512",
            sft="data.max_length=256 optim.lr=1e-4 data.train_batch_size=32 data.micro_batch_size_per_gpu=16",
            dpo="--lr 5e-4 --epochs 2 --margin 0.3 --batch-size 16 --micro-batch-size 8 --max-length 256",
            train="trainer.total_training_steps=8 trainer.save_freq=8 trainer.test_freq=8",
            repair="data.max_response_length=320 actor_rollout_ref.rollout.max_model_len=480",
        )
    )  # fmt: skip
    pipeline(of_pipeline, f"{data}/model")


def _micro_data(steps: Steps[CodingOptions], data: str) -> None:
    """Rows of two skills, and a start that has seen second turns."""
    steps.make_rows(data, "micro", "--skills", "write", "repair", "--limit", "128", files=MICRO_ROWS)
    copy = ("cp", f"{data}/val.parquet", f"{data}/dev.parquet")
    dev = MadeFiles(Path(data), "dev", ("dev.parquet",), copy, inputs=(Path(copy[1]),))
    steps.make(dev, lambda: steps.run(*copy))
    start_with_second_turns(steps, data)


def start_with_second_turns(steps: Steps[Options], data: str) -> None:
    """The micro suite's start after demonstrations of repair, in DATA/model."""
    made = {split: f"{data}/episodes_{split}.parquet" for split in ("train", "val")}
    feedback = ("--feedback", read_agents("micro").feedback["code_agent"])
    for split, fewer in (("train", ()), ("val", ("--seed", "1", "--limit", "16"))):
        command = ("data_prep.micro.episodes", "--out", made[split], *feedback, *fewer)
        episodes = MadeFiles(Path(data), f"episodes_{split}", (f"episodes_{split}.parquet",), command, command[:1])
        steps.make(episodes, partial(steps.module, *command))
    start = "data/micro/model"
    command = (
        "recipe.sft", "sft_experiment=micro", f"model.path={start}", f"data.train_files={made['train']}",
        f"data.val_files={made['val']}", "optim.lr=1e-3", "trainer.total_training_steps=128",
        f"trainer.default_local_dir={data}/sft",
    )  # fmt: skip

    def train() -> None:
        steps.run("rm", "-rf", f"{data}/sft")
        steps.module(*command)
        steps.run("cp", "-rT", f"{data}/sft/global_step_128/huggingface", f"{data}/model")

    inputs = (*map(Path, made.values()), *Path(start).glob("*"), *sft_files("micro"))
    steps.make(MadeFiles(Path(data), "model", ("model/**/*",), command, command[:1], inputs), train)


def _rows_for_agents(steps: Steps[CodingOptions], folder: str) -> dict[str, str]:
    rows = {split: f"{folder}/{split}.parquet" for split in ("train", "dev")}
    for split, path in rows.items():
        source = f"{steps.options.data}/{split}.parquet"
        command = ("data_prep.sources.agents", source, "--out", path)
        files = MadeFiles(Path(folder), split, (f"{split}.parquet",), command, command[:1], (Path(source),))
        steps.make(files, partial(steps.module, *command))
    return rows


def _evaluate_dev(steps: Steps[CodingOptions], out: str) -> None:
    given = steps.options
    steps.evaluate(given.experiment, f"{out}/model", f"{out}/dev", {"dev": f"{given.data}/dev.parquet"})


def _evaluate_test(steps: Steps[CodingOptions], out: str) -> bool:
    """Evaluate OUT/model on the test set, if there is one; nothing is chosen by it."""
    given, rows = steps.options, f"{steps.options.data}/test.parquet"
    if not steps.dry and not Path(rows).exists():
        say(f"no {rows}: no evaluation on a test set")
        return False
    steps.evaluate(given.experiment, f"{out}/model", f"{out}/test", {"test": rows})
    return True


def _evaluate_samples(steps: Steps[CodingOptions], model: str, out: str, samples: str) -> None:
    given = steps.options
    rows = {"train": f"{given.data}/train.parquet"}
    steps.evaluate(given.experiment, model, out, rows, "--sampling", "eval@k", "--samples", samples)


def _evaluate_turns(steps: Steps[CodingOptions], model: str, out: str, rows: str) -> None:
    steps.evaluate(steps.options.experiment, model, out, {"dev": rows}, "--agents", steps.options.agents)


def _compare(steps: Steps[Options], before: str, after: str, out: str) -> None:
    steps.module("recipe.report", "compare", before, after, "--out", f"{out}/report.json")


def _link(steps: Steps[Options], model: str, out: str) -> None:
    """OUT/model links to a phase's model."""
    steps.run("mkdir", "-p", out)
    steps.run("ln", "-sfn", os.path.realpath(model), f"{out}/model")


def _max_turns(agents: str) -> int:
    try:
        return read_agents(agents).max_turns
    except SettingsError as error:
        raise Stopped(str(error)) from error


def learn_accepted(steps: Steps[RejectionOptions], model: str, samples: str, out: str, *overrides: str) -> None:
    """Train `model` on the accepted answers of the evaluation in `samples`; the result is OUT/model."""
    given = steps.options
    steps.module(
        "recipe.sft", f"sft_experiment={given.sft_experiment or 'verified'}", f"sft_platform={steps.serving}",
        f"model.path={model}", f"verified.evaluations=[{samples}]", f"trainer.default_local_dir={out}/sft",
        *overrides, *given.sft.split(),
    )  # fmt: skip
    # In two steps: a copy that was stopped is not taken for the model.
    steps.run("cp", "-rT", last_checkpoint(f"{out}/sft"), f"{out}/model.partial")
    steps.run("mv", "-T", f"{out}/model.partial", f"{out}/model")
