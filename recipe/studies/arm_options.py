"""What studies that compare arms share: keys, strengths and names of runs, what a user may name, runs that failed."""

from collections.abc import Iterable, Mapping

from recipe.studies.steps import CommandFailed, Stopped

Overrides = tuple[str, ...]

ARM, SEED = "${hydra:runtime.choices.arm}", "s${data.seed}"
RATE, SAMPLES = "actor_rollout_ref.actor.optim.lr", "actor_rollout_ref.rollout.n"

CLOSED_LOOP = "closed_loop"
"""The arm that `recipe.report bars` judges."""

Strengths = Mapping[str, tuple[str, str]]

STRENGTHS: Strengths = {
    "kl": ("actor_rollout_ref.actor.kl_loss_coef", "0.1,0.5,2.0"),
    "ewc": ("penalty.strength", "1000.0,10000.0,100000.0"),
    "l2": ("penalty.strength", "0.01,0.1,1.0"),
    "replay": ("protocol.replay_share", "0.25,0.5,0.75"),
    "rehearsal": ("penalty.strength", "1.0,3.0,10.0"),
    "qp_solutions": ("projection.epsilon", "0.0,0.003,0.01"),
    "closed_loop": ("projection.gain", "0.1,0.3,1.0"),
}
"""Each arm with a strength: its key, and the three values that are tried."""


def listed(words: str) -> str:
    """Words as Hydra lists the values of a multirun."""
    return ",".join(words.split())


def known(what: str, given: Iterable[str], valid: Iterable[str]) -> list[str]:
    """The given words; Stopped for one that is not among `valid`. what: they are, such as "order"."""
    words, choices = list(given), list(valid)
    if unknown := set(words) - set(choices):
        raise Stopped(f"unknown {what} '{min(unknown)}'; valid ones: {', '.join(choices)}")
    return words


def alone(skill: str) -> Overrides:
    """Overrides of GRPO on one skill for a stage's updates."""
    return "arm=grpo", f"protocol.skill_sequence=[{skill}]"


def mixed(updates: int) -> Overrides:
    """Overrides of a run whose batches hold all skills."""
    return "protocol=mixed", "protocol.every_skill=true", f"trainer.total_training_steps={updates}"


def check_values(named: str, stage: str) -> None:
    """Stopped for VALUES of a stage that tries no strengths."""
    if named and stage != "tune":
        raise Stopped(f"VALUES={named} are strengths that the stage tune tries: unset VALUES")


def tuning_runs(
    given: str | None, tuned: str, named: str = "", strengths: Strengths = STRENGTHS
) -> list[tuple[str, str, str]]:
    """Overrides that run the named arms, or all of `tuned`, with each strength; Stopped for one that is not tuned.

    named: strengths of a single arm in place of its three, as beyond an end of its grid.
    """
    arms, valid = (given or tuned).split(), tuned.split()
    if unknown := set(arms) - set(valid):
        raise Stopped(f"arm '{min(unknown)}' has no strength; valid ones: {', '.join(valid)}")
    if named and len(arms) > 1:
        raise Stopped(f"VALUES={named} are strengths of one arm: name it, such as ARMS={arms[0]}")
    return [
        (f"arm={arm}", f"{key}={listed(named) if named else values}", f"run.name={arm}_${{{key}}}.forward.{SEED}")
        for arm, (key, values) in ((arm, strengths[arm]) for arm in arms)
    ]


def stop_if_a_run_failed(status: int) -> None:
    """CommandFailed with the status of a run that failed; 0: none did."""
    if status:
        raise CommandFailed("a run or report failed: its message is above; start the study again to resume", status)
