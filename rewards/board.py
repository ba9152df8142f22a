"""The board of a run's groups, as reward workers and agent loops reach it: one actor, under a name.

verl gives the samples of a group to any of the reward workers, and only an agent loop knows of a sample that failed.
"""

from typing import Any

import ray

from rewards.advantages import group_advantage
from rewards.edits import Changed
from rewards.groups import GroupAdvantage, GroupBoard

BOARD = "credit_group_board"


def skips(config: Any) -> GroupAdvantage | None:
    """What decides whether a run replays a group, by its scores; None where it replays all of them."""
    credit = config.credit
    if not credit.skip_equal_groups or credit.zero_advantage:
        return None
    return group_advantage(config.algorithm)


def wanted(config: Any) -> bool:
    """Whether samples of a run need to know of their siblings."""
    credit = config.get("credit")
    if credit is None or credit.kind == "off":
        return False
    return credit.method == "replace" or skips(config) is not None


class SharedBoard:
    """A process's way to the board, which starts when somebody first needs it."""

    def __init__(self, config: Any):
        self.size = config.actor_rollout_ref.rollout.n
        self.patience = config.credit.patience
        self._actor: Any = None

    @property
    def actor(self) -> Any:
        if self._actor is None:
            options = {"name": BOARD, "get_if_exists": True, "max_concurrency": 100_000}
            board: Any = ray.remote(num_cpus=0)(GroupBoard)
            self._actor = board.options(**options).remote(self.size, self.patience)
        return self._actor

    async def meet(self, *sample: Any) -> list[tuple[float, Changed]] | None:
        """`GroupBoard.meet`."""
        return await self.actor.meet.remote(*sample)

    def leave(self, group: str, sample: int) -> None:
        """`GroupBoard.leave`, without waiting until it is done."""
        self.actor.leave.remote(group, sample)
