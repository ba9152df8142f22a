"""Skill-safe updates: the nearest step that, to first order, costs no protected skill more than its slack.

Shapes: S protected skills, P parameters (of this rank's shard). With d the step that the optimiser proposes and g_s
the ascent gradient of skill s at the old parameters, both over the trainable parameters:

    x* = argmin_x 1/2 |x - d|^2   subject to   <g_s, x> >= -eps_s   for every s                            (primal)
    lambda* = argmin_{lambda >= 0} 1/2 lambda' G G' lambda + lambda' (G d + eps),   x* = d + G' lambda*    (dual)

(GEM, Lopez-Paz & Ranzato 2017, arXiv 1706.08840, with a slack in place of its margin.) All methods need only the
inner products of the gradients, a matrix of S + 1 rows, and one pass that sums up x. So they work on shards (one
all_reduce of that matrix), and their cost is that of reading the gradients.

The matrix is solved in cosines (rows scaled to length 1), so rescaling a gradient with its slack changes nothing.

Methods:

- ``qp``: the exact solution;
- ``sequential_margin``: one constraint after another in the given order, repeated until all hold or for a number of
  sweeps; moves further than needed where constraints overlap;
- ``pcgrad``: one such sweep without slack (Yu et al. 2020, arXiv 2001.06782, one-sided as in A-GEM, arXiv 1812.00420);
  later constraints may undo earlier ones;
- ``agem``: one constraint, the mean of the gradients (arXiv 1812.00420);
- a name from ``workers.aggregators``: if a constraint is violated, torchjd's aggregate of d and the gradients, all
  scaled to the length of d;
- ``none``: measure only.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from workers.geometry import (
    METHODS,
    WITHOUT_SLACK,
    Geometry,
    GeometrySolution,
    Vector,
    keeps,
    slacks,
    solved,
)

Parameters = Tensor | Sequence[Tensor]
_Block = tuple[Tensor, Tensor, Tensor | None]

# Columns per block. On a CPU one call sums all pieces of _PIECE columns of a block in fp32 (8 times as fast as fp64
# there), and the pieces are added in fp64; the measured error of a cosine is at most 2e-7. On an accelerator a block is
# converted to fp64, because fp32 products may silently be TF32.
_CPU_BLOCK = 2**17
_PIECE = 2**12
_ACCELERATOR_BLOCK = 2**20
# Products with a metric are written to memory that has to stay in the cache: columns times constraints. Such blocks are
# short enough for sums in fp32.
_METRIC_BLOCK = 2**16
_LEAST_METRIC_BLOCK = 2**14

# |x| / |d| below which the constraints leave nothing of the step.
_STALLED = 1e-3


class NotFiniteError(ValueError):
    """The step or a constraint gradient has NaN or infinite entries (or squares that overflow).

    Raised on every rank alike, before anything is written.
    """

    def __init__(self, step: bool, constraints: list[int]):
        what = (["the step"] if step else []) + [f"constraint {index}" for index in constraints]
        super().__init__(f"not finite: {', '.join(what)}")
        self.step = step
        self.constraints = constraints


@dataclass(frozen=True)
class Projection:
    """A projected step and how it was found; vectors are (S,) on the CPU, the same on every rank."""

    step: Any  # in the form of the input: (P,), or a list of tensors; the same object if nothing had to change
    multipliers: Tensor  # float64: step = kept d + sum_s multipliers[s] g_s; >= 0 but for some aggregators of torchjd
    kept: float  # the share of d in the step; 1 but for aggregators of torchjd
    violated: Tensor  # bool: <g_s, d> < -eps_s before the projection
    change: Tensor  # float64: <g_s, step>, the predicted change of each skill
    slack: Tensor  # float64: <g_s, step> + eps_s, negative where the method left a constraint violated
    cosines: Tensor  # float64: of d and g_s, 0 for a gradient that is 0
    norms: Tensor  # float64: |g_s|; a skill of norm 0 is unprotected
    gram: Tensor  # float64: (S, S) of the gradients, in the metric; serves later steps
    moved: float  # |step - d| / |d|
    length: float  # |d|
    feasible: bool  # False: no step satisfies a negative epsilon; 0 was used for it, or for all
    missed: bool  # True: the method left a constraint violated (of sequential_margin: after all sweeps)
    stalled: bool  # True: the constraints leave (almost) nothing of the step


def project(
    step: Parameters,
    constraints: Parameters,
    epsilon: float | Sequence[float] | Tensor = 0.0,
    method: str = "qp",
    *,
    epsilon_kind: str = "absolute",
    gram: Tensor | None = None,
    process_group: dist.ProcessGroup | None = None,
    sweeps: int = 100,
    in_place: bool = False,
    inverse_metric: Parameters | None = None,
    noise: Sequence[float] | None = None,
    recovery: float = math.inf,
) -> Projection:
    """The step moved into the set that protects the skills; the step itself, same bits, if it lies in the set.

    Args:
        step: d, (P,), or a list of tensors of any shapes, which are never flattened into one.
        constraints: ascent gradients, (S, P); for a list, a list of tensors (S, *shape of the parameter). Memory that
            is not contiguous is copied. On an accelerator one flat tensor is faster than hundreds of small ones.
        epsilon: slack of all skills or of each (S,), >= 0 or inf; a negative one asks for gain and may be infeasible.
        method: one of the module's methods.
        epsilon_kind: ``absolute``: in units of <g_s, d>, that is, of the reward; ``cosine``: times |g_s| |d|.
        gram: (S, S) from ``constraint_gram``, or with a metric from an earlier projection with the same; saves a pass.
        process_group: the ranks that hold shards, each parameter on exactly one of them; one all_reduce.
        sweeps: limit of ``sequential_margin``.
        in_place: write the projected step over ``step`` (contiguous).
        inverse_metric: the diagonal of H^-1, positive, in the form of the step: the nearest x in |x - d|_H, which is
            d + H^-1 G' lambda. Lengths, cosines and ``gram`` are then those of H (of its dual for gradients). None: 1.
        noise: (S,) >= 0, the error of each gradient over its length (``qp`` only), `workers.geometry`. None: 0.
        recovery: no epsilon asks for more than this cosine of gain, or a step longer than 2 |d|. inf: no bound.

    Raises:
        NotFiniteError: NaN or infinity in the inputs of any rank.
        ValueError: shapes that do not fit, an unknown method, an epsilon that is NaN or that the method cannot use.
        MissingAggregatorsError: the method is an aggregator, and torchjd is not installed.
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    pairs = _pairs(step, constraints, inverse_metric)
    square, dots, gram_S_S = _inner_products(pairs, gram, process_group)
    geometry = Geometry.of(square, dots, gram_S_S)
    eps = geometry.unit_epsilon(_epsilon_of_each(epsilon, len(geometry.cosines), method), epsilon_kind)
    # A part that the optimiser did not move has no length that would bound the gain which is asked of it.
    eps = np.maximum(eps, 0.0 if geometry.still and recovery < math.inf else -recovery)
    noises = _noise_of_each(noise, len(eps), method) * (not geometry.still)
    solution = solved(geometry, eps, noises, method, sweeps, bounded=recovery < math.inf)
    multipliers = geometry.to_multipliers(solution.mu)
    projected = step
    if solution.kept != 1 or multipliers.any():
        projected = _combine(pairs, step, solution.kept, multipliers, in_place)
    return _reported(projected, multipliers, geometry, gram_S_S, noises, solution)


