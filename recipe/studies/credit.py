"""The evidence that credit helps where a trajectory's reward says little: docs/evidence/credit_plan.md.

`rates` finds the learning rate of each arm, and in the sparse task the size of its updates, on seeds that the evidence
does not use; `arms` compares the arms as the task's experiment has them, or at their own choice, and other arms that
are given in a table apart; `longer` gives GRPO as many and twice the samples; `rivals` compares arms of other papers
and inverted credits with both; `agents` compares credit per turn with GiGPO. A study that was stopped
resumes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from recipe.runtime.options import CreditOptions
from recipe.studies.arm_options import ARM, RATE, SAMPLES, SEED, Overrides, known, listed, stop_if_a_run_failed
from recipe.studies.coding import start_with_second_turns
from recipe.studies.files import MICRO_ROWS, stated
from recipe.studies.steps import MadeWith, Steps, Stopped

TUNING_SEEDS, TUNED_RATES = "100 101", "2e-3 4e-3 8e-3"
SHUFFLED = "credit_shuffled"
AS_CREDIT = (SHUFFLED, "credit_truncate", "credit_both")  # take credit's choice
SAMPLES_OF_A_RUN = 960
"""In the sparse task, of every arm."""
LONGER_SEEDS = "70 71 72 73 74 75 76 77"
RATES_THAT_HOLD = {"credit": "2.0e-3", "grpo": "2.0e-3", "vineppo": "2.0e-3", "spo": "2.0e-3"}
"""The first by accuracy at which none of six tuning seeds falls to 0; rivals take that of grpo."""
BLOCK, BLOCKS = "16", "8"
"""Samples that its tables put together, and blocks whose mean has to reach an accuracy: 128 samples."""


@dataclass(frozen=True)
class CreditTask:
    """A task of the study: its rows and start, its arms, seeds and contrasts, and the accuracy to reach.

    data: the folder. start: options of recipe.micro_start. The experiment is configs/experiment/credit_<name>.yaml.
    goal: more options of the table, for what has to reach it. own: arms whose update size ("" for the experiment's) or
    learning rate differ from the experiment's.
    """

    data: str
    start: tuple[str, ...]
    arms: str
    seeds: str
    contrasts: tuple[str, ...]
    reach: str
    goal: tuple[str, ...] = ("--window", "16")
    own: Mapping[str, tuple[str, str]] = field(default_factory=dict)


# Demonstrations of fewer lines beside those of the task: on sixteen lines alone 540 updates do not teach to copy.
TASKS = {
    "parts16": CreditTask(
        "data/parts16",
        ("--skills", "parts", "--difficulty", "3", "--line-wrong-share", "0.16", "--easier",
         "--demonstrations", "51840", "data.max_length=512", "data.train_batch_size=32",
         "data.micro_batch_size_per_gpu=16", "trainer.total_training_steps=1620"),
        "grpo partial credit credit_shuffled",
        "50 51 52 53 54 55 56 57",
        ("credit:grpo", "credit:partial", "credit_shuffled:grpo"),
        "0.5",
        ("--window", BLOCKS, "--samples", BLOCK),
        {"credit": ("", "4.0e-3"), "partial": ("1x4", "")},
    ),
    "parts4": CreditTask(
        "data/parts",
        ("--skills", "parts"),
        "grpo credit credit_shuffled",
        "20 21 22 23 24 25 26 27",
        ("credit:grpo", "credit_shuffled:grpo"),
        "0.8",
        own={"grpo": ("", "4.0e-3")},
    ),
    "chain8": CreditTask(
        "data/chain8",
        ("--skills", "chain", "--difficulty", "2", "--line-wrong-share", "0.08", "--easier",
         "--demonstrations", "34560", "data.max_length=384"),
        "grpo credit",
        "20 21 22 23 24",
        ("credit:grpo",),
        "0.8",
        own={"grpo": ("", "4.0e-3")},
    ),
}  # fmt: skip


RIVALS: Mapping[str, tuple[str, Overrides]] = {  # label -> arm and overrides
    "grpo": ("grpo", ()),
    "credit": ("credit", ()),
    "vineppo": ("vineppo", ()),
    "spo": ("spo", ()),
    "credit_inverted": ("credit", ("credit.ablation=inverted",)),
}
RIVAL_SEEDS = "83 84 85"
RIVAL_LENGTH = (
    "trainer.total_training_steps=40", "trainer.save_freq=10", "trainer.test_freq=-1", "trainer.val_before_train=false",
    "actor_rollout_ref.actor.optim.min_lr_ratio=0.775",
)  # fmt: skip
"""The first third of a run, whose rate falls to 0.775: each update of vineppo samples 1,300 continuations."""
RIVAL_CONTRASTS = ("vineppo:grpo", "spo:grpo", "credit_inverted:grpo", "credit:grpo", "credit:vineppo", "credit:spo")

# The code agent on two skills of the micro suite. An episode has three turns of 64 tokens with two answers between.
AGENTS = CreditTask(
    "data/credit_agents",
    (),
    "grpo gigpo credit_turns",
    "14 15 16 17",
    ("credit_turns:grpo", "credit_turns:gigpo", "gigpo:grpo"),
    "0.8",
    (),
)
AGENT_OPTIONS = (
    "data.max_response_length=320", "actor_rollout_ref.rollout.max_model_len=480", "agents=micro",
    f"{RATE}=5.0e-4", "trainer.total_training_steps=24", "trainer.test_freq=24", "trainer.save_freq=12",
)  # fmt: skip


def evidence_credit(steps: Steps[CreditOptions], stage: str = "", *overrides: str) -> None:
    """STAGE `rates`, then `arms`, on every task; `longer` and `rivals` on the sparse one; `agents`."""
    known("stage", [stage], STAGES)
    run, tasks = STAGES[stage]
    names = known("task", (steps.options.tasks or tasks).split(), tasks.split())
    failed = 0
    for name in names:
        failed = run(steps, name, overrides) or failed
    stop_if_a_run_failed(failed)


def size_overrides(size: str) -> Overrides:
    """Overrides of updates of PxN: P prompts and N samples of each, as many in all as in every run of the sparse task.

    Stopped unless they make whole blocks.
    """
    prompts, _, samples = size.partition("x")
    if not (prompts.isdecimal() and samples.isdecimal()) or int(prompts) < 1 or int(samples) < 2:
        raise Stopped(f"SIZES has '{size}': write PROMPTSxSAMPLES, such as 2x4")
    micro = int(prompts) * int(samples)
    if int(BLOCK) % micro:
        raise Stopped(f"SIZES has '{size}': tables compare blocks of {BLOCK} samples, which such updates do not fill")
    updates = SAMPLES_OF_A_RUN // micro
    return (
        f"data.train_batch_size={prompts}", f"actor_rollout_ref.actor.ppo_mini_batch_size={prompts}",
        f"{SAMPLES}={samples}", f"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu={micro}",
        f"actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu={micro}",
        *_length(updates),
    )  # fmt: skip


def _length(updates: int) -> Overrides:
    """Overrides of a run of so many updates: a checkpoint half-way, a validation at the end."""
    return (
        f"trainer.total_training_steps={updates}", f"trainer.test_freq={updates}", f"trainer.save_freq={updates // 2}"
    )  # fmt: skip


def _rates(steps: Steps[CreditOptions], name: str, overrides: Overrides) -> int:
    """Every arm at each rate, and with updates of each size; the best goes into the experiment or `CreditTask.own`."""
    given, task = steps.options, TASKS[name]
    if given.sizes and "--samples" not in task.goal:
        raise Stopped(f"SIZES: updates of {name} have one size; name TASKS=parts16")
    arms = given.arms or " ".join(arm for arm in task.arms.split() if arm != SHUFFLED)
    runs = [
        (
            *sized, f"{RATE}={listed(given.rates or TUNED_RATES)}", f"data.seed={listed(given.seeds or TUNING_SEEDS)}",
            f"arm={listed(arms)}", f"run.name={ARM}{label}_lr${{{RATE}}}.{SEED}",
        )
        for sized, label in [(size_overrides(size), f"_{size}") for size in given.sizes.split()] or [((), "")]
    ]  # fmt: skip
    return _start_and_compare(steps, name, f"{name}_rates", runs, overrides)


def _arms(steps: Steps[CreditOptions], name: str, overrides: Overrides) -> int:
    """Every arm and seed, from one start; seeds outside, so that a stopped study has whole pairs.

    Arms that are not the task's own are compared with them in the folder `estimates`: they leave its table, and the
    number of contrasts that Holm counts, as they are.
    """
    given, task = steps.options, TASKS[name]
    if given.sizes:
        raise Stopped("SIZES belongs to the stage rates; what it chose stands in CreditTask.own")
    arms = (given.arms or task.arms).split()
    runs = list(_as_chosen(task, arms, (given.seeds or task.seeds).split()))
    others = [arm for arm in arms if arm not in task.arms.split()]
    if not others:
        return _start_and_compare(steps, name, name, runs, overrides, "--contrasts", *task.contrasts)
    pairs = [f"{arm}:{against}" for arm in others for against in ("grpo", "credit")]
    apart = ("--out", f"outputs/evidence_credit.{name}/estimates", "--contrasts", *pairs)
    return _start_and_compare(steps, name, name, runs, overrides, *apart)


def _as_chosen(task: CreditTask, arms: Sequence[str], seeds: Sequence[str]) -> Iterator[Overrides]:
    """One multirun; if arms have separate choices, one per seed and choice."""
    choices = list(dict.fromkeys(_choice(task, arm) for arm in arms))
    for some in [seeds] if len(choices) == 1 else [[seed] for seed in seeds]:
        for choice in choices:
            chosen = [arm for arm in arms if _choice(task, arm) == choice]
            own = _own_choice(task, chosen[0])
            yield f"data.seed={','.join(some)}", f"arm={','.join(chosen)}", *own, f"run.name={ARM}.{SEED}"


def _choice(task: CreditTask, arm: str) -> tuple[str, str]:
    """Size and rate of an arm; "" for the experiment's."""
    return task.own.get("credit" if arm in AS_CREDIT else arm, ("", ""))


def _own_choice(task: CreditTask, arm: str) -> Overrides:
    """Overrides of an arm's own update size and rate; none for the experiment's."""
    size, rate = _choice(task, arm)
    return (*(size_overrides(size) if size else ()), *((f"{RATE}={rate}",) if rate else ()))


def _longer(steps: Steps[CreditOptions], name: str, overrides: Overrides) -> int:
    """Credit against GRPO with as many and with twice the updates, over which its rate falls, at rates that hold."""
    updates = int(stated(f"credit_{name}", "trainer.total_training_steps"))
    arms = {"credit": ("credit", ()), "grpo": ("grpo", ()), "grpo_longer": ("grpo", _length(2 * updates))}
    runs = _at_rates_that_hold(steps.options, arms, LONGER_SEEDS)
    both = ("--lengths-differ", "--each", "--contrasts", "credit:grpo", "credit:grpo_longer")
    return _start_and_compare(steps, name, f"{name}_longer", runs, overrides, *both)


def _rivals(steps: Steps[CreditOptions], name: str, overrides: Overrides) -> int:
    """Arms of other papers and inverted credits, with GRPO and credit on separate seeds."""
    runs = [(*RIVAL_LENGTH, *run) for run in _at_rates_that_hold(steps.options, RIVALS, RIVAL_SEEDS)]
    return _start_and_compare(steps, name, f"{name}_rivals", runs, overrides, "--each", "--contrasts", *RIVAL_CONTRASTS)


def _at_rates_that_hold(
    given: CreditOptions, arms: Mapping[str, tuple[str, Overrides]], seeds: str
) -> list[tuple[str, ...]]:
    """A run per seed and label; seeds outside, so that a stopped study has whole pairs. arms: arm and overrides."""
    return [
        (f"data.seed={seed}", f"arm={arm}", f"{RATE}={RATES_THAT_HOLD[arm]}", *more, f"run.name={label}.{SEED}")
        for seed in (given.seeds or seeds).split()
        for label in known("arm", (given.arms or " ".join(arms)).split(), arms)
        for arm, more in [arms[label]]
    ]


def _agents(steps: Steps[CreditOptions], name: str, overrides: Overrides) -> int:
    """Credit per turn against GiGPO and plain GRPO, from a start that has seen second turns."""
    given, data = steps.options, AGENTS.data
    steps.micro_start()
    steps.make_rows(data, "micro", "--skills", "write", "repair", "--agents", files=MICRO_ROWS)
    start_with_second_turns(steps, data)
    rows = (f"data.train_files={data}/train.parquet", f"data.val_files={data}/val.parquet")
    chosen = (
        *rows, f"actor_rollout_ref.model.path={data}/model", "skills.names=[write,repair]", *AGENT_OPTIONS,
        f"data.seed={listed(given.seeds or AGENTS.seeds)}", f"arm={listed(given.arms or AGENTS.arms)}",
        f"run.name={ARM}.{SEED}",
    )  # fmt: skip
    return _compare(steps, AGENTS, "quickstart", name, [chosen], overrides, "--contrasts", *AGENTS.contrasts)


STAGES: dict[str, tuple[Callable[[Steps[CreditOptions], str, Overrides], int], str]] = {
    "rates": (_rates, " ".join(TASKS)),
    "arms": (_arms, " ".join(TASKS)),
    "longer": (_longer, "parts16"),
    "rivals": (_rivals, "parts16"),
    "agents": (_agents, "agents"),
}
"""Each stage and its tasks."""


def _start_and_compare(
    steps: Steps[CreditOptions],
    name: str,
    title: str,
    runs: Sequence[Overrides],
    overrides: Overrides,
    *report: str,
) -> int:
    """Make the task's start and compare runs from it; see `_compare`."""
    task, earlier = TASKS[name], Path(steps.options.start, name, "model")
    steps.micro_start(task.data, *task.start, *(("--model", str(earlier)) if steps.options.start else ()))
    return _compare(steps, task, f"credit_{name}", title, runs, overrides, *report)


def _compare(
    steps: Steps[CreditOptions], task: CreditTask, experiment: str, title: str, runs: Sequence[Overrides],
    overrides: Overrides, *report: str,
) -> int:  # fmt: skip
    """Run what is missing and print the table; returns the status of a run that failed, 0 if none did.

    runs: the overrides that distinguish the runs, one tuple per multirun. report: options of the table.
    """
    name = f"evidence_credit.{title}"
    out = f"outputs/{name}"
    if steps.options.kept:
        steps = steps.changed(kept=str(Path(steps.options.kept, f"{title}.jsonl.xz")))
    steps.take_kept(out)
    rows = {"train": f"{task.data}/train.parquet", "val": f"{task.data}/val.parquet"}
    settings = {"train": f"{' '.join(overrides)} {steps.options.train}"}
    steps.study = MadeWith(out, {"start": f"{task.data}/model"}, rows, settings)
    for chosen in runs:
        steps.multirun(f"experiment={experiment}", f"run.experiment={name}", *chosen, *overrides)
    steps.keep_runs(out)
    goal = ("--reach", steps.options.reach or task.reach, *task.goal)
    steps.module("recipe.report", "online", out, *goal, *report)
    return steps.failed
