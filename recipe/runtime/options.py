"""The options of studies, which their user sets as environment variables: TRAIN for the field `train`, and so on.

Each study declares its own: one of these classes, in the signature of its function (`recipe.studies`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Self

# "" is a choice: none of them.
MAY_BE_EMPTY = ("arms", "baselines", "epsilons")
PLATFORMS = ("cpu", "gpu_1x8", "gpu_ray")
SWITCH = ("on", "off")
NUMBERS = ("length", "jobs", "problems")
SET_BY_SHELLS = ("name",)  # of WSL: its NAME, the computer's, is no option of a study that has none
# They concern the shell that starts a study; a submitted job has its own.
LOCAL = ("dry_run",)


class OptionError(ValueError):
    """An option has a value that it cannot have, or is another study's; the message addresses the user."""


@dataclass(frozen=True)
class Options:
    """Options of every study; empty or None: the study's default."""

    platform: str = ""  # cpu (default), gpu_1x8 or gpu_ray
    python: str = ""  # the interpreter of the commands (default: the one that runs the study)
    dry_run: str = ""  # 1: print the commands, run none
    train: str = ""  # more overrides of recipe.train for every run, such as "trainer.total_training_steps=5"
    length: str = ""  # tokens of an answer everywhere (default: data.max_response_length of the experiment's file)
    thinking: str = ""  # on or off: enable_thinking of the chat template, in training, probe and evaluation
    evaluate: str = ""  # more options of recipe.evaluate for every evaluation, such as "--limit 100"
    export: str = ""  # more options of recipe.export, such as "--prompts 0": no comparison of vLLM with transformers
    probe: str = ""  # more options of recipe.probe, such as "--limit 64 --samples 8"

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Self:
        """The options that an environment sets; OptionError for a value that cannot be one, or another study's option.

        An empty variable is one that is not set.
        """
        set_ = {name: environment[name.upper()] for name in every_name() if environment.get(name.upper())}
        if foreign := [name.upper() for name in set_ if name not in (*names(cls), *SET_BY_SHELLS)]:
            valid = ", ".join(name.upper() for name in names(cls))
            raise OptionError(f"{foreign[0]} is an option of other studies: unset {foreign[0]}. Options here: {valid}")
        empty = {name: "" for name in names(cls) if name in MAY_BE_EMPTY and environment.get(name.upper()) == ""}
        given = set_ | empty
        if (platform := given.get("platform", "cpu")) not in PLATFORMS:
            raise OptionError(f"unknown PLATFORM '{platform}'; valid ones: {', '.join(PLATFORMS)}")
        if (thinking := given.get("thinking", "on")) not in SWITCH:
            raise OptionError(f"unknown THINKING '{thinking}'; valid ones: {', '.join(SWITCH)}")
        if wrong := [name for name in NUMBERS if not given.get(name, "0").isdecimal()]:
            raise OptionError(f"{wrong[0].upper()}={given[wrong[0]]} must be a whole number")
        return cls(**{name: value for name, value in given.items() if name in names(cls)})

    def variables(self) -> dict[str, str]:
        """The environment that sets these options."""
        named = {name.upper(): getattr(self, name) for name in names(type(self))}
        return {name: value for name, value in named.items() if value or (value == "" and name.lower() in MAY_BE_EMPTY)}


@dataclass(frozen=True)
class TaskOptions(Options):
    """Options of a task, such as Countdown or GSM8K."""

    source: str = ""  # the module of data_prep.sources that makes its data
    source_options: str = ""  # more options of that module, such as "--limit 640"
    folder: str = ""  # another place for data and evaluations (default: the task's name)
    name: str = ""  # of the run (default: study)
    preset: str = ""  # a file of configs/model_preset, for GPUs


@dataclass(frozen=True)
class RejectionOptions(Options):
    """Options of studies that train on accepted answers (`recipe.studies.coding`)."""

    experiment: str = ""  # a file of configs/experiment
    sft: str = ""  # more overrides of recipe.sft
    sft_experiment: str = ""  # a file of configs/sft_experiment
    samples: str = ""  # per problem


@dataclass(frozen=True)
class CodingOptions(RejectionOptions):
    """Options of the coding pipeline."""

    data: str = ""  # folder with train.parquet and dev.parquet of data_prep.govern
    out: str = ""  # folder of the study
    without: str = ""  # phases to leave out, such as "2 4"
    dpo: str = ""  # more options of recipe.dpo
    reward: str = ""  # dense or sparse
    agents: str = ""  # a file of configs/agents
    repair: str = ""  # more overrides of phase 4's training
    seeds: str = ""  # of ablate_rewards
    reach: str = ""  # of ablate_rewards: the accuracy whose first update is compared


@dataclass(frozen=True)
class LmEvalOptions(Options):
    """Options of evaluations on public sets."""

    experiment: str = ""  # a file of configs/experiment
    sets: str = ""  # tasks of lm-eval
    lm_eval: str = ""  # more options of `lm_eval run`
    vllm_args: str = ""  # more options of its vLLM, such as "tensor_parallel_size=8"


