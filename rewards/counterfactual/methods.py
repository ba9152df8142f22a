"""Credits of steps from replays: one function per method, and how the credits of several methods become one.

Values are (steps, 1 + tests) arrays: a step's credit, and its part in each test (R is the share of tests passed, so
the parts have the credit as their mean). NaN: no credit.

`combined` has one credit per step, from what an intervention shows about it:

- *deletion* and *truncation* show what the step earns: it is the last in one and the first in the other of two orders,
  so their mean is taken. They cannot show that a step is wrong: without it the rest breaks as well, or breaks more.
- *replacement* by what a better sibling wrote shows what another choice would have earned; negative: the step is wrong.

So the most negative evidence counts (a wrong or harmful step cost reward, whatever breaks without it); else what the
step earns; and where that is 0, the replacement's: a step that no test needs has 0 in both, unless a sibling's version
does harm. A step equal in all siblings has no replacement, and no credit (NaN) under `choice: informative`, where the
group has nothing to compare; a step that no run can reach has 0 without a replay, and so has one that no test executed.
"""

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from rewards.counterfactual.interventions import Edits, WrittenSolution
from rewards.counterfactual.plan import BY_STEP, Choice, Method, Plan, Prefixes
from rewards.counterfactual.replayer import Array, Replayer
from rewards.counterfactual.segments import Step
from rewards.counterfactual.siblings import Alternatives, Keyed, equal_steps, informative

# Up to this many blocks Shapley values are exact where the budget allows.
EXACT_BLOCKS = 4


@dataclass(frozen=True)
class MethodInputs:
    """What a method needs: the solution's edits and steps, R of the whole, and its part of the budget.

    order: the steps that `delete` and `replace` may replay, those that come first preferred. idle: those with credit 0
    without a replay, since no test executed them.
    """

    edits: Edits
    steps: Sequence[Step]
    plan: Plan
    whole: Array
    rng: random.Random
    replayer: Replayer
    order: Sequence[int]
    alternatives: Alternatives
    budget: int
    idle: frozenset[int] = frozenset()


async def credits_by(work: MethodInputs) -> Array:
    """Credits of the plan's methods, which share its budget."""
    methods = work.plan.methods
    needs = [len(_candidates(method, work)) for method in methods]
    shares = shared_budget(work.budget, needs) if len(methods) > 1 else [work.budget]
    credits = await asyncio.gather(
        *(
            _METHODS[method](replace(work, budget=share, rng=random.Random(work.rng.random())))
            for method, share in zip(methods, shares, strict=True)
            if share
        )
    )
    used = [method for method, share in zip(methods, shares, strict=True) if share]
    return combined(dict(zip(used, credits, strict=True)), _no_credit(work))


def shared_budget(budget: int, needs: Sequence[int]) -> list[int]:
    """Replays for each method: equal shares, in turn, until its need is met; what one does not need goes to others."""
    shares = [0] * len(needs)
    while budget > 0 and shares != list(needs):
        for number, need in enumerate(needs):
            if shares[number] < need and budget > 0:
                shares[number] += 1
                budget -= 1
    return shares


def combined(by_method: Mapping[Method, Array], nothing: Array) -> Array:
    """One credit per step from those of each method (see above). nothing: the credits of no method, all NaN."""
    effects = [values for method, values in by_method.items() if method != "replace"]
    replaced = by_method.get("replace", nothing)
    known = [np.isfinite(values[:, :1]) for values in effects]
    count = np.maximum(sum(known, np.zeros_like(nothing[:, :1])), 1)
    total = sum((np.where(there, values, 0.0) for values, there in zip(effects, known, strict=True)), 0.0 * count)
    effect = np.where(sum(known, np.zeros_like(count)) > 0, total / count, nothing)
    decides = replaced[:, 0] < np.fmin(effect[:, 0], 0.0)
    decides |= np.isfinite(replaced[:, 0]) & (np.isnan(effect[:, 0]) | (effect[:, 0] == 0.0))
    return np.where(decides[:, None], replaced, effect)


def _no_credit(work: MethodInputs) -> Array:
    return np.full((len(work.steps), len(work.whole)), np.nan)


def _candidates(method: Method, work: MethodInputs) -> Sequence[int]:
    """The steps that a method may replay; for `truncate` the first steps of its blocks."""
    if method == "replace":
        return [index for index in work.order if work.alternatives.codes(index)]
    return work.order if method in BY_STEP else range(len(work.steps))


async def _of_steps(changed: Sequence[WrittenSolution | None], steps: Sequence[int], work: MethodInputs) -> list[Array]:
    """The scores of solutions each of which has one of these steps changed."""
    pairs = zip(changed, steps, strict=True)
    return await asyncio.gather(*(work.replayer.score(solution, "step", step) for solution, step in pairs))