def _reported(
    projected: Parameters,
    multipliers: Vector,
    geometry: Geometry,
    gram_S_S: NDArray[np.float64],
    noises: Vector,
    solution: GeometrySolution,
) -> Projection:
    """The projected step with its measures, in the units of what was given."""
    kept, mu, eps = solution.kept, solution.mu, solution.eps
    certain = slacks(geometry, kept, mu, noises)
    change = kept * geometry.cosines + geometry.gram @ mu
    scale = geometry.norms * geometry.step_norm
    return Projection(
        step=projected,
        multipliers=torch.from_numpy(multipliers),
        kept=kept,
        violated=torch.from_numpy(solution.violated),
        change=torch.from_numpy(change * scale),
        slack=torch.from_numpy((certain + eps) * np.where(scale > 0, scale, 1.0)),
        cosines=torch.from_numpy(geometry.cosines),
        norms=torch.from_numpy(geometry.norms),
        gram=torch.from_numpy(gram_S_S),
        moved=geometry.length(kept - 1, mu),
        length=0.0 if geometry.still else geometry.step_norm,
        feasible=solution.feasible,
        missed=not keeps(certain, eps),
        stalled=bool((mu.any() or kept != 1) and geometry.length(kept, mu) < _STALLED),
    )


def merged(parts: Sequence[Projection]) -> Projection:
    """Projections of parts of the parameters as one, of the whole step; each multiplier is the largest of its parts."""
    lengths = np.array([part.length for part in parts])
    norms = torch.stack([part.norms for part in parts]).square().sum(0).sqrt()
    length = float(np.sqrt((lengths**2).sum()))
    dots = torch.stack([part.cosines * part.norms * part.length for part in parts]).sum(0)
    scale = norms * length
    return Projection(
        step=[each for part in parts for each in part.step],
        multipliers=torch.stack([part.multipliers for part in parts]).amax(0),
        kept=min(part.kept for part in parts),
        violated=torch.stack([part.violated for part in parts]).any(0),
        change=torch.stack([part.change for part in parts]).sum(0),
        slack=torch.stack([part.slack for part in parts]).sum(0),
        cosines=torch.where(scale > 0, dots / scale.clamp(min=1e-300), 0.0),
        norms=norms,
        gram=torch.stack([part.gram for part in parts]).sum(0),
        moved=math.sqrt(sum((part.moved * part.length) ** 2 for part in parts)) / (length or 1.0),
        length=length,
        feasible=all(part.feasible for part in parts),
        missed=any(part.missed for part in parts),
        stalled=all(part.stalled for part in parts),
    )


