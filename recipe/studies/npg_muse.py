"""NPG-Muse: GRPO on NP-hard graph problems. Which volume of data, which order of levels, which reward?

A setting is an order of the levels, a model, a reward and a volume; its run and evaluation have names made of them.
VOLUME 750 is the smoke setting: five steps.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from data_prep.made_from import MadeFiles
from recipe.runtime.options import GraphOptions
from recipe.studies import lm_eval
from recipe.studies.arm_options import stop_if_a_run_failed
from recipe.studies.coding import learn_accepted
from recipe.studies.steps import CommandFailed, MadeWith, Steps, Stopped, say

TASKS = "mcp mis mvc mcs ged tsp"
# Graph problems in polynomial time.
CROSS_TASKS = "common_neighbours shortest_distance connected_components diameter"
GROUPS = ("in_task", "cross_task", "cross_domain")
REWARDS = ("binary", "binary_format", "binary_format_repeat", "ratio_quality_format_repeat", "complicated")
ORDERS = ("mixed", "curriculum")
VOLUMES = "45000 60000 90000"
LEVELS = (1, 2, 3, 4, 5)
SMOKE_VOLUME = 750
BATCH = 128
PROMPT = 5000  # tokens, as in the experiment
OPENED = "_opened"  # ends the name of rows for models whose chat template writes <think>


@dataclass(frozen=True)
class StudySetting:
    """What a run of the study is. opened: the model's chat template writes <think>, so prompts do not ask for it."""

    order: str
    model: str
    reward: str
    volume: str
    opened: bool = False

    @classmethod
    def checked(cls, order: str, model: str, reward: str, volume: str) -> "StudySetting":
        """A setting of the user's; Stopped where one part is not valid."""
        _check("strategy", order, ORDERS)
        _check("reward", reward, REWARDS)
        if not re.fullmatch(r"[1-9][0-9]*", volume):
            raise Stopped(f"VOLUME '{volume}' must be a number of rows, such as 45000")
        return cls(order, model, reward, volume)

    @property
    def run(self) -> str:
        """The name of its run."""
        return f"{self.order}_{name_of(self.model)}_{self.reward}_{self.volume}"

    @property
    def data(self) -> str:
        """The folder of its rows, level1 to level5 in it."""
        return f"data/npg_muse/{self.volume}{OPENED * self.opened}"

    def files(self, split: str) -> dict[int, str]:
        """The file of each level."""
        return {level: f"{self.data}/level{level}/{split}.parquet" for level in LEVELS}


def name_of(model: str) -> str:
    """A model's last name, and digits that distinguish it from others with the same last name."""
    place = model
    if Path(model).exists():
        here, found = Path.cwd().resolve(), Path(model).resolve()
        place = str(found.relative_to(here)) if found.is_relative_to(here) else str(found)
    last = re.sub(r"[^A-Za-z0-9]", "_", Path(place).name)
    return f"{last}_{hashlib.sha256(place.encode()).hexdigest()[:6]}"


def mixed(steps: Steps[GraphOptions], model: str, reward: str, volume: str) -> None:
    """GRPO on all five levels, shuffled: one run."""
    _train(_prepared(steps), StudySetting.checked("mixed", model, reward, volume))


def curriculum(steps: Steps[GraphOptions], model: str, reward: str, volume: str) -> None:
    """GRPO on level 1, then 2, to 5, in one run; each level has as many steps as its rows fill batches."""
    _train(_prepared(steps), StudySetting.checked("curriculum", model, reward, volume))


def choose_data_volume(steps: Steps[GraphOptions], model: str) -> str:
    """Step 1: mixed training with the binary reward on each volume."""
    settings = [StudySetting.checked("mixed", model, "binary", volume) for volume in _volumes(steps)]
    return _best_of_trained(_prepared(steps), settings).volume


def compare_curriculum(steps: Steps[GraphOptions], model: str, reward: str, volume: str) -> str:
    """Steps 2 and 4: all levels mixed, or one after the other."""
    settings = [StudySetting.checked(order, model, reward, volume) for order in ORDERS]
    return _best_of_trained(_prepared(steps), settings).order


def ablate_rewards(steps: Steps[GraphOptions], model: str, order: str, volume: str) -> str:
    """Step 3: a run with each reward, all else the same."""
    settings = [StudySetting.checked(order, model, reward, volume) for reward in REWARDS]
    return _best_of_trained(_prepared(steps), settings).reward


