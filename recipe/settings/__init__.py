"""Typed form of our configuration groups: rejects unknown keys and values out of range before Ray starts.

Each model mirrors one folder of ``configs/``; the YAML files document the keys, the models define their valid values.
Defaults here equal those of the YAML files (tests/configs/test_defaults.py) and apply to files that omit the key
(credit=off).
"""

import difflib
from collections.abc import Sequence
from typing import Any, Literal

from hydra import compose, initialize_config_module
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel, Field, ValidationError, model_validator

from recipe.settings.group import Group
from recipe.settings.group import SettingsError as SettingsError
from recipe.settings.projection import ProjectionSettings as ProjectionSettings
from rewards.counterfactual.plan import BY_STEP, Choice, Method, Plan, Prefixes
from rewards.counterfactual.segments import Unit
from rewards.environments import ENVIRONMENTS
from rewards.sandbox.server.modes import Mode
from rewards.skills import SkillSource
from workers.choices import OF_GAIN, Ablation, CreditMapping, Normalization, PenaltyKind, Rival
from workers.cpu.processor import Precision
from workers.skill_metrics import OVER_SKILLS


class RunSettings(Group):
    """Records, console output and limits of a run (``run.*``)."""

    root: str = Field(min_length=1)
    experiment: str = Field(min_length=1, pattern=r"^[A-Za-z0-9._-]+$")
    name: str | None = Field(default=None, pattern=r"^[A-Za-z0-9._-]+$")
    poll_interval: float = Field(gt=0, le=10)
    seeded_samples: bool
    greedy_validation: bool
    share_first_validation: bool
    max_masked_share: float = Field(ge=0, le=1)
    generations_per_step: int = Field(ge=0)
    precision: Precision = "auto"
    gpu_memory_gib: float = Field(gt=0)
    line_every_seconds: float = Field(gt=0)
    directory: str | None = None
    command: str | None = None


class SkillsSettings(Group):
    """Names of a run's skills, and how rows are assigned to them (``skills.*``)."""

    names: list[str] | None = None
    by: SkillSource = "column"
    column: str = Field(default="skill", min_length=1)
    function: str | None = None


class ProtocolSettings(Group):
    """Which prompts a step trains on (``protocol.*``)."""

    kind: Literal["mixed", "sequential", "curriculum"]
    every_skill: bool = False
    weights: Literal["fixed", "worst"] = "fixed"
    weight_rate: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    weight_trade: float = Field(default=0.2, ge=0, allow_inf_nan=False)
    skill_sequence: list[str] | None = None
    levels: list[list[str]] | None = None
    mixing: Literal["ordered", "linear"] = "ordered"
    stage_steps: int = Field(default=2000, ge=1)
    memory_per_protected: int = Field(default=8, ge=0)
    memory_size: int = Field(default=64, ge=1)
    replay_share: float = Field(default=0.0, ge=0, lt=1)
    replay_from: Literal["store", "mastered"] = "store"
    refresh_steps: int = Field(default=0, ge=0)
    val_n_of_others: int | None = Field(default=None, ge=1)
    seed: int = Field(default=0, ge=0)


