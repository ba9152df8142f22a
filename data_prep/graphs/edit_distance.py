"""Exact search for the smallest edit distance of two molecules of equal size.

Depth-first branch and bound, compiled by numba. Its bound is that of Chang et al. (2020, "Speeding up GED verification
for graph similarity search"): the cheapest assignment of the unmapped atoms. A pair costs what is certain (different
elements, and bonds to mapped atoms that only one side has) plus half of the difference in the numbers of bonds to
unmapped atoms, since each of these bonds counts at both ends. Costs are doubled, so that they are whole numbers.
"""

import numpy as np
from numba import njit

from data_prep.graphs.molecule_search import Ints, bits

_NEVER = 1 << 30


@njit(cache=True)
def edit_distance(
    elements: Ints, neighbours: Ints, other_elements: Ints, other_neighbours: Ints, steps: int
) -> tuple[Ints, int, bool]:
    """A cheapest mapping of all atoms to those of a molecule of equal size (n,), its cost, and whether it is proved.

    Molecules as in data_prep/graphs/molecule_search.py; the search stops after `steps` nodes of its tree.
    """
    size = len(elements)
    order = _connected_order(neighbours)
    elements, neighbours = elements[order], _renumbered(neighbours, order)
    image, best = np.full(size, -1, np.int64), np.arange(size)
    cheapest = _mapping_cost(elements, neighbours, other_elements, other_neighbours, best)
    # At each depth, with the atoms before it mapped: the free images, the cost so far, and twice the cost of mapping
    # one atom to another due to their elements and their bonds to mapped atoms.
    free, cost = np.zeros(size + 1, np.int64), np.zeros(size + 1, np.int64)
    certain = np.zeros((size + 1, size, size), np.int64)
    free[0] = (1 << size) - 1
    for atom in range(size):
        certain[0, atom] = 2 * (elements[atom] != other_elements)
    # At each depth: the images to try, cheapest bound first, and how many were tried.
    queue, bounds = np.zeros((size + 1, size), np.int64), np.zeros((size + 1, size), np.int64)
    lengths, tried = np.zeros(size + 1, np.int64), np.zeros(size + 1, np.int64)
    depth, entered, used = 0, True, 0
    while depth >= 0:
        if entered:
            used += 1
            if used > steps:
                return _in_order(best, order), cheapest, False
            columns = _places(free[depth])
            pairs = _pair_costs(certain[depth], neighbours, other_neighbours, free[depth], columns)
            total, rows, reduced = _cheapest_assignment(pairs)
            image[depth + rows] = columns
            found = _mapping_cost(elements, neighbours, other_elements, other_neighbours, image)
            if found < cheapest:
                cheapest = found
                best[:] = image
            lengths[depth] = tried[depth] = 0
            for place in range(len(columns)):
                bound = cost[depth] + (total + reduced[place] + 1) // 2
                if bound < cheapest:
                    _insert(queue[depth], bounds[depth], lengths[depth], columns[place], bound)
                    lengths[depth] += 1
        entered = tried[depth] < lengths[depth] and bounds[depth, tried[depth]] < cheapest
        if not entered:
            depth -= 1
            continue
        there = queue[depth, tried[depth]]
        tried[depth] += 1
        image[depth] = there
        cost[depth + 1] = cost[depth] + certain[depth, depth, there] // 2
        free[depth + 1] = free[depth] & ~(1 << there)
        for atom in range(depth + 1, size):
            bonded = (neighbours[atom] >> depth) & 1
            certain[depth + 1, atom] = certain[depth, atom] + 2 * (bonded ^ ((other_neighbours >> there) & 1))
        depth += 1
    return _in_order(best, order), cheapest, True


@njit(cache=True)
def _connected_order(neighbours: Ints) -> Ints:
    """The atoms in an order in which each has as many bonds to earlier ones as possible, then by degree."""
    size = len(neighbours)
    order, taken = np.zeros(size, np.int64), 0
    for place in range(size):
        pick, key = -1, -1
        for atom in range(size):
            if not (taken >> atom) & 1:
                value = 64 * bits(neighbours[atom] & taken) + bits(neighbours[atom])
                if value > key:
                    pick, key = atom, value
        order[place] = pick
        taken |= 1 << pick
    return order


