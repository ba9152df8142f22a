"""The options of a study, which its user sets as environment variables: TRAIN for the field `train`, and so on."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

# "" is a choice: none of them.
MAY_BE_EMPTY = ("arms", "baselines", "epsilons")
PLATFORMS = ("cpu", "gpu_1x8", "gpu_ray")
SWITCH = ("on", "off")
NUMBERS = ("length", "jobs", "problems")
# They concern the shell that starts a study; a submitted job has its own.
LOCAL = ("dry_run",)


class OptionError(ValueError):
    """An option has a value that it cannot have; the message addresses the user."""


@dataclass(frozen=True)
class Options:
    """Every option of every study; empty or None: the study's default."""

    # Of all studies.
    platform: str = ""  # cpu (default), gpu_1x8 or gpu_ray
    python: str = ""  # the interpreter of the commands (default: the one that runs the study)
    dry_run: str = ""  # 1: print the commands, run none
    train: str = ""  # more overrides of recipe.train for every run, such as "trainer.total_training_steps=5"
    length: str = ""  # tokens of an answer everywhere (default: data.max_response_length of the experiment's file)
    thinking: str = ""  # on or off: enable_thinking of the chat template, in training, probe and evaluation
    evaluate: str = ""  # more options of recipe.evaluate for every evaluation, such as "--limit 100"
    export: str = ""  # more options of recipe.export, such as "--prompts 0": no comparison of vLLM with transformers
    probe: str = ""  # more options of recipe.probe, such as "--limit 64 --samples 8"
    experiment: str = ""  # a file of configs/experiment
    # Of a task (countdown, gsm8k) and of the pretrained model.
    source: str = ""  # the module of data_prep.sources that makes its data
    source_options: str = ""  # more options of that module, such as "--limit 640"; of hacking: of data_prep.micro
    folder: str = ""  # another place for data and evaluations (default: the task's name)
    name: str = ""  # of the run (default: study)
    model: str = ""  # of scripts/pretrained.sh, in place of its argument: a Hugging Face folder or a hub name
    preset: str = ""  # a file of configs/model_preset, for GPUs
    # Of the coding pipeline.
    data: str = ""  # folder with train.parquet and dev.parquet of data_prep.govern
    out: str = ""  # folder of the study
    without: str = ""  # phases to leave out, such as "2 4"
    samples: str = ""  # per problem, for SFT and DPO; per prompt, of evidence_credit's grpo_more_samples
    sft: str = ""  # more overrides of recipe.sft
    sft_experiment: str = ""  # a file of configs/sft_experiment
    dpo: str = ""  # more options of recipe.dpo
    reward: str = ""  # dense or sparse
    agents: str = ""  # a file of configs/agents
    repair: str = ""  # more overrides of phase 4's training
    # Of NPG-Muse.
    tasks: str = ""  # graph tasks of data_prep.graphs; of evidence_credit: parts16, parts4, chain8
    # Of the supervised start: the model whose accepted answers it learns (default: the model itself).
    teacher: str = ""
    volumes: str = ""  # numbers of rows to choose from
    sequence_parallel: str = ""  # 4; out of memory: 8
    offload_ref: str = ""  # false; out of memory: true
    jobs: str = ""  # runs at a time (default: what the Ray cluster has room for with gpu_ray, else 1)
    what: str = ""  # groups of the evaluation: in_task, cross_task, cross_domain
    problems: str = ""  # of each group
    sets: str = ""  # tasks of lm-eval
    lm_eval: str = ""  # more options of `lm_eval run`
    vllm_args: str = ""  # more options of its vLLM, such as "tensor_parallel_size=8"
    # Of the papers' evidence.
    seeds: str = ""
    seed: str = ""  # of the comparison of strengths
    arms: str | None = None  # files of configs/arm
    baselines: str | None = None  # of paper B: single (each skill alone), mixed
    epsilons: str | None = None  # how much protected skills may lose, as a cosine, with the arm qp_solutions
    orders: str = ""  # forward, backward
    suite: str = ""  # skills of the micro suite
    reach: str = ""  # the accuracy whose first update is compared
    kept: str = (
        ""  # file of recipe.keep whose runs count as done, and to which new ones are added (of some studies: folder)
    )
    rates: str = ""  # learning rates that evidence_credit compares
    start: str = ""  # of evidence_credit: a folder with the starting model of each task (parts16/model), made earlier
    refresh_steps: str = ""  # of the arm refresh, with a real model
    train_files: str = ""  # parquet, of paper B with a real model
    val_files: str = ""
    skills: str = ""  # their order, as [a,b,c]

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "Options":
        """The options that an environment sets; OptionError for a value that cannot be one."""
        given = {name: environment[name.upper()] for name in names() if name.upper() in environment}
        given = {name: value for name, value in given.items() if value or name in MAY_BE_EMPTY}
        if (platform := given.get("platform", "cpu")) not in PLATFORMS:
            raise OptionError(f"unknown PLATFORM '{platform}'; valid ones: {', '.join(PLATFORMS)}")
        if (thinking := given.get("thinking", "on")) not in SWITCH:
            raise OptionError(f"unknown THINKING '{thinking}'; valid ones: {', '.join(SWITCH)}")
        if wrong := [name for name in NUMBERS if not given.get(name, "0").isdecimal()]:
            raise OptionError(f"{wrong[0].upper()}={given[wrong[0]]} must be a whole number")
        return cls(**given)

    def variables(self) -> dict[str, str]:
        """The environment that sets these options."""
        named = {name.upper(): getattr(self, name) for name in names()}
        return {name: value for name, value in named.items() if value or (value == "" and name.lower() in MAY_BE_EMPTY)}


def names() -> list[str]:
    """The names of all options, as fields."""
    return [field.name for field in fields(Options)]


def forwarded_variables() -> set[str]:
    """The environment variables that go with a study to the cluster it is submitted to."""
    return {name.upper() for name in names() if name not in LOCAL}