async def _delete(work: MethodInputs) -> Array:
    chosen = sorted(work.order[: work.budget])
    changed = [work.edits.keep([other for other in range(len(work.steps)) if other != index]) for index in chosen]
    scores = await _of_steps(changed, chosen, work)
    values = _no_credit(work)
    values[sorted(work.idle)] = 0.0
    for index, replayed in zip(chosen, scores, strict=True):
        values[index] = work.whole - replayed
    return values


async def _replace(work: MethodInputs) -> Array:
    """The step of a sibling in place of this one; first where it may gain, most first with the informative choice."""
    by_gain = work.plan.choice == "informative"

    def rank(index: int) -> float:
        promise = work.alternatives.promise(index)
        return -promise if by_gain else float(promise <= 0.0)

    ordered = sorted(_candidates("replace", work), key=rank)
    values = _no_credit(work)
    chosen = sorted(ordered[: work.budget])
    pieces = [work.alternatives.best(index, work.rng) for index in chosen]
    changed = [
        None if piece is None else work.edits.put(index, piece) for index, piece in zip(chosen, pieces, strict=True)
    ]
    scores = await _of_steps(changed, chosen, work)
    for index, replayed in zip(chosen, scores, strict=True):
        values[index] = work.whole - replayed
    return values


def step_order(
    steps: Sequence[Step], own: Keyed, others: Sequence[Keyed], choice: Choice, rng: random.Random, shared: str = ""
) -> list[int]:
    """The steps in the order in which a budget takes them.

    longest: of equally long ones a draw that depends on their keys and `shared` alone, so that all siblings take the
    same and none is always last. uniform: at random. informative: `siblings.informative`, without steps that
    are equal in all siblings or that no run can reach.
    """
    if choice == "uniform":
        return rng.sample(range(len(steps)), len(steps))
    if choice == "informative":
        equal = equal_steps(own, others)
        return [index for index in informative(own, others) if index not in equal and own.reached[index]]

    def rank(index: int) -> tuple[int, float]:
        return steps[index].start - steps[index].end, random.Random(f"{shared}\0{own.keys[index] or index}").random()

    return sorted(range(len(steps)), key=rank)


async def _truncate(work: MethodInputs) -> Array:
    """Credits of consecutive blocks of steps, with one cut before each block; the budget counts the cuts."""
    blocks = even_blocks(len(work.steps), work.budget)
    firsts = [block[0] for block in blocks]
    kept = [work.edits.keep(range(first)) for first in firsts]
    before = await asyncio.gather(
        *(work.replayer.score(changed, "cut", first) for changed, first in zip(kept, firsts, strict=True))
    )
    return _shared(before, work, blocks)


