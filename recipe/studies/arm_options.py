"""What studies that compare arms share: names of runs, the arms and orders that a user names, and runs that failed."""

from collections.abc import Iterable, Mapping

from recipe.studies.steps import CommandFailed, Stopped

ARM, SEED = "${hydra:runtime.choices.arm}", "s${data.seed}"

Strengths = Mapping[str, tuple[str, str]]
"""Each arm with a strength: its key, and the values that are tried."""


def listed(words: str) -> str:
    """Words as Hydra lists the values of a multirun."""
    return ",".join(words.split())


def orders_of(given: str, orders: Iterable[str]) -> list[str]:
    """The named orders; Stopped for one that is not among `orders`."""
    if unknown := set(given.split()) - set(orders):
        raise Stopped(f"unknown order '{min(unknown)}'; valid ones: {' '.join(orders)}")
    return given.split()


def tuned_arms(given: str, strengths: Strengths) -> list[str]:
    """The named arms, or all that have a strength; Stopped for one that has none."""
    arms = given.split() or list(strengths)
    if unknown := set(arms) - set(strengths):
        raise Stopped(f"arm '{min(unknown)}' has no strength; valid ones: {', '.join(strengths)}")
    return arms


def stop_if_a_run_failed(status: int) -> None:
    """CommandFailed with the status of a run that failed; 0: none did."""
    if status:
        raise CommandFailed("a run failed: its message is above; start the study again to run what is missing", status)
