"""The names among which settings choose, apart from the torch code that acts on them.

A launcher checks its settings before it starts anything: it should not wait for torch (two seconds).
"""

from typing import Literal, get_args

Ablation = Literal["none", "shuffled", "inverted"]
ABLATIONS: tuple[Ablation, ...] = get_args(Ablation)
CreditMapping = Literal["add", "scale", "redistribute"]
MAPPINGS: tuple[CreditMapping, ...] = get_args(CreditMapping)
Normalization = Literal["signed", "positive", "softmax", "rank", "siblings", "none"]
NORMALIZATIONS: tuple[Normalization, ...] = get_args(Normalization)
# In place of a mapping: how other papers use values and returns.
Rival = Literal["values", "states"]

EpsilonKind = Literal["absolute", "cosine"]
# Which vector is projected: the optimiser's displacement, or the gradient before it.
Space = Literal["displacement", "gradient"]
# In which lengths the nearest step is nearest: of the parameters, or as Adam scales them.
Metric = Literal["euclidean", "adam"]
PenaltyKind = Literal["l2", "ewc", "rehearsal"]

OF_GAIN = ".gain"
"""Ends the name of the constraint that asks for gain, beside the one that bounds what a skill loses."""
