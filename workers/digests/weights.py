"""Do the engine's answers come from the weights that were trained? Digests of all weights, there and here.

vLLM packs the weights of linear layers for a CPU's kernels and keeps no other copy. A product with rows of the identity
gives columns of the matrix that a layer computes with, exactly: one term of each sum is not zero. Each transfer
compares other columns; a matrix of another step differs in nearly all.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from workers.digests import CONSEQUENCE, WeightsDifferError

COLUMNS = 8
HEAD, EMBEDDING = "lm_head.weight", "embed_tokens.weight"


@dataclass
class SentWeights:
    """Digests of weights that were sent, by their names in a checkpoint.

    step: that trained them. dtype: the engine's.
    """

    step: int
    dtype: torch.dtype
    digests: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, values: Tensor) -> None:
        """Note a weight: whole if it is a vector, else some columns, rounded as the engine does."""
        if values.ndim > 1:
            values = values[..., columns(self.step, values.shape[-1])]
        self.digests[name] = digest(values.to(self.dtype))


def columns(step: int, inputs: int) -> Tensor:
    """The columns that are compared after this step, at most COLUMNS."""
    drawn = torch.Generator().manual_seed(step)
    return torch.randperm(inputs, generator=drawn)[:COLUMNS]


def digest(values: Tensor) -> str:
    """Short hash of a tensor's shape and values; the two zeros count as one."""
    plain = (values.detach().cpu() + 0.0).contiguous()  # a sum of -0.0 and 0.0 is 0.0
    content = plain.view(-1).view(torch.uint8).numpy().data
    return hashlib.sha256(f"{tuple(values.shape)}".encode() + content).hexdigest()[:16]


class HeldWeights:
    """Part of a vLLM worker's extension: which of the weights that it computes with differ from those sent.

    Not for tensor parallelism, in which each worker has slices.
    """

    model_runner: Any

    def require_weights(self, sent: dict[str, str], step: int) -> None:
        """Compare all weights with those sent. The error is the only answer: verl's server drops what a method returns.

        sent: digests of `SentWeights`. step: that trained them.

        Raises:
            WeightsDifferError: some differ, or are not found in the engine.
        """
        if wrong := differing(self.model_runner.get_model(), sent, step):
            named = ", ".join(wrong[:3]) + (" ..." if len(wrong) > 3 else "")
            raise WeightsDifferError(
                f"after step {step} the engine computes with other weights than were trained ({len(wrong)} of "
                f"{len(sent)}: {named}): {CONSEQUENCE}"
            )


def differing(model: nn.Module, sent: dict[str, str], step: int) -> list[str]:
    """The names of weights that are others in vLLM's model, or not found there. sent, step: as `require_weights`."""
    embedding = next((kept for name, kept in sent.items() if name.endswith(EMBEDDING)), None)
    wanted = ({HEAD: embedding} if embedding else {}) | sent  # a head that shares the matrix is sent as the embedding
    same: dict[str, bool] = {}
    for name, values in held_weights(model, step):
        if name in wanted:
            same[name] = same.get(name, True) and digest(values) == wanted[name]
    if HEAD in sent and sent[HEAD] == embedding:
        same.setdefault(HEAD, True)  # in the engine it is the embedding's module
    missing = [f"{name} (not found in the engine)" for name in sent if name not in same]
    return [*(name for name, equal in same.items() if not equal), *missing]


def held_weights(model: nn.Module, step: int) -> Iterator[tuple[str, Tensor]]:
    """What vLLM's model computes with, as `SentWeights` sees it, by names of a checkpoint; a name may come twice."""
    joined: dict[str, list[str]] = getattr(model, "packed_modules_mapping", {})
    for name, module in model.named_modules():
        layer: Any = module
        for own, parameter in module.named_parameters(recurse=False):
            if parameter.numel():
                values = parameter if parameter.ndim == 1 else parameter[..., columns(step, parameter.shape[-1])]
                yield from _parts(f"{name}.{own}", values, layer, joined)
        if hasattr(layer, "cpu_linear"):
            yield from _parts(f"{name}.weight", _product_columns(layer, step), layer, joined)


def _product_columns(layer: Any, step: int) -> Tensor:
    """Columns (outputs, COLUMNS) of the matrix by which a layer multiplies."""
    inputs: int = layer.embedding_dim if hasattr(layer, "embedding_dim") else layer.input_size
    chosen = columns(step, inputs)
    rows = torch.zeros(len(chosen), inputs, dtype=layer.params_dtype)
    rows[torch.arange(len(chosen)), chosen] = 1
    product: Tensor = layer.quant_method.apply(layer, rows, None)
    return product.T


def _parts(name: str, values: Tensor, layer: Any, joined: dict[str, list[str]]) -> Iterator[tuple[str, Tensor]]:
    """The matrices that vLLM joined in one, by their names in a checkpoint; an embedding without its padding."""
    *path, module, own = name.split(".")
    if module in joined and len(joined[module]) == len(layer.output_partition_sizes):
        parts: Iterable[Tensor] = values.split(layer.output_partition_sizes)
        yield from ((".".join([*path, part, own]), kept) for part, kept in zip(joined[module], parts, strict=True))
    else:
        rows = getattr(layer, "org_vocab_size", len(values))
        yield name, values[:rows]