class CreditSettings(Group):
    """Counterfactual credit per step of a solution (``credit.*``)."""

    kind: Literal["off", "counterfactual"]
    methods: tuple[Method, ...] = Plan.methods
    unit: Unit = Plan.unit
    text_steps: bool = Plan.text_steps
    budget: int = Field(default=Plan.budget, ge=1)
    choice: Choice = Plan.choice
    check_flaky: bool = Plan.check_flaky
    continuations: int = Field(default=Plan.continuations, ge=1)
    prefixes: Prefixes = Plan.prefixes
    discount: float = Plan.discount
    all_or_nothing: bool = Plan.all_or_nothing
    coverage: bool = Plan.coverage
    align: bool = Plan.align
    skip_equal_groups: bool = True
    patience: float = Field(default=3600.0, gt=0)
    cache_size: int = Field(default=65_536, ge=1)
    seed: int = 0
    strength: float = Field(default=1.0, ge=0)
    mapping: CreditMapping | Rival = "redistribute"
    max_probability: float = Field(default=1.0, gt=0, le=1)
    normalization: Normalization = "siblings"
    tolerance: float = Field(default=1e-6, gt=0)
    min_valid: int = Field(default=2, ge=2)
    zero_advantage: bool = True
    ablation: Ablation = "none"

    @model_validator(mode="after")
    def _replays_can_be_made(self) -> "CreditSettings":
        Plan.of_config(self)
        if self.mapping == "values" and self.strength != 1.0:
            raise ValueError(f"mapping=values takes advantages from credits alone: strength is {self.strength}, set 1")
        if self.max_probability < 1.0 and self.mapping != "values":
            raise ValueError(f"max_probability needs mapping=values, and mapping is {self.mapping}")
        # Other methods give the credit of a block to all of its steps.
        if set(self.methods) <= set(BY_STEP) and self.min_valid > 2 * self.budget:
            raise ValueError(
                f"min_valid={self.min_valid} credits are more than a response can have: the methods "
                f"{', '.join(self.methods)} give one per replay, at most twice budget={self.budget}. "
                "Lower min_valid or raise budget"
            )
        return self


class AgentsSettings(Group):
    """Agents that act in several turns (``agents.*``)."""

    max_turns: int = Field(ge=1)
    role: Literal["user", "tool"]
    observation_characters: int = Field(ge=1)
    feedback: dict[str, str]

    @model_validator(mode="after")
    def _every_agent_gets_feedback(self) -> "AgentsSettings":
        if self.feedback.keys() != ENVIRONMENTS.keys():
            raise ValueError(f"feedback needs a text for each of {', '.join(ENVIRONMENTS)}, and no other keys")
        for name, environment in ENVIRONMENTS.items():
            environment.check_feedback(self.feedback[name])
        return self


class FailuresSettings(Group):
    """Retries of prompts that the policy failed (``failures.*``)."""

    share: float = Field(ge=0, lt=1)
    capacity: int = Field(ge=1)


class AgopSettings(Group):
    """Statistics of the policy gradient (``agop.*``)."""

    every: int = Field(ge=0)
    parts: int = Field(ge=2, le=64)


class PenaltySettings(Group):
    """A penalty on the distance from the start of a stage, a baseline for projection (``penalty.*``)."""

    kind: Literal["off", PenaltyKind]
    strength: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    solutions: int = Field(default=48, ge=1)


class SandboxSettings(Group):
    """How verifiers reach the sandbox (``sandbox.*``)."""

    url: str | list[str] | None = None
    isolation: Mode | None = None
    timeout: float = Field(gt=0)
    memory_mb: int = Field(ge=64)