def train_all_series(steps: Steps[GraphOptions], order: str, reward: str, volume: str, *models: str) -> None:
    """Step 5: the chosen setting on other base models."""
    if not models:
        raise Stopped(f"no model named; usage: {'|'.join(ORDERS)} REWARD VOLUME MODEL ...")
    _train_all(_prepared(steps), [StudySetting.checked(order, model, reward, volume) for model in models])


def sft(steps: Steps[GraphOptions], volume: str, *models: str) -> None:
    """The supervised start of each model: accepted answers, of TEACHER or of the model itself, to VOLUME problems."""
    steps = _prepared(steps)
    if not models or not re.fullmatch(r"[1-9][0-9]*", volume):
        raise Stopped("no model named, or VOLUME is no number of problems; usage: VOLUME MODEL ...")
    failed = 0
    for model in models:
        try:
            _learn(steps.changed(), model, volume)
        except CommandFailed as error:  # one model's: the others go on
            say(f"{model} failed: {error}")
            failed = error.status
    stop_if_a_run_failed(failed)


def _learn(steps: Steps[GraphOptions], model: str, volume: str) -> None:
    given, folder = steps.options, steps.local_model(model)
    teacher = steps.local_model(given.teacher) if given.teacher else folder
    opened = steps.opens_thinking(teacher)
    if opened != steps.opens_thinking(folder):
        raise Stopped(f"one of the chat templates of {teacher} and {folder} writes <think>: choose another TEACHER")
    # Another seed than the rows of GRPO.
    rows = f"data/npg_muse/sft_{volume}{OPENED * opened}"
    _make_rows(steps, rows, opened, given.tasks, "--limit", volume, "--seed", "1")
    samples = f"outputs/{given.experiment}/samples_{name_of(given.teacher or model)}_{volume}"
    out = f"outputs/{given.experiment}/sft_{name_of(model)}_{volume}"
    sampling = ("--sampling", "eval@k", "--samples", given.samples or "4")
    steps.evaluate(given.experiment, teacher, samples, {"train": f"{rows}/train.parquet"}, *sampling, *_judge(opened))
    steps.claim(MadeWith(out, {"start": folder, "teacher": teacher}, settings={"sft": given.sft}))
    if not steps.have(f"{out}/model"):
        lengths = (f"data.max_length={PROMPT + int(given.length)}", "data.micro_batch_size_per_gpu=1")
        learn_accepted(steps, folder, samples, out, *lengths)
    for place, one in (("before", folder), ("after", f"{out}/model")):
        steps.evaluate(given.experiment, one, f"{out}/{place}", {"dev": f"{rows}/dev.parquet"}, *_judge(opened))
    steps.module("recipe.report", "compare", f"{out}/before", f"{out}/after", "--out", f"{out}/report.json")


def _judge(opened: bool) -> list[str]:
    """The judge's setting for a model whose chat template writes <think>: its responses begin without it."""
    return ["--judge", "think_opener=template"] if opened else []


def _make_rows(steps: Steps[GraphOptions], folder: str, opened: bool, tasks: str, *options: str) -> None:
    """Make graph problems whose prompts ask for <think> unless the chat template writes it."""
    more = ("--think-opener", "template") if opened else ()
    experiment = steps.options.experiment
    steps.make_rows(folder, "graphs", "--experiment", experiment, "--tasks", *tasks.split(), *options, *more)


def train_ablation(steps: Steps[GraphOptions], model: str, *others: str) -> None:
    """All five steps; each takes the best setting of the one before. At the end one table over all runs."""
    say("step 1: data volume")
    volume = choose_data_volume(steps, model)
    say(f"step 2: curriculum or mixed, volume {volume}")
    first = compare_curriculum(steps, model, "binary", volume)
    say(f"step 3: reward, {first}, volume {volume}")
    reward = ablate_rewards(steps, model, first, volume)
    say(f"step 4: curriculum or mixed with {reward}, volume {volume}")
    order = compare_curriculum(steps, model, reward, volume)
    say(f"step 5: {order} {reward} {volume} on the other models")
    if others:
        train_all_series(steps, order, reward, volume, *others)
    settings = [
        *(StudySetting("mixed", model, "binary", one) for one in _volumes(steps)),
        StudySetting("curriculum", model, "binary", volume),
        *(StudySetting(first, model, one, volume) for one in REWARDS),
        *(StudySetting(one, model, reward, volume) for one in ORDERS),
        *(StudySetting(order, one, reward, volume) for one in others),
    ]
    steps = _prepared(steps)
    steps.module("recipe.report", "choose", *_evaluations(steps, dict.fromkeys(settings)))
    say(f"chosen: {order} {reward} {volume}")


