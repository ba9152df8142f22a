"""Counterfactual credit: which step of a solution earned its reward (paper A).

The public API of `segments` (the steps of a solution), `interventions` (a solution with one step changed) and `replay`
(credits from the verifier's scores of changed solutions).
"""

from rewards.counterfactual.interventions import KINDS, intervene
from rewards.counterfactual.judging import ScoreCache
from rewards.counterfactual.plan import CHOICES, METHODS, Plan
from rewards.counterfactual.replay import Credits, Outcome, Sibling, estimate
from rewards.counterfactual.segments import UNITS, NoSteps, Step, segment

__all__ = [
    "CHOICES",
    "KINDS",
    "METHODS",
    "UNITS",
    "Credits",
    "NoSteps",
    "Outcome",
    "Plan",
    "ScoreCache",
    "Sibling",
    "Step",
    "estimate",
    "intervene",
    "segment",
]
