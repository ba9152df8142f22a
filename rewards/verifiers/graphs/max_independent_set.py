"""Verifier `mis`, maximum independent set: one list of nodes, no two of them joined; more is better."""

from rewards.verifiers.graphs.inputs import Network
from rewards.verifiers.graphs.task import HardTruth, Lists, register


class IndependentSetTruth(HardTruth, Network):
    """A graph and the size of its largest independent set."""

    goal = "max"

    def value(self, answer: Lists) -> float | None:
        """The number of nodes."""
        chosen = self.distinct(answer[0])
        if chosen is None or any(not chosen.isdisjoint(self.neighbours[node]) for node in chosen):
            return None
        return len(chosen)


register("mis", IndependentSetTruth)