@dataclass(frozen=True)
class GraphOptions(RejectionOptions, LmEvalOptions):
    """Options of NPG-Muse."""

    tasks: str = ""  # graph tasks of data_prep.graphs
    teacher: str = ""  # the model whose accepted answers a supervised start learns (default: the model itself)
    volumes: str = ""  # numbers of rows to choose from
    sequence_parallel: str = ""  # 4; out of memory: 8
    offload_ref: str = ""  # false; out of memory: true
    jobs: str = ""  # runs at a time (default: what the Ray cluster has room for with gpu_ray, else 1)
    what: str = ""  # groups of the evaluation: in_task, cross_task, cross_domain
    problems: str = ""  # of each group


@dataclass(frozen=True)
class KeptOptions(Options):
    """Options of studies whose finished runs can be kept."""

    kept: str = ""  # file of recipe.keep whose runs count as done, and to which new ones are added (of some: folder)


@dataclass(frozen=True)
class RunsOptions(KeptOptions):
    """Options of studies of several seeds."""

    seeds: str = ""


@dataclass(frozen=True)
class ArmOptions(RunsOptions):
    """Options of studies that compare arms."""

    arms: str | None = None  # files of configs/arm


@dataclass(frozen=True)
class EvidenceAOptions(ArmOptions):
    """Options of paper A's comparison."""

    suite: str = ""  # skills of the micro suite
    reach: str = ""  # the accuracy whose first update is compared


@dataclass(frozen=True)
class OrderOptions(ArmOptions):
    """Options of studies that train skills in several orders."""

    orders: str = ""  # forward, backward
    values: str = ""  # strengths that the stage tune tries of one arm, in place of its three


@dataclass(frozen=True)
class SafeOptions(OrderOptions):
    """Options of the evidence of bounded forgetting."""

    start: str = ""  # folder of the starting model, made earlier


@dataclass(frozen=True)
class EvidenceBOptions(OrderOptions):
    """Options of paper B's comparison."""

    epsilons: str | None = None  # how much protected skills may lose, as a cosine, with the arm qp_solutions


@dataclass(frozen=True)
class StrengthOptions(KeptOptions):
    """Options of the comparison of the baselines' strengths."""

    seed: str = ""


@dataclass(frozen=True)
class PaperBOptions(Options):
    """Options of paper B: the baseline matrix."""

    seeds: str = ""
    arms: str | None = None  # files of configs/arm
    baselines: str | None = None  # single (each skill alone), mixed
    epsilons: str | None = None  # how much protected skills may lose, as a cosine, with the arm qp_solutions
    # With a real model.
    refresh_steps: str = ""  # of the arm refresh
    train_files: str = ""  # parquet
    val_files: str = ""
    skills: str = ""  # their order, as [a,b,c]


@dataclass(frozen=True)
class HackingOptions(ArmOptions):
    """Options of the study of reward hacking."""

    source_options: str = ""  # more options of data_prep.micro


@dataclass(frozen=True)
class CreditOptions(ArmOptions):
    """Options of the evidence for credit."""

    tasks: str = ""  # parts16, parts4, chain8
    rates: str = ""  # learning rates
    sizes: str = ""  # of updates in the stage rates, such as "2x8 1x4": prompts x samples (default: the experiment's)
    start: str = ""  # a folder with the starting model of each task (parts16/model), made earlier
    reach: str = ""  # the accuracy whose first update is compared


@dataclass(frozen=True)
class StartOptions(RunsOptions):
    """Options of studies that start from a pretrained model."""

    model: str = ""  # in place of scripts/pretrained.sh's argument: a Hugging Face folder or a hub name
    name: str = ""  # of the run (default: study)
    sft: str = ""  # more overrides of recipe.sft


@dataclass(frozen=True)
class PretrainedOptions(StartOptions):
    """Options of the pretrained model's study."""

    folder: str = ""  # another place for data
    out: str = ""  # folder of the study


@dataclass(frozen=True)
class PretrainedEvidenceOptions(StartOptions, OrderOptions):
    """Options of both papers' evidence with a pretrained model."""

    rates: str = ""  # learning rates
    samples: str = ""  # per prompt, of grpo_more_samples


def names(kind: type[Options]) -> list[str]:
    """The names of a study's options, as fields."""
    return [field.name for field in fields(kind)]


def every_name(kind: type[Options] = Options) -> list[str]:
    """The names of the options of all studies, as fields."""
    return list(dict.fromkeys(_names_of_all(kind)))


def _names_of_all(kind: type[Options]) -> Iterator[str]:
    yield from names(kind)
    for study in kind.__subclasses__():
        yield from _names_of_all(study)


def forwarded_variables() -> set[str]:
    """The environment variables that go with a study to the cluster it is submitted to."""
    return {name.upper() for name in every_name() if name not in LOCAL}
