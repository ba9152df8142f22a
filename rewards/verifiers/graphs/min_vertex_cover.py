"""Verifier `mvc`, minimum vertex cover: one list of nodes with at least one end of every edge; fewer is better."""

from rewards.verifiers.graphs.inputs import Network
from rewards.verifiers.graphs.task import HardTruth, Lists, register


class VertexCoverTruth(HardTruth, Network):
    """A graph and the size of its smallest vertex cover."""

    goal = "min"

    def value(self, answer: Lists) -> float | None:
        """The number of nodes."""
        chosen = self.distinct(answer[0])
        if chosen is None or any(not self.neighbours[node] <= chosen for node in self.neighbours.keys() - chosen):
            return None
        return len(chosen)


register("mvc", VertexCoverTruth)
