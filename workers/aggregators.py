"""Aggregators of torchjd (optional: extra ``torchjd``) as further ways to combine a step with constraint gradients.

They know no constraint: they take the step and the gradients as objectives of equal standing and look for a direction
that serves all of them, so the step also trains the protected skills, and is shorter. Here are those that are a
function of the Gram matrix alone and draw nothing at random, so that every rank finds the same weights from it.
"""

import importlib
from collections.abc import Callable
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

Aggregator = Literal["UPGrad", "DualProj", "AlignedMTL", "MGDA", "IMTLG"]
AGGREGATORS: tuple[Aggregator, ...] = get_args(Aggregator)


class MissingAggregatorsError(ImportError):
    """An aggregator was asked for, and torchjd is not installed."""


def aggregator(name: str) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """From the Gram matrix (m, m) of m rows to their weights (m,); the aggregate is the weighted sum of the rows.

    name: the aggregator's own, one of ``AGGREGATORS``; with torchjd's defaults.

    Raises:
        MissingAggregatorsError: torchjd is not installed; the text says how to.
        ValueError: another name.
    """
    if name not in AGGREGATORS:
        raise ValueError(f"aggregator must be one of {', '.join(AGGREGATORS)}, got {name!r}")
    try:
        aggregation: Any = importlib.import_module("torchjd.aggregation")
        weighting = getattr(aggregation, f"{name}Weighting")()
    except ImportError as error:
        raise MissingAggregatorsError(
            f"{name} is an aggregator of torchjd, which is not installed ({error}): "
            "pip install 'verl-skillcredit[torchjd]'"
        ) from None
    return lambda gram: weighting(torch.from_numpy(gram)).numpy()