def evaluate(steps: Steps[GraphOptions], model: str, out: str) -> None:
    """A model on problems that no run trains on: the groups of WHAT."""
    steps = _prepared(steps)
    given = steps.options
    groups = (given.what or " ".join(GROUPS)).split()
    for group in groups:
        _check("group", group, GROUPS)
    model = steps.local_model(model)
    for group in groups:
        if group == "cross_domain":
            lm_eval.cross_domain(steps, model, f"{out}/{group}")
            continue
        tasks = given.tasks if group == "in_task" else CROSS_TASKS
        limit = 10 * int(given.problems or 600)  # a tenth of the rows is for testing
        opened = steps.opens_thinking(model)
        rows = f"data/npg_muse/{group}{OPENED * opened}"
        _make_rows(steps, rows, opened, tasks, "--limit", str(limit))
        data = {group: f"{rows}/test.parquet"}
        steps.evaluate(given.experiment, model, f"{out}/{group}", data, *_judge(opened))


def smoke(steps: Steps[GraphOptions]) -> None:
    """The smoke setting on the micro tokenizer and random weights, on one machine: both orders of the levels."""
    model = "data/npg_muse/model"
    command = ("data_prep.micro.model", "--out", model, "--max-length", "8192")
    files = MadeFiles(Path("data/npg_muse"), "model", ("model/**/*",), command, command[:1])
    steps.make(files, lambda: steps.module(*command))
    # A byte is a token: the largest prompts have some thousand. Short answers, few prompts per step.
    overrides = (
        "data.max_prompt_length=5000 data.train_batch_size=16 actor_rollout_ref.actor.ppo_mini_batch_size=16 "
        "actor_rollout_ref.rollout.n=2 data.val_max_samples=10 "
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 actor_rollout_ref.rollout.max_model_len=5120"
    )
    small = steps.changed(train=overrides, length="32", evaluate="--limit 4")
    print(compare_curriculum(small, model, "binary", str(SMOKE_VOLUME)))


def _prepared(steps: Steps[GraphOptions]) -> Steps[GraphOptions]:
    """The study's defaults."""
    given = steps.options
    experiment = given.experiment or "npg_muse"
    return steps.changed(experiment=experiment, tasks=given.tasks or TASKS).with_length(experiment)


def _check(what: str, value: str, valid: Sequence[str]) -> None:
    if value not in valid:
        raise Stopped(f"unknown {what} '{value}'; valid ones: {' '.join(valid)}")


def _volumes(steps: Steps[GraphOptions]) -> list[str]:
    return (steps.options.volumes or VOLUMES).split()


def _train(steps: Steps[GraphOptions], setting: StudySetting) -> None:
    """One run, its model and the evaluation of it on the dev problems of every level."""
    given, smoke_size = steps.options, int(setting.volume) <= SMOKE_VOLUME
    overrides = _curriculum(setting, given.train) if setting.order == "curriculum" else []
    model = steps.local_model(setting.model)
    setting = _make_data(steps, setting)
    steps.study = MadeWith(
        f"outputs/{given.experiment}",
        {name_of(setting.model): model},
        {
            f"{setting.volume}_{level}_{split}": setting.files(split)[level]
            for level in LEVELS
            for split in ("train", "dev")
        },
    )
    five = ["trainer.total_training_steps=5", "trainer.save_freq=5", "trainer.test_freq=5"] if smoke_size else []
    memory = [
        "adaptation=full",
        f"actor_rollout_ref.actor.ulysses_sequence_parallel_size={given.sequence_parallel or 4}",
        f"actor_rollout_ref.ref.fsdp_config.param_offload={given.offload_ref or 'false'}",
    ]
    train, dev = ("[" + ",".join(setting.files(split).values()) + "]" for split in ("train", "dev"))
    steps.grpo(
        given.experiment, model, setting.run, f"data.train_files={train}", f"data.val_files={dev}",
        f"reward.custom_reward_function.reward_kwargs.shape={setting.reward}", *(memory if steps.on_gpus else ()),
        *five, *overrides,
        *(["reward.custom_reward_function.reward_kwargs.think_opener=template"] if setting.opened else []),
    )  # fmt: skip
    folder = f"outputs/{given.experiment}/{setting.run}"
    rows = {f"level{level}": path for level, path in setting.files("dev").items()}
    steps.evaluate(given.experiment, f"{folder}/model", f"{folder}/dev", rows, *_judge(setting.opened))


