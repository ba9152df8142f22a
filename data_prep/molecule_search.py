"""Exact search for the two molecule tasks: largest common induced subgraph and smallest edit distance.

Both are branch and bound, compiled by numba, over molecules of at most 63 atoms: `elements` (n,) small numbers,
`neighbours` (n,) bit masks. Both stop after `steps` nodes of the search tree, a limit of time that is the same on every
machine, and say whether the best answer found is proved. A mixed integer program (HiGHS) took 1 to 9 seconds for most
pairs of 16 to 20 atoms, and what it held before the proof was no answer to learn from.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@njit(cache=True)
def _count(mask: int) -> int:
    total = 0
    while mask:
        mask &= mask - 1
        total += 1
    return total


@njit(cache=True)
def _lowest(mask: int) -> int:
    place = 0
    while not (mask >> place) & 1:
        place += 1
    return place


@njit(cache=True)
def common_subgraph(
    elements: Ints, neighbours: Ints, other_elements: Ints, other_neighbours: Ints, steps: int
) -> tuple[Ints, bool]:
    """A largest common induced subgraph and whether that is proved: of each atom its partner, -1 for none (n,).

    McSplit (McCreesh, Prosser and Trimble, 2017): atoms that may still be paired form classes, of which each gives at
    most the smaller of its two sides.
    """
    size = len(elements)
    kinds = max(elements.max(), other_elements.max()) + 1
    depth_limit = 2 * size + 2
    left = np.zeros((depth_limit, 2 * size + kinds + 2), np.int64)
    right = np.zeros_like(left)
    counts = np.zeros(depth_limit, np.int64)
    # At each depth: the class and the atom branched on, and the partners that are left to try; 0:
    # leave it alone, -1: nothing.
    chosen = np.zeros(depth_limit, np.int64)
    atom, options = np.zeros_like(chosen), np.zeros_like(chosen)
    opened = np.zeros(depth_limit, np.bool_)
    partner, best = np.full(size, -1, np.int64), np.full(size, -1, np.int64)
    paired, most, used = 0, 0, 0
    for kind in range(kinds):
        mask, other = 0, 0
        for place in range(size):
            if elements[place] == kind:
                mask |= 1 << place
        for place in range(len(other_elements)):
            if other_elements[place] == kind:
                other |= 1 << place
        if mask and other:
            left[0, counts[0]], right[0, counts[0]] = mask, other
            counts[0] += 1
    depth = 0
    while depth >= 0:
        if not opened[depth]:
            used += 1
            if paired > most:
                most = paired
                best[:] = partner
            bound, narrowest, pick = paired, 1 << 30, -1
            for group in range(counts[depth]):
                one, two = _count(left[depth, group]), _count(right[depth, group])
                bound += min(one, two)
                if max(one, two) < narrowest:
                    narrowest, pick = max(one, two), group
            if bound <= most:
                depth -= 1
                continue
            if used > steps:
                return best, False
            chosen[depth] = pick
            degree = -1
            for place in range(size):
                if (left[depth, pick] >> place) & 1 and _count(neighbours[place]) > degree:
                    degree, atom[depth] = _count(neighbours[place]), place
            options[depth] = right[depth, pick]
            opened[depth] = True
        here = atom[depth]
        if partner[here] >= 0:
            partner[here] = -1
            paired -= 1
        if options[depth] < 0:
            opened[depth] = False
            depth -= 1
            continue
        below = depth + 1
        counts[below] = 0
        opened[below] = False
        if options[depth] == 0:
            # All partners were tried: the atom stays alone.
            options[depth] = -1
            for group in range(counts[depth]):
                rest = left[depth, group] & ~(1 << here) if group == chosen[depth] else left[depth, group]
                if rest:
                    left[below, counts[below]], right[below, counts[below]] = rest, right[depth, group]
                    counts[below] += 1
        else:
            there = _lowest(options[depth])
            options[depth] &= options[depth] - 1
            partner[here] = there
            paired += 1
            for group in range(counts[depth]):
                mask, other = left[depth, group] & ~(1 << here), right[depth, group] & ~(1 << there)
                for joined in range(2):
                    one = mask & neighbours[here] if joined else mask & ~neighbours[here]
                    two = other & other_neighbours[there] if joined else other & ~other_neighbours[there]
                    if one and two:
                        left[below, counts[below]], right[below, counts[below]] = one, two
                        counts[below] += 1
        depth = below
    return best, True


@njit(cache=True)
def edit_distance(
    elements: Ints, neighbours: Ints, other_elements: Ints, other_neighbours: Ints, steps: int
) -> tuple[Ints, int, bool]:
    """A cheapest mapping of all atoms onto those of a molecule of equal size (n,), its cost, and whether it is proved.

    Bound: bonds between one mapped atom and the unmapped ones can agree only as far as both sides have as many, and so
    can bonds among the unmapped; elements of the unmapped can agree only as far as both sides have them.
    """
    size = len(elements)
    kinds = max(elements.max(), other_elements.max()) + 1
    order = _connected_order(neighbours)
    best, image = np.arange(size), np.full(size, -1, np.int64)
    cheapest, used = 1 << 30, 0
    free = np.zeros(size + 1, np.int64)
    free[0] = (1 << size) - 1
    unmapped = np.zeros(size + 1, np.int64)
    unmapped[0] = free[0]
    cost = np.zeros(size + 1, np.int64)
    # At each depth: the images to try, cheapest bound first, and how many were tried.
    queue, bounds = np.zeros((size + 1, size), np.int64), np.zeros((size + 1, size), np.int64)
    lengths, tried = np.zeros(size + 1, np.int64), np.zeros(size + 1, np.int64)
    balance = np.zeros(kinds, np.int64)
    depth, entered = 0, True
    while depth >= 0:
        if entered:
            entered = False
            used += 1
            if used > steps and cheapest < 1 << 30:
                return best, cheapest, False
            if depth == size:
                if cost[depth] < cheapest:
                    cheapest = cost[depth]
                    best[:] = image
                depth -= 1
                continue
            atom = order[depth]
            lengths[depth], tried[depth] = 0, 0
            rest = unmapped[depth] & ~(1 << atom)
            unmapped[depth + 1] = rest
            for there in range(size):
                if not (free[depth] >> there) & 1:
                    continue
                step = 1 if elements[atom] != other_elements[there] else 0
                for earlier in range(depth):
                    before = order[earlier]
                    one, two = (neighbours[atom] >> before) & 1, (other_neighbours[there] >> image[before]) & 1
                    step += one ^ two
                image[atom] = there
                remaining = free[depth] & ~(1 << there)
                bound = cost[depth] + step
                inside, other_inside = 0, 0
                balance[:] = 0
                for place in range(size):
                    if (rest >> place) & 1:
                        inside += _count(neighbours[place] & rest)
                        balance[elements[place]] += 1
                    else:
                        bound += abs(
                            _count(neighbours[place] & rest) - _count(other_neighbours[image[place]] & remaining)
                        )
                    if (remaining >> place) & 1:
                        other_inside += _count(other_neighbours[place] & remaining)
                        balance[other_elements[place]] -= 1
                bound += abs(inside - other_inside) // 2 + np.abs(balance).sum() // 2
                image[atom] = -1
                if bound >= cheapest:
                    continue
                place = lengths[depth]
                while place > 0 and bounds[depth, place - 1] > bound:
                    bounds[depth, place], queue[depth, place] = bounds[depth, place - 1], queue[depth, place - 1]
                    place -= 1
                bounds[depth, place], queue[depth, place] = bound, there
                lengths[depth] += 1
        atom = order[depth]
        image[atom] = -1
        if tried[depth] == lengths[depth] or bounds[depth, tried[depth]] >= cheapest:
            depth -= 1
            continue
        there = queue[depth, tried[depth]]
        tried[depth] += 1
        image[atom] = there
        cost[depth + 1] = cost[depth] + (1 if elements[atom] != other_elements[there] else 0)
        for earlier in range(depth):
            before = order[earlier]
            cost[depth + 1] += ((neighbours[atom] >> before) & 1) ^ ((other_neighbours[there] >> image[before]) & 1)
        free[depth + 1] = free[depth] & ~(1 << there)
        depth += 1
        entered = True
    return best, cheapest, True


@njit(cache=True)
def _connected_order(neighbours: Ints) -> Ints:
    """The atoms, each joined to as many earlier ones as can be, then by degree."""
    size = len(neighbours)
    order, taken = np.zeros(size, np.int64), 0
    for place in range(size):
        pick, key = -1, -1
        for atom in range(size):
            if not (taken >> atom) & 1:
                value = 64 * _count(neighbours[atom] & taken) + _count(neighbours[atom])
                if value > key:
                    pick, key = atom, value
        order[place] = pick
        taken |= 1 << pick
    return order