@njit(cache=True)
def _renumbered(neighbours: Ints, order: Ints) -> Ints:
    """The neighbours of the atoms, reordered and renumbered."""
    result = np.zeros_like(neighbours)
    for place in range(len(order)):
        for other in range(len(order)):
            result[place] |= ((neighbours[order[place]] >> order[other]) & 1) << other
    return result


@njit(cache=True)
def _in_order(image: Ints, order: Ints) -> Ints:
    """The images of the atoms in their original order."""
    result = np.zeros_like(image)
    result[order] = image
    return result


@njit(cache=True)
def _places(mask: int) -> Ints:
    """The positions of the set bits of a mask, the lowest first."""
    result = np.zeros(bits(mask), np.int64)
    place = 0
    for number in range(len(result)):
        while not (mask >> place) & 1:
            place += 1
        result[number] = place
        place += 1
    return result


@njit(cache=True)
def _mapping_cost(elements: Ints, neighbours: Ints, other_elements: Ints, other_neighbours: Ints, image: Ints) -> int:
    """The cost of a mapping of all atoms."""
    total = 0
    for atom in range(len(image)):
        total += elements[atom] != other_elements[image[atom]]
        for earlier in range(atom):
            total += ((neighbours[atom] >> earlier) & 1) ^ ((other_neighbours[image[atom]] >> image[earlier]) & 1)
    return total


@njit(cache=True)
def _pair_costs(certain: Ints, neighbours: Ints, other_neighbours: Ints, free: int, columns: Ints) -> Ints:
    """Twice the minimum cost of mapping each unmapped atom to each free one (m, m); a bond counts half at each end."""
    count, size = len(columns), len(neighbours)
    first = size - count
    degrees = np.array([bits(other_neighbours[column] & free) for column in columns])
    result = np.empty((count, count), np.int64)
    for row in range(count):
        degree = bits(neighbours[first + row] >> first)
        for place in range(count):
            result[row, place] = certain[first + row, columns[place]] + abs(degree - degrees[place])
    return result


@njit(cache=True)
def _cheapest_assignment(costs: Ints) -> tuple[int, Ints, Ints]:
    """The cheapest assignment for a cost matrix (m, m): its cost, the row of each column (m,), and a lower bound of
    the additional cost if row 0 gets a given column (m,). Hungarian method, adding one row at a time.
    """
    count = len(costs)
    # Column `count` is a virtual one where each row starts; its negative price is the cost of the assignment.
    row_price, column_price = np.zeros(count, np.int64), np.zeros(count + 1, np.int64)
    row_of, before = np.full(count + 1, -1, np.int64), np.zeros(count, np.int64)
    slack, done = np.empty(count, np.int64), np.empty(count + 1, np.bool_)
    for row in range(count):
        row_of[count] = row
        column = count
        slack[:] = _NEVER
        done[:] = False
        while row_of[column] >= 0:
            done[column] = True
            here = row_of[column]
            step, following = _NEVER, -1
            for other in range(count):
                if not done[other]:
                    left = costs[here, other] - row_price[here] - column_price[other]
                    if left < slack[other]:
                        slack[other], before[other] = left, column
                    if slack[other] < step:
                        step, following = slack[other], other
            for other in range(count + 1):
                if done[other]:
                    row_price[row_of[other]] += step
                    column_price[other] -= step
                elif other < count:
                    slack[other] -= step
            column = following
        while column < count:
            row_of[column] = row_of[before[column]]
            column = before[column]
        row_of[count] = -1
    reduced = costs[:1] - row_price[:1] - column_price[:count] if count else np.zeros((1, 0), np.int64)
    return -column_price[count], row_of[:count], reduced[0]


@njit(cache=True)
def _insert(queue: Ints, bounds: Ints, length: int, image: int, bound: int) -> None:
    """Insert an image into a queue of `length` images sorted by bound, after those with equal bounds."""
    place = length
    while place > 0 and bounds[place - 1] > bound:
        bounds[place], queue[place] = bounds[place - 1], queue[place - 1]
        place -= 1
    bounds[place], queue[place] = bound, image
