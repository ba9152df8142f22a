"""Verifier `mcp`, maximum clique: one list of nodes, each two of them joined; more is better."""

from rewards.verifiers.graphs.inputs import Network
from rewards.verifiers.graphs.task import HardTruth, Lists, register


class CliqueTruth(HardTruth, Network):
    """A graph and the size of its largest clique."""

    goal = "max"

    def value(self, answer: Lists) -> float | None:
        """The number of nodes."""
        chosen = self.distinct(answer[0])
        if chosen is None or any(len(chosen & self.neighbours[node]) < len(chosen) - 1 for node in chosen):
            return None
        return len(chosen)


register("mcp", CliqueTruth)