class Settings(Group):
    """All configuration groups of this plug-in."""

    run: RunSettings
    skills: SkillsSettings
    protocol: ProtocolSettings
    credit: CreditSettings
    projection: ProjectionSettings
    agents: AgentsSettings
    failures: FailuresSettings
    agop: AgopSettings
    penalty: PenaltySettings
    sandbox: SandboxSettings

    @property
    def stages(self) -> list[list[str]] | None:
        """The skills that each stage trains, in order; None for protocol mixed, which has no stages."""
        if self.protocol.kind == "sequential":
            return [[skill] for skill in self.protocol.skill_sequence or self.skills.names or []]
        return self.protocol.levels or [] if self.protocol.kind == "curriculum" else None

    @property
    def protected(self) -> list[str]:
        """Skills that projection may protect; none if it is off."""
        if self.projection.method == "off":
            return []
        named = self.projection.protected
        return list((self.skills.names if named is None else named) or [])

    @model_validator(mode="after")
    def _protected_skills_are_known(self) -> "Settings":
        projection = self.projection
        if projection.method == "off":
            return self
        names = self.skills.names
        if not names:
            raise ValueError("projection needs skills.names: the skills whose samples define the constraints")
        protected = self.protected
        unknown = sorted(set(protected) - set(names))
        if unknown:
            raise ValueError(f"projection.protected names {unknown}, which are not in skills.names: {names}")
        if not 1 <= len(protected) <= projection.max_protected:
            raise ValueError(
                f"projection.protected has {len(protected)} skills; between 1 and projection.max_protected="
                f"{projection.max_protected} can be protected"
            )
        return self

    @model_validator(mode="after")
    def _choices_are_compatible(self) -> "Settings":
        projection, protocol = self.projection, self.protocol
        projection.check_epsilons(self.protected)
        if self.failures.share and (self.stages is not None or protocol.every_skill):
            raise ValueError(
                f"failures.share={self.failures.share} changes which prompts a step trains on, but "
                f"protocol={protocol.kind} fixes them: set failures.share=0, or use protocol=mixed without every_skill"
            )
        if protocol.weights == "worst" and not (protocol.kind == "mixed" and protocol.every_skill):
            raise ValueError("protocol.weights=worst needs protocol=mixed and protocol.every_skill=true")
        if protocol.replay_from == "mastered" and not (protocol.replay_share or protocol.refresh_steps):
            raise ValueError(
                "protocol.replay_from=mastered replays nothing: set protocol.replay_share or protocol.refresh_steps"
            )
        watched = projection.when == "forgetting" and projection.forgetting_accuracy == "training"
        sampled = projection.constraint_source != "solutions" or protocol.replay_share > 0
        if watched and self.stages is not None and not sampled:
            raise ValueError(
                "projection.forgetting_accuracy=training needs samples of the earlier skills, from memory prompts or "
                "replay: set projection.constraint_source=rollouts or both, protocol.replay_share > 0, or "
                "forgetting_accuracy=validation"
            )
        on_rollouts = projection.method != "off" and projection.constraint_source != "solutions"
        if on_rollouts and self.stages is not None and protocol.memory_per_protected == 0:
            raise ValueError(
                "protocol.memory_per_protected=0 leaves the protected skills without samples for their constraints: "
                "raise it, or use projection.constraint_source=solutions"
            )
        return self

    @model_validator(mode="after")
    def _stages_can_be_made(self) -> "Settings":
        protocol, stages = self.protocol, self.stages
        if stages is None:
            staged = {"protocol.replay_share": protocol.replay_share, "protocol.refresh_steps": protocol.refresh_steps}
            used = [key for key, value in staged.items() if value]
            used += ["penalty"] if self.penalty.kind != "off" else []
            if used:
                raise ValueError(f"{', '.join(used)} needs stages: use protocol=sequential or protocol=curriculum")
            return self
        key = "protocol.skill_sequence" if protocol.kind == "sequential" else "protocol.levels"
        if not stages or not all(stages):
            raise ValueError(f"{key} names no skill, or a level without one: {stages}")
        skills = [skill for stage in stages for skill in stage]
        unknown = sorted(set(skills) - set(self.skills.names or skills))
        if unknown:
            raise ValueError(f"{key} names {unknown}, which are not in skills.names: {self.skills.names}")
        if any(len(set(stage)) != len(stage) for stage in stages):
            raise ValueError(f"{key} names a skill twice in one level: {stages}")
        if protocol.refresh_steps > protocol.stage_steps:
            raise ValueError(
                f"protocol.refresh_steps={protocol.refresh_steps} are taken from the last stage, which has only "
                f"protocol.stage_steps={protocol.stage_steps}"
            )
        return self

    @model_validator(mode="after")
    def _penalty_has_a_strength(self) -> "Settings":
        if self.penalty.kind != "off" and self.penalty.strength == 0:
            raise ValueError(f"penalty={self.penalty.kind} has no effect with penalty.strength=0: set it above 0")
        return self

    @model_validator(mode="after")
    def _skills_are_distinct(self) -> "Settings":
        names = self.skills.names
        if names is not None and len(set(names)) != len(names):
            raise ValueError(f"skills.names lists a skill twice: {names}")
        if taken := sorted({*OVER_SKILLS} & {*(names or ())}):
            raise ValueError(f"skills.names has {taken[0]!r}, the name of a metric over all skills: rename this skill")
        if self.projection.gain and (taken := sorted({name + OF_GAIN for name in names or ()} & {*(names or ())})):
            raise ValueError(f"skills.names has {taken[0]!r}, the name of a constraint: rename this skill")
        return self


