"""Aggregators of torchjd (optional: extra ``torchjd``), other ways to combine a step with constraint gradients.

They have no constraints: they treat the step and the gradients as equal objectives and look for a direction that
serves all of them, so the step also trains the protected skills, and is shorter. Only deterministic functions of the
Gram matrix are included, so that every rank computes the same weights from it.
"""

import importlib
from collections.abc import Callable
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

Aggregator = Literal["UPGrad", "DualProj", "AlignedMTL", "MGDA", "IMTLG"]
AGGREGATORS: tuple[Aggregator, ...] = get_args(Aggregator)


class MissingAggregatorsError(ImportError):
    """An aggregator is configured, but torchjd is not installed."""


def aggregator(name: str) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """The function from the Gram matrix (m, m) of m rows to their weights (m,); the aggregate is the weighted sum.

    name: one of ``AGGREGATORS``, used with torchjd's defaults.

    Raises:
        MissingAggregatorsError: torchjd is not installed; the message names the command that installs it.
        ValueError: an unknown name.
    """
    if name not in AGGREGATORS:
        raise ValueError(f"aggregator must be one of {', '.join(AGGREGATORS)}, got {name!r}")
    try:
        aggregation: Any = importlib.import_module("torchjd.aggregation")
        weighting = getattr(aggregation, f"{name}Weighting")()
    except ImportError as error:
        raise MissingAggregatorsError(
            f"{name} is an aggregator of torchjd, which is not installed ({error}): "
            "pip install -e '.[torchjd]' in the checkout"
        ) from None
    # Here, not above: settings are checked without torch.
    import torch

    return lambda gram: weighting(torch.from_numpy(gram)).numpy()