def _curriculum(setting: StudySetting, train: str) -> list[str]:
    """The overrides of a schedule with one stage per level, validated at the end of each."""
    named = re.findall(r"data\.train_batch_size=(\d+)", train)
    batch, rows = int(named[-1]) if named else BATCH, int(setting.volume) // len(LEVELS)
    if rows < batch:
        raise Stopped(f"a level of {rows} rows does not fill a batch of {batch}")
    stage = 1 if int(setting.volume) <= SMOKE_VOLUME else rows // batch
    levels = [f"level{level}" for level in LEVELS]
    return [
        "protocol=curriculum", f"protocol.levels=[{','.join(f'[{level}]' for level in levels)}]",
        f"protocol.stage_steps={stage}", f"trainer.test_freq={stage}", "skills.by=function",
        "skills.function=rewards.skills:level_of", f"skills.names=[{','.join(levels)}]",
    ]  # fmt: skip


def _make_data(steps: Steps[GraphOptions], setting: StudySetting) -> StudySetting:
    """The rows of each level, a fifth of the volume each; returns the setting as the model's chat template makes it."""
    setting = replace(setting, opened=steps.opens_thinking(steps.local_model(setting.model)))
    for level in LEVELS:
        folder, limit = f"{setting.data}/level{level}", str(int(setting.volume) // len(LEVELS))
        _make_rows(steps, folder, setting.opened, steps.options.tasks, "--levels", str(level), "--limit", limit)
    return setting


def _train_all(steps: Steps[GraphOptions], settings: Sequence[StudySetting]) -> None:
    """Each setting's run, as parallel Ray jobs where the cluster has room, else in turn; a failure stops no other."""
    for setting in settings:  # first, since runs that share a volume would make its data at the same time
        _make_data(steps, setting)

    def train(setting: StudySetting) -> int:
        words = (setting.model, setting.reward, setting.volume)
        try:
            if jobs > 1:
                submitting.run("bash", "scripts/ray_submit.sh", f"scripts/npg_muse/{setting.order}.sh", *words)
            else:
                _train(steps.changed(), setting)
        except Stopped as error:
            if not isinstance(error, CommandFailed):
                say(f"stopped: {error}")
            return error.status
        except Exception as error:  # one setting's: the other runs go on
            say(f"{setting.run} failed: {type(error).__name__}: {error}")
            return 1
        return 0

    jobs, submitting = _jobs(steps), steps.with_environment(**steps.options.variables())
    statuses = _parallel(train, settings, jobs) if jobs > 1 else [train(setting) for setting in settings]
    if failed := [setting.run for setting, status in zip(settings, statuses, strict=True) if status]:
        raise CommandFailed(f"runs failed: {', '.join(failed)}", next(filter(None, statuses)))


def _parallel(train: Callable[[StudySetting], int], settings: Sequence[StudySetting], jobs: int) -> list[int]:
    pool = ThreadPoolExecutor(jobs)
    try:
        return list(pool.map(train, settings))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # an interrupted study begins no further run


def _jobs(steps: Steps[GraphOptions]) -> int:
    given = steps.options
    if given.jobs or steps.platform != "gpu_ray" or steps.dry:
        return max(1, int(given.jobs or 1))
    room = steps.answer(
        "recipe.cluster", "room", f"experiment={given.experiment}", "platform=gpu_ray", *given.train.split()
    )
    if not room.isdecimal():
        raise Stopped(f"recipe.cluster room answered {room!r}, not a number; name the runs at a time: JOBS=N")
    return max(1, int(room))


def _best_of_trained(steps: Steps[GraphOptions], settings: Sequence[StudySetting]) -> StudySetting:
    _train_all(steps, settings)
    return best(steps, settings)


def best(steps: Steps[GraphOptions], settings: Sequence[StudySetting]) -> StudySetting:
    """The setting whose run has the highest mean accepted@1 over the levels; of equals, and in a dry run, the first."""
    folders = _evaluations(steps, settings)
    if steps.dry:
        return settings[0]
    chosen = steps.answer("recipe.report", "choose", *folders)
    if chosen not in folders:
        raise Stopped(f"recipe.report choose answered {chosen!r}, which is none of the evaluations")
    return settings[folders.index(chosen)]


def _evaluations(steps: Steps[GraphOptions], settings: Iterable[StudySetting]) -> list[str]:
    return [f"outputs/{steps.options.experiment}/{one.run}/dev" for one in settings]