async def _resample(work: MethodInputs) -> Array:
    """Credits of consecutive blocks of steps, with one value before each block; the budget counts continuations."""
    if work.plan.prefixes != "even":
        return await _resample_beside_deletions(work)
    blocks = even_blocks(len(work.steps), work.budget // work.plan.continuations)
    return _shared(await asyncio.gather(*(_value_before(block[0], work) for block in blocks)), work, blocks)


async def _value_before(index: int, work: MethodInputs) -> Array:
    return await work.replayer.value(work.steps[index].start, work.plan.continuations, index)


async def _resample_beside_deletions(work: MethodInputs) -> Array:
    """Credits from few values of prefixes, with the direct effects of the steps as a control variate.

    Half of the budget goes to deletions, which cost no tokens. With d_t their credits (0 where there is none) and V the
    value before and after a block of n steps, c_t = d_t + (V after - V before - sum of d in the block) / n: the credits
    add up to R(tau) - V(nothing), as those of values before every step do. Their means are equal to those where direct
    and total effects of a block's steps differ by the same amount, and they vary less.

    Each further value splits a block into halves of equal direct effect: with prefixes `effects` the block with the
    largest ones, with `adaptive` the one whose change of value they explain least. The latter finds a plan, which has
    no direct effect, but is slightly biased: it splits where the values before were off.
    """
    values = max(1, work.budget // 2 // work.plan.continuations)
    deletions = work.budget - values * work.plan.continuations
    direct = np.nan_to_num(await _delete(replace(work, budget=deletions)) if deletions else _no_credit(work))
    known = {0: await _value_before(0, work), len(work.steps): work.whole}
    for _ in range(values - 1 if np.isfinite(known[0][0]) else 0):
        blocks = [block for block in _blocks_between(known) if len(block) > 1]
        if not blocks:
            break
        block = max(blocks, key=lambda block: (_to_find(block, known, direct, work.plan.prefixes), len(block)))
        cut = _half(block, np.abs(direct[:, 0]))
        value = await _value_before(cut, work)
        if not np.isfinite(value[0]):
            break
        known[cut] = value
    credits = _no_credit(work)
    for block in _blocks_between(known):
        credits[list(block)] = direct[list(block)] + _unexplained(block, known, direct) / len(block)
    return credits


def _to_find(block: range, known: Mapping[int, Array], direct: Array, prefixes: Prefixes) -> float:
    """How much a value within the block may explain."""
    if prefixes == "effects":
        return float(np.abs(direct[list(block), 0]).sum())
    return abs(float(_unexplained(block, known, direct)[0]))


def _blocks_between(cuts: Iterable[int]) -> list[range]:
    return [range(first, last) for first, last in pairwise(sorted(cuts))]


def _unexplained(block: range, known: Mapping[int, Array], direct: Array) -> Array:
    """The part of a block's change of value that is not the direct effect of its steps."""
    gain: Array = known[block.stop] - known[block.start] - direct[list(block)].sum(axis=0)
    return gain


def _half(block: range, effects: Array) -> int:
    """The step within a block before which about half of the effects lie; the middle if there are none."""
    sizes = effects[list(block)] + 1e-9
    halves = np.cumsum(sizes) - sizes / 2
    return block.start + max(1, int(np.searchsorted(halves, sizes.sum() / 2)))


def _shared(before: Sequence[Array], work: MethodInputs, blocks: Sequence[range]) -> Array:
    """The gain of each block, divided equally among its steps, except tokens. before: the value before each block."""
    gains = [after - first for first, after in pairwise([*before, work.whole])]
    return _per_step(gains, work, blocks)


def _per_step(gains: Sequence[Array], work: MethodInputs, blocks: Sequence[range]) -> Array:
    """A block's gain is divided among its steps; each token of a segment has the whole gain, as in SPO (2505.23564)."""
    values = _no_credit(work)
    for gain, block in zip(gains, blocks, strict=True):
        values[list(block)] = gain if work.plan.unit == "token" else gain / len(block)
    return values


async def _returns(work: MethodInputs) -> Array:
    """R from each step on, discounted once for each step after it (GiGPO, arXiv 2505.10978); no replays."""
    after = np.arange(len(work.steps))[::-1]
    returns: Array = work.plan.discount ** after[:, None] * work.whole
    return returns


async def _shapley(work: MethodInputs) -> Array:
    """Mean gain over orders of blocks of steps. An order with a coalition that could not be judged does not count.

    With at most EXACT_BLOCKS blocks and budget for all coalitions (15 with four blocks) the mean is over all orders;
    else over sampled orders, each with its reverse: what the first gives a block early, the second gives it late.
    """
    blocks = even_blocks(len(work.steps), max(1, (work.budget + 1) // 2))
    orders = _orders(len(blocks), work.budget, work.rng)
    coalitions = sorted({frozenset(order[:size]) for order in orders for size in range(len(blocks))}, key=sorted)
    members = [[step for block in coalition for step in blocks[block]] for coalition in coalitions]
    scores = await asyncio.gather(*(work.replayer.score(work.edits.keep(kept)) for kept in members))
    worth = dict(zip(coalitions, scores, strict=True)) | {frozenset(range(len(blocks))): work.whole}
    gains = np.array([_gains(order, worth) for order in orders])
    judged = gains[np.isfinite(gains[:, :, 0]).all(axis=1)]
    if not len(judged):
        return _no_credit(work)
    return _per_step(list(judged.mean(axis=0)), work, blocks)


def _gains(order: Sequence[int], worth: Mapping[frozenset[int], Array]) -> list[Array]:
    """The gain of each block when blocks are added in this order."""
    gains = {
        block: worth[frozenset(order[: size + 1])] - worth[frozenset(order[:size])] for size, block in enumerate(order)
    }
    return [gains[block] for block in range(len(order))]


def _orders(blocks: int, budget: int, rng: random.Random) -> list[Sequence[int]]:
    """All orders of the blocks, or as many sampled ones and their reverses as the budget allows.

    An order of n blocks has n - 1 coalitions besides the empty one (paid once) and the full one (known).
    """
    if blocks <= EXACT_BLOCKS and 2**blocks - 1 <= budget:
        return list(itertools.permutations(range(blocks)))
    pairs = max(1, (budget - 1) // (2 * (blocks - 1)))
    sampled = [rng.sample(range(blocks), blocks) for _ in range(pairs)]
    return [order for one in sampled for order in (one, one[::-1])]


def even_blocks(steps: int, blocks: int) -> list[range]:
    """Consecutive steps split into at most `blocks` blocks of nearly equal size."""
    blocks = min(steps, blocks)
    edges = [steps * index // blocks for index in range(blocks + 1)]
    return [range(first, last) for first, last in pairwise(edges)]


_METHODS: dict[Method, Callable[[MethodInputs], Awaitable[Array]]] = {
    "delete": _delete,
    "replace": _replace,
    "truncate": _truncate,
    "shapley": _shapley,
    "resample": _resample,
    "returns": _returns,
}