def read_settings(config: DictConfig) -> Settings:
    """Our groups of a composed configuration as typed settings.

    Raises:
        SettingsError: one line per key that is unknown or has a value out of range; or the engine is not FSDP.
    """
    _check_engine(config)
    nodes: dict[str, Any] = {}
    for name in Settings.model_fields:
        node = config.get(name)
        nodes[name] = OmegaConf.to_container(node, resolve=True) if isinstance(node, DictConfig) else node
    try:
        return Settings.model_validate(nodes)
    except ValidationError as error:
        raise SettingsError("\n".join(_explain(problem) for problem in error.errors())) from None


def _check_engine(config: DictConfig) -> None:
    """Refuse engines other than FSDP: updates, constraints and adapters read FSDP's shards and settings."""
    actor = OmegaConf.select(config, "actor_rollout_ref.actor") or {}
    engine, strategy = str(actor.get("_target_", "FSDPActorConfig")), actor.get("strategy", "fsdp2")
    if not engine.endswith("FSDPActorConfig") or strategy not in ("fsdp", "fsdp2"):
        raise SettingsError(
            f"the trainer's engine ({engine.rpartition('.')[2]}, strategy {strategy}) is not FSDP, the only one whose "
            "parameters this plug-in reads: set model_engine=dp and actor_rollout_ref.actor.strategy=fsdp2"
        )


def read_agents(name: str, overrides: Sequence[str] = ()) -> AgentsSettings:
    """The settings of `configs/agents/NAME.yaml` with overrides such as `agents.max_turns=2`, as in a training run.

    Raises:
        SettingsError: the file is missing, a key is unknown or a value out of range.
    """
    try:
        with initialize_config_module("configs", version_base=None):
            node = OmegaConf.to_container(compose(f"agents/{name}", list(overrides)).agents)
        return AgentsSettings.model_validate(node)
    except (HydraException, OmegaConfBaseException) as error:
        raise SettingsError(f"agents={name}: {error}") from None
    except ValidationError as error:
        problems = [_explain({**problem, "loc": ("agents", *problem["loc"])}) for problem in error.errors()]
        raise SettingsError("\n".join(problems)) from None


def _explain(problem: Any) -> str:
    path = ".".join(str(part) for part in problem["loc"])
    if problem["type"] != "extra_forbidden":
        given = problem["input"]
        shown = "" if isinstance(given, dict) else f" (got {given!r})"  # a rule of several keys names them itself
        return f"{path or 'configuration'}: {problem['msg']}{shown}"
    *parents, key = problem["loc"]
    model: type[BaseModel] = Settings
    for parent in parents:
        annotation = model.model_fields[str(parent)].annotation
        assert isinstance(annotation, type)
        assert issubclass(annotation, BaseModel)
        model = annotation
    return f"{path}: no such key. {did_you_mean(str(key), list(model.model_fields))}"


def did_you_mean(word: str, valid: list[str]) -> str:
    """A hint for a mistyped name: the nearest valid one, if any is close, and all valid ones."""
    near = difflib.get_close_matches(word, valid, n=1)
    hint = f"Did you mean {near[0]}? " if near else ""
    return f"{hint}Valid: {', '.join(sorted(valid))}"


def engines_apart(config: DictConfig) -> int:
    """Accelerators of engines that are not the trainer's, and compute while it trains."""
    shared = OmegaConf.select(config, "actor_rollout_ref.hybrid_engine", default=True)
    rollout = OmegaConf.select(config, "actor_rollout_ref.rollout")
    return 0 if shared else int(rollout.nnodes * rollout.n_gpus_per_node)
