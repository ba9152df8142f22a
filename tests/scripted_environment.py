"""An environment for tests of agents, whose answers are known beforehand."""

from typing import Any

from rewards.environments import Environment, Observation


class Scripted(Environment):
    """Wants "good", says "no <action>" to all else; only what is not "bad" can be an answer; "crash" cannot be run."""

    def __init__(self) -> None:
        self.played, self.answer, self._has_valid = 0, -1, False

    def _read(self, truth: Any) -> Any:
        raise AssertionError

    async def _respond(self, action: str) -> Observation:
        if action == "crash":
            raise ConnectionError("the sandbox is gone")
        return Observation(f"no {action}", done=action == "good", valid=action != "bad", wrong=action != "good")
