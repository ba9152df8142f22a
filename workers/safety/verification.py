"""Verify a step on the anchor sets; correct it, or step back, where a skill fell below its line.

The promise is then about what the step did, not about its first order. One forward pass over all anchor sets per try;
levels are summed over the ranks and their minimum is shared, so every rank takes the same decision.

Correction: the constraints are linear and a level is not, so the nearest step to a line ends below it by the curvature.
Such a step is projected again with what it lacked as a further demand, before any of it is given up: the second-order
correction of sequential quadratic programming (Nocedal & Wright, Numerical Optimization, 18.3).

Optimiser state: the first moment (`exp_avg`, `momentum_buffer`) is multiplied by the share of the step that remains,
so that momentum does not press on what was refused; with an undone step it restarts at 0. The second moment and the
step count stay: they measure how large gradients are, which a refusal does not change.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from workers.displacement import local_shard
from workers.safety.levels import floors, holds, largest_share, shortfalls
from workers.solution_store import StoredSolution

FIRST_MOMENTS = ("exp_avg", "momentum_buffer")
OVERSHOOT = 1.5
"""What a correction asks for, in what the step lacked: it makes the step longer, and so its curvature larger."""

Measure = Callable[[], list[float]]
Correct = Callable[[list[float]], bool]
"""Projects the step again with these further gains (units of J) as demands; False: there is nothing to project."""


@dataclass
class Verification:
    """Verified steps of one update.

    lines: what was promised each anchor set. before: levels at the start of the update. tries: bisections of a step
    that went too far. corrections: projections of such a step before that.

    floors: the least level that each may end with. levels: those of the state that was accepted last. margins: the
    least level - line of each over the update's steps. kept: share of the last step that remains. Counts of steps:
    verified, corrected (and then kept whole), shrunk, undone.
    """

    lines: Sequence[float]
    before: list[float]
    tries: int
    corrections: int = 0
    floors: list[float] = field(init=False)
    levels: list[float] = field(init=False)
    margins: list[float] = field(init=False)
    kept: float = 1.0
    verified: int = 0
    corrected: int = 0
    shrunk: int = 0
    undone: int = 0

    def __post_init__(self) -> None:
        self.levels = self.before
        self.floors = floors(self.lines, self.before)
        self.margins = [math.inf] * len(self.before)

    def metrics(self, names: Sequence[str]) -> dict[str, float]:
        """Counts of steps, the share that remains of the last one, each anchor set's level, line and floor after it.

        ``verified_margin``: the least level - line of all steps.
        """
        counts = ("verified", "corrected", "shrunk", "undone")
        numbers = {f"projection/{name}_steps": float(getattr(self, name)) for name in counts}
        numbers["projection/kept_share"] = self.kept
        rows = zip(names, self.levels, self.lines, self.floors, self.margins, strict=True)
        for name, level, line, floor, margin in rows:
            if math.isfinite(line):
                values = {"verified_level": level, "line": line, "floor": floor, "verified_margin": margin}
                numbers |= {f"projection/{key}/{name}": value for key, value in values.items()}
        return numbers

    def after_step(
        self, start: Sequence[Tensor], shards: Sequence[Tensor], measure: Measure, correct: Correct | None = None
    ) -> float:
        """Verify the parameters; if they fail correct or shrink their displacement from `start`; return the share left.

        With a share of 0 the parameters are those of the start, bit for bit. Uses one copy of the parameters, and only
        where the step fails.
        """
        self.verified += any(line > -math.inf for line in self.lines)  # without an anchor nothing is promised
        share = self._accepted_share(start, shards, measure, correct)
        margins = [level - line for level, line in zip(self.levels, self.lines, strict=True)]
        self.margins = [min(pair) for pair in zip(self.margins, margins, strict=True)]
        return share

    def _accepted_share(
        self, start: Sequence[Tensor], shards: Sequence[Tensor], measure: Measure, correct: Correct | None
    ) -> float:
        levels = measure()
        if not holds(levels, self.floors) and correct is not None:
            levels = self._corrected(levels, measure, correct)
        if holds(levels, self.floors):
            self.levels, self.kept = levels, 1.0
            return 1.0
        step = [shard - old for shard, old in zip(shards, start, strict=True)]
        levels_at: dict[float, list[float]] = {}

        def allowed(share: float) -> bool:
            _write(shards, start, step, share)
            levels_at[share] = measure()
            return holds(levels_at[share], self.floors)

        share = largest_share(allowed, self.tries)
        _write(shards, start, step, share)
        self.levels = levels_at[share] if share else self.before
        self.shrunk += share > 0
        self.undone += share == 0
        self.kept = share
        return share

    def _corrected(self, levels: list[float], measure: Measure, correct: Correct) -> list[float]:
        """Levels after at most `corrections` corrections of a step that failed with these; damage is not corrected."""
        for _ in range(self.corrections):
            missing = [OVERSHOOT * lacked for lacked in shortfalls(levels, self.floors)]
            if not 0 < sum(missing) < math.inf or not correct(missing):
                break
            levels = measure()
        self.corrected += holds(levels, self.floors)
        return levels


def _write(shards: Sequence[Tensor], start: Sequence[Tensor], step: Sequence[Tensor], share: float) -> None:
    for shard, old, move in zip(shards, start, step, strict=True):
        shard.copy_(old if share == 0 else torch.add(old, move, alpha=share))


def damp_momentum(optimizer: torch.optim.Optimizer, share: float) -> None:
    """Multiply the optimiser's first moments by the share of the step that remains."""
    for state in optimizer.state.values():
        for name in FIRST_MOMENTS:
            if isinstance(state.get(name), Tensor):
                local_shard(state[name]).mul_(share)


def measured_levels(
    engine: Any, sets: Sequence[Sequence[StoredSolution]], temperature: float, micro_batch: dict[str, Any]
) -> list[float]:
    """The level of each anchor set at the current parameters, equal on all ranks; NaN for an empty one.

    Collective. Dropout is off during the pass. A level that is not finite on any rank is -inf.
    """
    if not any(sets):
        return [math.nan] * len(sets)
    from workers.constraints import likelihood_levels  # imports verl; settings, which import this module, must not

    training = engine.module.training
    engine.module.eval()
    try:
        levels = likelihood_levels(engine, sets, temperature, micro_batch)
    finally:
        engine.module.train(training)
    levels = torch.where(torch.isfinite(levels), levels, -math.inf)
    torch.distributed.all_reduce(levels, op=torch.distributed.ReduceOp.MIN)
    return [float(level) if of else math.nan for level, of in zip(levels, sets, strict=True)]