def constraint_gram(constraints: Parameters, process_group: dist.ProcessGroup | None = None) -> Tensor:
    """Inner products (S, S) of the constraint gradients, float64 on the CPU, summed over the ranks' shards.

    Raises:
        NotFiniteError: NaN or infinity in the gradients of any rank.
    """
    tensors = [constraints] if isinstance(constraints, Tensor) else list(constraints)
    steps = [tensor.new_zeros(tensor.shape[1:]) for tensor in tensors]
    return torch.from_numpy(_inner_products(_pairs(steps, tensors), None, process_group)[2])


def _epsilon_of_each(epsilon: float | Sequence[float] | Tensor, skills: int, method: str) -> Vector:
    values = np.array(epsilon.tolist() if isinstance(epsilon, Tensor) else epsilon, dtype=np.float64)
    if values.shape not in ((), (skills,)):
        raise ValueError(f"epsilon must be a number or ({skills},) for {skills} constraints, got {values.shape}")
    if np.isnan(values).any() or (values == -math.inf).any():
        raise ValueError(f"epsilon must be a number or inf, got {values.tolist()}")
    if method in WITHOUT_SLACK and values.any():
        raise ValueError(f"{method} supports no slack: use qp or sequential_margin for epsilon {values.tolist()}")
    return np.broadcast_to(values, (skills,)).copy()


def _noise_of_each(noise: Sequence[float] | None, skills: int, method: str) -> Vector:
    values = np.zeros(skills) if noise is None else np.array(noise, dtype=np.float64)
    if values.shape != (skills,) or not (values >= 0).all():
        raise ValueError(f"noise must be {skills} numbers >= 0, got {noise}")
    if values.any() and method not in ("qp", "none"):
        raise ValueError(f"{method} supports no noise: use qp")
    return values


def _tensors(given: Parameters) -> list[Tensor]:
    return [given] if isinstance(given, Tensor) else list(given)


