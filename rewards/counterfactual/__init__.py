"""Counterfactual credit: which step of a solution earned its reward (paper A).

The public face of `segments` (what a step is), `interventions` (a solution with a step changed) and `replay` (what
the verifier says of it).
"""

from rewards.counterfactual.interventions import KINDS, intervene
from rewards.counterfactual.judging import ScoreCache
from rewards.counterfactual.replay import CHOICES, METHODS, Credits, Plan, estimate
from rewards.counterfactual.segments import UNITS, NoSteps, Step, segment

__all__ = [
    "CHOICES",
    "KINDS",
    "METHODS",
    "UNITS",
    "Credits",
    "NoSteps",
    "Plan",
    "ScoreCache",
    "Step",
    "estimate",
    "intervene",
    "segment",
]
