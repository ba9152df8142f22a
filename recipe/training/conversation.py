"""The tokens of a trajectory in several turns, with what belongs to each of them."""

from typing import Any


class Conversation:
    """Token ids from the prompt on, and the mask, log-probabilities and turns of those after it.

    ids: prompt and response. mask: 1 for a generated token, 0 for one that the environment or the chat template
    wrote. log_probs: of the response, 0.0 where the mask is 0; None where the server gives none. turns: response
    tokens [start, end) of each assistant turn. metrics: seconds, in verl's names. server_fields: what the server says
    of the weights that generated (verl's names).
    """

    def __init__(self, prompt_ids: list[int]):
        self.prompt_ids = prompt_ids
        self.ids = prompt_ids
        self.mask: list[int] = []
        self.log_probs: list[float] | None = None
        self.turns: list[tuple[int, int]] = []
        self.metrics: dict[str, Any] = {"num_preempted": -1}
        self.server_fields: dict[str, Any] = {}

    @property
    def response_ids(self) -> list[int]:
        return self.ids[len(self.prompt_ids) :]

    def known_log_probs(self, new: list[float] | None) -> list[float] | None:
        """The log-probabilities so far, for a turn that comes with some; None where the server gives none."""
        return (self.log_probs or []) if new or self.log_probs is not None else None

    def add_turn(self, ids: list[int], mask: list[int], log_probs: list[float] | None, output: Any) -> None:
        """Take over what verl's token builder made of a generated turn."""
        self.turns.append((len(self.mask), len(mask)))
        self.ids, self.mask, self.log_probs = ids, mask, log_probs
        if output.num_preempted is not None:
            self.metrics["num_preempted"] = max(0, self.metrics["num_preempted"]) + output.num_preempted
        # The first turn says which weights a trajectory began with, the last one with which it ended.
        self.server_fields = output.extra_fields | self.server_fields
        if output.extra_fields.get("max_global_steps") is not None:
            self.server_fields["max_global_steps"] = output.extra_fields["max_global_steps"]

    def add_context(self, ids: list[int], mask: list[int], log_probs: list[float] | None, removed: int) -> None:
        """Take over what verl's token builder made of an observation; it may cut `removed` tokens off the last turn."""
        start, end = self.turns[-1]
        self.turns[-1] = (start, end - removed)
        self.ids, self.mask, self.log_probs = ids, mask, log_probs