def _pairs(step: Parameters, constraints: Parameters, inverse_metric: Parameters | None = None) -> list[_Block]:
    """(n,) of the step, (S, n) of the constraints and (n,) of H^-1, for each parameter: views of contiguous memory."""
    steps, gradients = _tensors(step), _tensors(constraints)
    inverse = [None] * len(steps) if inverse_metric is None else _tensors(inverse_metric)
    if len(inverse) != len(steps) or any(
        of is not None and of.shape != tensor.shape for of, tensor in zip(inverse, steps, strict=True)
    ):
        raise ValueError("inverse_metric must have the form of the step")
    if len(steps) != len(gradients):
        raise ValueError(f"step has {len(steps)} tensors, but constraints {len(gradients)}")
    skills = {len(gradient) if gradient.dim() else None for gradient in gradients}
    for tensor, gradient in zip(steps, gradients, strict=True):
        if gradient.shape[1:] != tensor.shape or len(skills) != 1:
            raise ValueError(
                f"constraints must be (S, *shape of the step), one S for all: "
                f"step {tuple(tensor.shape)}, constraints {tuple(gradient.shape)}"
            )
        if hasattr(tensor, "to_local") or hasattr(gradient, "to_local"):
            raise ValueError("got a DTensor: pass local shards (to_local()) and their process_group")
        if not (tensor.is_floating_point() and gradient.is_floating_point()):
            raise ValueError(f"step and constraints must be floating, got {tensor.dtype} and {gradient.dtype}")
    return [
        (t.reshape(-1), g.reshape(len(g), t.numel()), None if w is None else w.reshape(-1))
        for t, g, w in zip(steps, gradients, inverse, strict=True)
    ]


