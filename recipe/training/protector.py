"""Selection of the skills that the next update protects, from peak accuracies and stored solutions; its checkpoint."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from recipe.records.run_directory import write_atomically
from recipe.settings import Settings
from recipe.training.failure_buffer import FailureBuffer
from workers.penalties import WantedPenalty
from workers.safe_update import Constraint, Protection
from workers.solution_store import SolutionStore, StoredSolution


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

    def see(self, accuracies: Mapping[str, float | None]) -> None:
        """Record an accuracy in [0, 1] of each skill; None for a skill that was not measured."""
        for name, accuracy in accuracies.items():
            if accuracy is None:
                continue
            seen = self._seen.get(name, 0)
            kept = min(self.average, seen / (seen + 1))
            self._seen[name] = seen + 1
            self.latest[name] = kept * self.latest.get(name, 0.0) + (1 - kept) * accuracy
            # Until the average has its full length, it is nearly as noisy as a single measurement.
            if kept == self.average:
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
    loss_mean: verl's loss_agg_mode.
    """

    def __init__(self, settings: Settings, plain_loss: bool = True, loss_mean: str = TOKEN_MEAN):
        self.settings = settings.projection
        self.plain_loss, self.loss_mean = plain_loss, loss_mean
        self.penalty = settings.penalty
        self.all_names = list(settings.skills.names or [])
        self.names = settings.protected
        self.validated = Peaks()
        self.trained = Peaks(self.settings.forgetting_average)
        training = self.settings.forgetting_accuracy == "training"
        self.trigger = self.trained if training else self.validated
        wanted = [settings.penalty.fisher_samples] if settings.penalty.kind == "ewc" else []
        if self.names and self.settings.constraint_source != "rollouts":
            wanted.append(self.settings.solutions_per_protected)
        self.solutions = SolutionStore(max(wanted)) if wanted else None

    def see_validation(self, metrics: Mapping[str, float]) -> None:
        """Record the accuracies of a validation."""
        self.validated.see({name: metrics.get(f"skill/{name}/accuracy") for name in self.all_names})

    def see_training(self, metrics: Mapping[str, float]) -> None:
        """Record the accuracies of a training step's samples, including those of memory prompts."""
        self.trained.see({name: metrics.get(f"train_skill/{name}/accuracy") for name in self.all_names})

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
        found = {name: metrics.get(f"skill/{name}/accuracy") for name in self.all_names}
        best = self.validated.best
        return {
            f"skill/{name}/below_peak": max(best.get(name, accuracy), accuracy) - accuracy
            for name, accuracy in found.items()
            if accuracy is not None
        }

    def protection(self, guarded: Sequence[str] | None = None) -> Protection | None:
        """The protection of the next update; None if no skill is active."""
        constraints = [constraint for name in self.active(guarded) for constraint in self._constraints(name)]
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
        )

    def _constraints(self, name: str) -> list[Constraint]:
        """One constraint per source, named `<skill>`, or `<skill>.<source>` if there are two."""
        source, skill = self.settings.constraint_source, self.all_names.index(name)
        both = source == "both"
        found: list[Constraint] = []
        if both or source == "rollouts":
            found.append(Constraint(f"{name}.rollouts" if both else name, skill))
        if both or source == "solutions":
            solutions = self._newest(name, self.settings.solutions_per_protected)
            found.append(Constraint(f"{name}.solutions" if both else name, skill, solutions))
        return found

    def wanted_penalty(self, stage: int, finished: Sequence[str]) -> WantedPenalty | None:
        """The penalty of the next update; None if penalties are off.

        finished: skills of the previous stage if this is the first update of a stage; else empty.
        """
        if self.penalty.kind == "off":
            return None
        solutions = []
        if self.penalty.kind == "ewc":
            solutions = [kept for name in finished for kept in self._newest(name, self.penalty.fisher_samples)]
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
        return {"validated": self.validated.state(), "trained": self.trained.state(), "solutions": solutions}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state`."""
        self.validated.restore(state["validated"])
        self.trained.restore(state["trained"])
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


def save_state(folder: Path, protector: Protector, failures: FailureBuffer | None) -> None:
    """Write our state into a checkpoint's folder; failures: None if failed prompts are not retried."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / PROTECTOR_FILE, json.dumps(protector.state()))
    if failures is not None:
        failures.save(folder)


def load_state(folder: Path, protector: Protector, failures: FailureBuffer) -> None:
    """Load the state written by `save_state`; a checkpoint of plain verl leaves both as new."""
    failures.load(folder)
    if (folder / PROTECTOR_FILE).exists():
        protector.restore(json.loads((folder / PROTECTOR_FILE).read_text()))
