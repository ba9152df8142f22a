"""Selection of the skills that the next update protects, from peak accuracies and stored solutions; its checkpoint."""

import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from recipe.records.run_directory import PROJECTION, write_atomically
from recipe.settings import Settings
from recipe.settings.projection import CONSTRAINT_SOURCES
from recipe.training.failure_buffer import FailureBuffer
from recipe.training.schedule import PromptSchedule
from recipe.training.skill_accuracy import Reward
from workers.safety.anchors import AnchorError, Anchors
from workers.safety.levels import SkillLevel
from workers.solution_store import SolutionStore, StoredSolution
from workers.update_request import Constraint, Protection, WantedPenalty


class Peaks:
    """Latest and best accuracy of each skill, with an exponential average for noisy measurements.

    average: weight of earlier measurements; 0: no averaging. A skill's first measurements are averaged evenly, so that
    a single lucky one is no peak.
    """

    def __init__(self, average: float = 0.0):
        self.average = average
        self.best: dict[str, float] = {}
        self.latest: dict[str, float] = {}
        self._seen: dict[str, int] = {}

    def record(self, accuracies: Mapping[str, float | None]) -> None:
        """Record an accuracy in [0, 1] of each skill; None for a skill that was not measured."""
        for name, accuracy in accuracies.items():
            if accuracy is None:
                continue
            seen = self._seen.get(name, 0)
            weight = min(self.average, seen / (seen + 1))
            self._seen[name] = seen + 1
            self.latest[name] = weight * self.latest.get(name, 0.0) + (1 - weight) * accuracy
            # Until the average has its full length, it is nearly as noisy as a single measurement.
            if weight == self.average:
                self.best[name] = max(self.latest[name], self.best.get(name, 0.0))

    def below(self, name: str) -> float:
        """Best minus latest accuracy, >= 0; 0 until there are enough measurements for a best one."""
        return self.best[name] - self.latest[name] if name in self.best else 0.0

    def state(self) -> dict[str, Any]:
        """JSON-serialisable state for a checkpoint."""
        return {"best": self.best, "latest": self.latest, "seen": self._seen}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state`."""
        self.best, self.latest, self._seen = (dict(state[key]) for key in ("best", "latest", "seen"))


# verl's loss_agg_mode of the losses whose parts are means of the same kind (workers/engines.py).
TOKEN_MEAN = "token-mean"
SHARED_LOSSES = ("seq-mean-token-mean", TOKEN_MEAN)


def has_plain_loss(actor: DictConfig) -> bool:
    """Whether the policy's loss (verl's actor) is PPO's alone, so that parts of its gradient belong to its samples."""
    return not actor.use_kl_loss and not actor.entropy_coeff and actor.policy_loss.loss_mode == "vanilla"


class Protector:
    """Chooses what the actor protects, from the settings, past accuracies and accepted solutions.

    names: skills that may be protected; none if projection is off. Its state is saved with checkpoints.
    plain_loss: result of `has_plain_loss`; only then can parts of the policy's gradient be constraints.
    loss_mean: verl's loss_agg_mode. data_seed: the run's ``data.seed``, for the random signs of a control.
    """

    def __init__(
        self, settings: Settings, plain_loss: bool = True, loss_mean: str = TOKEN_MEAN, data_seed: int | None = 0
    ):
        self.settings = settings.projection
        self.plain_loss, self.loss_mean = plain_loss, loss_mean
        self.data_seed, self.sequence = data_seed, settings.protocol.skill_sequence
        self.penalty = settings.penalty
        self.all_names = list(settings.skills.names or [])
        self.names = settings.protected
        self.validated = Peaks()
        self.trained = Peaks(self.settings.forgetting_average)
        training = self.settings.forgetting_accuracy == "training"
        self.trigger = self.trained if training else self.validated
        wanted = [settings.penalty.solutions] if settings.penalty.kind in ("ewc", "rehearsal") else []
        if self.names and self.settings.constraint_source != "rollouts":
            wanted.append(self.settings.solutions_per_protected)
        self.solutions = SolutionStore(max(wanted)) if wanted else None
        self.anchors = Anchors()
        self.rewards: dict[str, Reward] = {}

    def record_validation(self, metrics: Mapping[str, float]) -> None:
        """Record the accuracies of a validation."""
        self.validated.record({name: metrics.get(f"skill/{name}/accuracy") for name in self.all_names})

    def record_training(self, metrics: Mapping[str, float]) -> None:
        """Record the accuracies of a training step's samples, including those of memory prompts."""
        self.trained.record({name: metrics.get(f"train_skill/{name}/accuracy") for name in self.all_names})

    def active(self, guarded: Sequence[str] | None = None) -> list[str]:
        """Names of the skills that the next update protects.

        guarded: skills that may be protected in this stage (`PromptPlan.guarded`); None in protocol mixed.
        """
        names = self.names if guarded is None else [name for name in self.names if name in guarded]
        if self.settings.when == "always":
            return names
        return [name for name in names if self.trigger.below(name) > self.settings.forgetting_margin]

    def forgotten(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """``skill/<name>/below_peak``: best minus current accuracy of each skill in this validation."""
        accuracies = {name: metrics.get(f"skill/{name}/accuracy") for name in self.all_names}
        best = self.validated.best
        return {
            f"skill/{name}/below_peak": max(best.get(name, accuracy), accuracy) - accuracy
            for name, accuracy in accuracies.items()
            if accuracy is not None
        }

    def record_rewards(self, rewards: Mapping[str, Reward]) -> None:
        """Record the reward of each skill's samples of this step: the levels of constraints from rollouts."""
        self.rewards = dict(rewards)

    def record_update(self, metrics: Mapping[str, Any]) -> None:
        """Record the levels that an update measured; a constraint's first one becomes its anchor."""
        prefix = f"{PROJECTION}/level/"
        for key in [key for key in metrics if key.startswith(prefix)]:
            self.anchors.measured(key.removeprefix(prefix), SkillLevel(float(metrics[key])))

    def protection(self, guarded: Sequence[str] | None = None, step: int = 0) -> Protection | None:
        """The protection of the next update; None if no skill is active.

        step: for the random signs of a control.
        """
        if guarded is not None:  # a skill that is trained again gets a new anchor afterwards
            trained = [name for name in self.names if name not in guarded]
            self.anchors.forget([each for name in trained for each in self._constraint_names(name).values()])
        staged = guarded is not None
        constraints = [each for name in self.active(guarded) for each in self._constraints(name, staged)]
        if not constraints:
            return None
        chosen = self.settings
        shared = guarded is None and chosen.constraint_source == "rollouts" and chosen.method != "measure"
        return Protection(
            constraints,
            # The configuration's "measure" is "none" in `workers.projection.project`.
            method="none" if chosen.method == "measure" else chosen.method,
            epsilon=chosen.epsilon,
            epsilon_kind=chosen.epsilon_kind,
            space=chosen.space,
            average=chosen.average,
            shared_pass=shared and self.plain_loss and self.loss_mean in SHARED_LOSSES,
            token_mean=self.loss_mean == TOKEN_MEAN,
            closed_loop=chosen.closed_loop,
            recovery=chosen.recovery,
            tries=chosen.verify_tries if chosen.verify else None,
            corrections=chosen.corrections,
            metric=chosen.metric,
            noise=chosen.noise,
            agreement=chosen.agreement,
            held_out=chosen.held_out,
            per_module=chosen.per_module,
            control=self._seed(step) if chosen.control == "random_signs" else None,
        )

    def _seed(self, step: int) -> int:
        """Of a step's random signs: another in each run of another `data.seed` or order of skills."""
        return zlib.crc32(json.dumps([self.data_seed, self.sequence, step]).encode())

    def _constraint_names(self, name: str) -> dict[str, str]:
        """The name of a skill's constraint by source: `<skill>`, or `<skill>.<source>` if there are two."""
        source = self.settings.constraint_source
        if source == "both":
            return {each: f"{name}.{each}" for each in CONSTRAINT_SOURCES}
        return {source: name}

    def _constraints(self, name: str, staged: bool) -> list[Constraint]:
        """One constraint per source. staged: the skill is not trained now, so its store is as full as it gets."""
        skill, constraints = self.all_names.index(name), []
        for source, constraint in self._constraint_names(name).items():
            epsilon = self.settings.epsilon_for(name, source)
            if source == "rollouts":
                constraints.append(self._on_rollouts(Constraint(constraint, skill, epsilon=epsilon), name))
            else:
                stored = self._newest(name, self.settings.solutions_per_protected)
                constraints += self._on_solutions(Constraint(constraint, skill, stored, epsilon), staged)
        return constraints

    def _on_rollouts(self, constraint: Constraint, skill: str) -> Constraint:
        """The constraint with its level, the reward of this step's samples, and its anchor, the first of them."""
        reward = self.rewards.get(skill)
        if not self.settings.closed_loop or reward is None:
            return constraint
        self.anchors.measured(constraint.name, reward.level)
        anchor = self.anchors.of(constraint.name).level
        if anchor is None:
            return constraint
        error = math.hypot(anchor.error, reward.level.error)
        return replace(constraint, anchor=anchor.value, level=reward.level.value, error=error, unit=reward.unit)

    def _on_solutions(self, constraint: Constraint, staged: bool) -> list[Constraint]:
        """The constraint with its frozen anchor set first, then its newest other solutions.

        A loop that asks for gain has two: one bounds the anchor set, which is verified, and the other asks all of them.
        """
        stored = list(constraint.solutions or [])
        size = min(self.settings.anchor_solutions, self.settings.solutions_per_protected)
        if not self.settings.anchored:
            return [constraint]
        ready = bool(stored) if staged else len(stored) >= size
        anchor = self.anchors.freeze(constraint.name, stored, size) if ready else self.anchors.of(constraint.name)
        others = [each for each in stored if each not in anchor.solutions]
        room = self.settings.solutions_per_protected - len(anchor.solutions)
        others = others[max(len(others) - room, 0) :]
        level = anchor.level.value if anchor.level else None
        bound = replace(constraint, anchored=len(anchor.solutions), anchor=level)
        if not self.settings.gain:
            return [replace(bound, solutions=[*anchor.solutions, *others])]
        if not anchor.solutions:  # nobody knows yet what the skill gains
            return [replace(bound, solutions=others), bound.asking(0.0, [])]
        bound = replace(bound, solutions=anchor.solutions)
        return [bound, bound.asking(self.settings.gain, others)]

    def wanted_penalty(self, stage: int, finished: Sequence[str], earlier: Sequence[str] = ()) -> WantedPenalty | None:
        """The penalty of the next update; None if penalties are off.

        finished: skills of the previous stage if this is the first update of a stage; else empty. earlier: skills of
        all earlier stages that this one does not train.
        """
        if self.penalty.kind == "off":
            return None
        chosen = {"ewc": finished, "rehearsal": earlier}.get(self.penalty.kind, ())
        solutions = [kept for name in chosen for kept in self._newest(name, self.penalty.solutions)]
        return WantedPenalty(self.penalty.kind, self.penalty.strength, stage, solutions)

    def _newest(self, name: str, count: int) -> list[StoredSolution]:
        assert self.solutions is not None
        return self.solutions.of(name)[-count:]

    def metrics(self, guarded: Sequence[str] | None = None) -> dict[str, float]:
        """Number of active constraints, distance of the deciding accuracies below their peaks, stored solutions."""
        numbers = {}
        if self.names:
            known = [name for name in self.names if name in self.trigger.best]
            numbers = {f"projection/below_peak/{name}": self.trigger.below(name) for name in known}
            numbers["projection/active_constraints"] = float(len(self.active(guarded)))
        if self.solutions:
            numbers |= {f"solutions/{name}": float(len(self.solutions.of(name))) for name in self.all_names}
        return numbers

    def state(self) -> dict[str, Any]:
        """JSON-serialisable state for a checkpoint."""
        solutions = self.solutions.state() if self.solutions else {}
        state = {"validated": self.validated.state(), "trained": self.trained.state(), "solutions": solutions}
        return state | ({"anchors": self.anchors.state()} if self.settings.anchored else {})

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state`.

        Raises:
            AnchorError: an anchor is damaged, or lost the solutions that its level was measured on.
        """
        self.validated.restore(state["validated"])
        self.trained.restore(state["trained"])
        self.anchors.restore(state.get("anchors", {}))
        if self.solutions:
            self.solutions.restore(state["solutions"])


PROTECTOR_FILE = "protector.json"


def checkpoint_folder(trainer: Any, step: int) -> Path:
    """Folder of a step's checkpoint. trainer: verl's configuration group of this name."""
    return Path(f"{trainer.default_local_dir}/global_step_{step}")


def resumed_folder(trainer: Any, step: int) -> Path:
    """The checkpoint that a run resumes from: the configured one, or the run's own of this step."""
    named = trainer.resume_from_path if trainer.resume_mode == "resume_path" else None
    return Path(named) if named else checkpoint_folder(trainer, step)


def save_state(
    folder: Path, protector: Protector, failures: FailureBuffer | None, schedule: PromptSchedule | None = None
) -> None:
    """Write our state into a checkpoint's folder; failures: None if failed prompts are not retried."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / PROTECTOR_FILE, json.dumps(protector.state()))
    if failures is not None:
        failures.save(folder)
    if schedule is not None:
        schedule.save(folder)


def load_state(
    folder: Path, protector: Protector, failures: FailureBuffer, schedule: PromptSchedule | None = None
) -> None:
    """Load the state written by `save_state`; a checkpoint of plain verl leaves both as new.

    Raises:
        AnchorError: a run with anchors finds none, so it could not know what its skills had lost before.
    """
    failures.load(folder)
    if schedule is not None:
        schedule.load(folder)
    if protector.names and protector.settings.anchored and not (folder / PROTECTOR_FILE).exists():
        raise AnchorError(
            f"{folder} has no {PROTECTOR_FILE}, so the anchors of closed_loop and verify are lost: "
            "restore the file, or start a new run"
        )
    if (folder / PROTECTOR_FILE).exists():
        protector.restore(json.loads((folder / PROTECTOR_FILE).read_text()))