def _blocks(pairs: list[_Block]) -> Iterator[_Block]:
    """The same pairs in blocks of parameters, precise enough for products: fp32 or fp64 on a CPU, fp64 elsewhere."""
    for step_n, constraints_S_n, inverse_n in pairs:
        if step_n.device.type == "cpu":
            dtype = torch.promote_types(torch.promote_types(step_n.dtype, constraints_S_n.dtype), torch.float32)
            size = _CPU_BLOCK if len(constraints_S_n) >= 8 else 2 * _CPU_BLOCK
            if inverse_n is not None:
                size = max(_METRIC_BLOCK // max(len(constraints_S_n), 1), _LEAST_METRIC_BLOCK)
        else:
            dtype, size = torch.float64, _ACCELERATOR_BLOCK
        inverses = repeat(None) if inverse_n is None else (part.to(dtype) for part in inverse_n.split(size))
        parts = zip(step_n.split(size), constraints_S_n.split(size, dim=1), strict=True)
        for (step_block, constraints_block), inverse in zip(parts, inverses, strict=False):
            yield step_block.to(dtype), constraints_block.to(dtype), inverse


def _inner_products(
    pairs: list[_Block], gram: Tensor | None, process_group: dist.ProcessGroup | None
) -> tuple[float, Vector, Vector]:
    """<d, d>, <g_s, d> (S,) and <g_s, g_r> (S, S) in float64, over all ranks."""
    skills = len(pairs[0][1]) if pairs else 0
    if gram is not None and gram.shape != (skills, skills):
        raise ValueError(f"gram must be ({skills}, {skills}) for {skills} constraints, got {tuple(gram.shape)}")
    device = pairs[0][0].device if pairs else torch.device("cpu")
    # Sums per block, added in fp64 at the end: one addition of all costs less than one per block.
    sums: list[list[Tensor]] = [[], [], []]
    scratch = _Scratch()
    for step_n, constraints_S_n, inverse_n in _blocks(pairs):
        other_n = step_n if inverse_n is None else torch.div(step_n, inverse_n, out=scratch.like(step_n))
        sums[0].append(step_n.dot(other_n).view(1))
        sums[1].append(constraints_S_n.mv(step_n))
        if gram is None:
            if inverse_n is None:
                block_S_S = _block_gram(constraints_S_n)
            else:
                moved_S_n = torch.mul(constraints_S_n, inverse_n, out=scratch.like(constraints_S_n))
                block_S_S = moved_S_n.mm(constraints_S_n.T).double()
            sums[2].append(block_S_S)
    sizes = (1, skills, 0 if gram is not None else skills * skills)
    packed = torch.cat([_total(parts, size, device) for parts, size in zip(sums, sizes, strict=True)])
    if process_group is not None:
        dist.all_reduce(packed, group=process_group)
    numbers = packed.cpu().numpy()
    products = numbers[1 + skills :].reshape(skills, skills) if gram is None else gram.double().cpu().numpy()
    _check_finite(numbers[0], numbers[1 : 1 + skills], products)
    return float(numbers[0]), numbers[1 : 1 + skills], products


class _Scratch:
    """Memory that the products of all blocks are written to in turn, so that it stays in the cache."""

    def __init__(self) -> None:
        self._memory = torch.empty(0)

    def like(self, tensor: Tensor) -> Tensor:
        """Memory of this tensor's form; what was written before is lost."""
        have = self._memory
        if have.numel() < tensor.numel() or have.dtype != tensor.dtype or have.device != tensor.device:
            self._memory = torch.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        return self._memory[: tensor.numel()].view(tensor.shape)


def _total(parts: list[Tensor], size: int, device: torch.device) -> Tensor:
    """Sum of tensors of ``size`` elements, in float64, flat."""
    if not parts:
        return torch.zeros(size, dtype=torch.float64, device=device)
    return torch.stack(parts).sum(0, dtype=torch.float64).view(-1)


def _block_gram(block_S_n: Tensor) -> Tensor:
    skills, columns = block_S_n.shape
    pieces = columns // _PIECE
    # (pieces, S, _PIECE) without a copy: one batched product, whose sums are too short for fp32 to lose digits.
    body = block_S_n[:, : pieces * _PIECE].view(skills, pieces, _PIECE).transpose(0, 1)
    tail = block_S_n[:, pieces * _PIECE :]
    return body.bmm(body.transpose(1, 2)).sum(0, dtype=torch.float64) + tail.mm(tail.T)


def _check_finite(square: float, dots: Vector, gram: Vector) -> None:
    constraints = ~np.isfinite(np.diag(gram))
    step = not math.isfinite(square)
    if not step:
        constraints |= ~np.isfinite(dots)
    if step or constraints.any():
        raise NotFiniteError(step, np.flatnonzero(constraints).tolist())


def _combine(pairs: list[_Block], step: Parameters, kept: float, multipliers: Vector, in_place: bool) -> Parameters:
    """kept d + H^-1 sum_s lambda_s g_s, in the form of the step; gradients whose multiplier is 0 are not read."""
    if in_place:
        if any(not tensor.is_contiguous() for tensor in ([step] if isinstance(step, Tensor) else step)):
            raise ValueError("in_place needs a step whose memory is contiguous")
        result = step
    else:
        result = _empty(step) if isinstance(step, Tensor) else [_empty(tensor) for tensor in step]
    targets = [result] if isinstance(result, Tensor) else list(result)
    active = [(s, float(multipliers[s])) for s in np.flatnonzero(multipliers)]
    scratch = _Scratch()
    for target, (step_n, constraints_S_n, inverse_n) in zip(targets, pairs, strict=True):
        inverses = repeat(None) if inverse_n is None else _cut(inverse_n)
        parts = zip(*(_cut(t) for t in (target.view(-1), step_n, constraints_S_n)), strict=True)
        for (out, d, g), inverse in zip(parts, inverses, strict=False):
            if kept != 1:
                d = torch.mul(d, kept, out=out)
            if inverse is not None and len(active) > 1 and g.dtype == d.dtype and d.device.type == "cpu":
                # One pass over d and H^-1 for all gradients; a single one needs no sum, an accelerator might use TF32.
                total = torch.mv(g.T, g.new_tensor(multipliers), out=scratch.like(d))
                torch.addcmul(d, total, inverse, out=out)
                continue
            for s, multiplier in active:
                if inverse is None:
                    d = torch.add(d, g[s], alpha=multiplier, out=out)
                else:
                    d = torch.addcmul(d, g[s], inverse, value=multiplier, out=out)
    return result


def _empty(tensor: Tensor) -> Tensor:
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def _cut(tensor: Tensor) -> Sequence[Tensor]:
    size = _CPU_BLOCK if tensor.device.type == "cpu" else max(1, tensor.shape[-1])
    blocks: Sequence[Tensor] = tensor.split(size, dim=-1)
    return blocks
