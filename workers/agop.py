"""Average gradient outer product of the policy: in how many directions its gradients point.

With g_p the policy gradient of part p = 1..P of a batch (prompts assigned round-robin), over the trainable parameters:

    M = 1/P sum_p g_p g_p'

The non-zero eigenvalues of M are those of the small matrix of inner products <g_p, g_q> / P, so M is never formed.
An estimate of rank at most P. Radhakrishnan et al., "Mechanism for feature learning in neural networks" (Science 2024)
define the matrix for gradients with respect to the input; here they are with respect to the parameters.
"""

import math
from collections.abc import Sequence

import torch
from tensordict import TensorDict
from torch import Tensor

from workers.constraints import MEMORY, GradientSource, negative_objective, passed_rows

AGOP = "skillcredit_agop"  # key of a batch's extra information: P, if the trainer asks for the statistics
PART = "agop_part"  # (B,) long, the part of each sample; samples of a prompt are in the same part
SHOWN = 4  # number of eigenvalues that become metrics


def prompt_parts(prompts: Sequence[str], parts: int) -> Tensor:
    """(B,) the part of each sample: prompts in the order of their first samples, assigned round-robin."""
    numbers = {prompt: number for number, prompt in enumerate(dict.fromkeys(prompts))}
    return torch.tensor([numbers[prompt] % parts for prompt in prompts])


def part_sources(data: TensorDict, parts: int) -> list[GradientSource]:
    """This rank's trained samples of each part, as sources of policy gradients (`workers.constraints`)."""
    memory = data[MEMORY] if MEMORY in set(data.keys()) else torch.zeros(len(data), dtype=torch.bool)
    rows = [torch.nonzero((data[PART] == part) & ~memory).flatten().tolist() for part in range(parts)]
    passed = passed_rows(data)
    return [GradientSource(passed, (own, []), len(own), negative_objective) for own in rows]


def spectrum(gram: Tensor) -> dict[str, float]:
    """Statistics of M under ``agop/``, from the inner products (P, P) of the parts' gradients.

    ``eigenvalue_1`` to ``eigenvalue_4``, ``trace`` (the mean squared norm), ``top_share`` (first eigenvalue / trace)
    and ``effective_rank``, the exponential of the entropy of the eigenvalues' shares (Roy & Vetterli 2007): 1 where
    all gradients point the same way, P where they are orthogonal and equally long. The last two are omitted where all
    gradients are zero.
    """
    values = torch.linalg.eigvalsh(gram.double() / len(gram)).clamp(min=0).flip(0)
    trace = float(values.sum())
    statistics = {f"agop/eigenvalue_{place}": float(value) for place, value in enumerate(values[:SHOWN], 1)}
    statistics["agop/trace"] = trace
    if trace > 0:
        shares = values[values > 0] / trace
        statistics["agop/top_share"] = float(shares[0])
        statistics["agop/effective_rank"] = math.exp(-float((shares * shares.log()).sum()))
    return statistics
