"""What the next update must not harm: protected skills (all, or those that are being forgotten) and how."""

from collections.abc import Mapping, Sequence
from typing import Any

from omegaconf import DictConfig

from recipe.training.peaks import Peaks
from recipe.training.settings import Settings
from workers.solution_store import SolutionStore

# verl's names (loss_agg_mode) of losses whose parts are means of the same kind (workers/pass_in_parts.py).
TOKEN_MEAN = "token-mean"
SHARED_LOSSES = ("seq-mean-token-mean", TOKEN_MEAN)


def has_plain_loss(actor: DictConfig) -> bool:
    """Whether the policy's loss (verl's actor) is PPO's alone: parts of its gradient are gradients of its samples."""
    return not actor.use_kl_loss and not actor.entropy_coeff and actor.policy_loss.loss_mode == "vanilla"


class Protector:
    """Decides what the actor is asked to protect, from the settings, the accuracies seen, and accepted solutions.

    names: the skills that may be protected; none where projection is off. What it knows is saved with checkpoints.
    plain_loss: of `has_plain_loss`; parts of the policy's gradient can then be constraints.
    loss_mean: verl's name of the mean that the loss is (loss_agg_mode).
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
        """Learn the accuracies of a validation."""
        self.validated.see({name: metrics.get(f"skill/{name}/accuracy") for name in self.all_names})

    def see_training(self, metrics: Mapping[str, float]) -> None:
        """Learn the accuracies of a step's own samples, those of memory prompts among them."""
        self.trained.see({name: metrics.get(f"train_skill/{name}/accuracy") for name in self.all_names})

    def active(self, guarded: Sequence[str] | None = None) -> list[str]:
        """The skills that the next update must not harm.

        guarded: the only ones to protect in this stage (`Plan.guarded`); None in protocol mixed, which has no stages.
        """
        names = self.names if guarded is None else [name for name in self.names if name in guarded]
        if self.settings.when == "always":
            return names
        return [name for name in names if self.trigger.below(name) > self.settings.forgetting_margin]

    def forgotten(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """``skill/<name>/below_peak``: how far each skill's accuracy in this validation lies below its best one."""
        found = {name: metrics.get(f"skill/{name}/accuracy") for name in self.all_names}
        best = self.validated.best
        return {
            f"skill/{name}/below_peak": max(best.get(name, accuracy), accuracy) - accuracy
            for name, accuracy in found.items()
            if accuracy is not None
        }

    def protection(self, guarded: Sequence[str] | None = None) -> dict[str, Any]:
        """Arguments of `workers.safe_update.Protection`; empty when nothing is protected."""
        constraints = [constraint for name in self.active(guarded) for constraint in self._constraints(name)]
        if not constraints:
            return {}
        kept = ("method", "epsilon", "epsilon_kind", "space", "average")
        shared = guarded is None and self.settings.constraint_source == "rollouts" and self.settings.method != "none"
        return {
            "constraints": constraints,
            "shared_pass": shared and self.plain_loss and self.loss_mean in SHARED_LOSSES,
            "token_mean": self.loss_mean == TOKEN_MEAN,
        } | {key: getattr(self.settings, key) for key in kept}

    def _constraints(self, name: str) -> list[dict[str, Any]]:
        """One from each source; with two sources their names say which."""
        source, skill = self.settings.constraint_source, self.all_names.index(name)
        ending = (lambda kind: f".{kind}") if source == "both" else (lambda kind: "")
        found: list[dict[str, Any]] = []
        if source in ("rollouts", "both"):
            found.append({"name": name + ending("rollouts"), "skill": skill, "solutions": None})
        if source in ("solutions", "both"):
            solutions = self._newest(name, self.settings.solutions_per_protected)
            found.append({"name": name + ending("solutions"), "skill": skill, "solutions": solutions})
        return found

    def pull(self, stage: int, finished: Sequence[str]) -> dict[str, Any]:
        """Arguments of `workers.penalties.WantedPenalty`; empty without a penalty.

        finished: the skills of the stage before, where this is the first update of a stage.
        """
        if self.penalty.kind == "off":
            return {}
        solutions = []
        if self.penalty.kind == "ewc":
            solutions = [kept for name in finished for kept in self._newest(name, self.penalty.fisher_samples)]
        return {"kind": self.penalty.kind, "strength": self.penalty.strength, "stage": stage, "solutions": solutions}

    def _newest(self, name: str, count: int) -> list[tuple[list[int], ...]]:
        assert self.solutions is not None
        return [tuple(solution) for solution in self.solutions.of(name)[-count:]]

    def metrics(self, guarded: Sequence[str] | None = None) -> dict[str, float]:
        """How many skills are protected now, how far the accuracy that decides is below its peak, and solutions."""
        numbers = {}
        if self.names:
            known = [name for name in self.names if name in self.trigger.best]
            numbers = {f"projection/below_peak/{name}": self.trigger.below(name) for name in known}
            numbers["projection/active_constraints"] = float(len(self.active(guarded)))
        if self.solutions:
            numbers |= {f"solutions/{name}": float(len(self.solutions.of(name))) for name in self.all_names}
        return numbers

    def state(self) -> dict[str, Any]:
        """What a checkpoint has to keep, as JSON can hold it."""
        solutions = self.solutions.state() if self.solutions else {}
        return {"validated": self.validated.state(), "trained": self.trained.state(), "solutions": solutions}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` returned."""
        self.validated.restore(state["validated"])
        self.trained.restore(state["trained"])
        if self.solutions:
            self.solutions.restore(state["solutions"])
