"""Exact optima of the graph tasks, by searches that prove them."""

from itertools import combinations

import networkx as nx
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp

# The dynamic programme keeps 2^(n - 1) n numbers in memory: 13 places take 0.4 MB and a tenth of a second.
DYNAMIC_PLACES = 13


def maximum_clique(graph: nx.Graph) -> list[str]:
    """The nodes of a largest clique (branch and bound with colouring bounds, networkx)."""
    clique, _ = nx.max_weight_clique(graph, weight=None)
    return sorted(clique)


def maximum_independent_set(graph: nx.Graph) -> list[str]:
    """The nodes of a largest independent set: a clique of the complement."""
    return maximum_clique(nx.complement(graph))


def minimum_vertex_cover(graph: nx.Graph) -> list[str]:
    """The nodes of a smallest vertex cover: those outside a largest independent set."""
    return sorted(set(graph.nodes) - set(maximum_independent_set(graph)))


def shortest_tour(distances: NDArray[np.int64]) -> tuple[list[int], int]:
    """A shortest closed tour for a symmetric matrix (n, n), as n + 1 places from 0 to 0, and its length.

    Two exact methods: a dynamic programme up to DYNAMIC_PLACES places, an integer programme beyond.
    """
    size = len(distances)
    if size < 2:
        raise ValueError(f"{size} places have no tour; pass at least 2")
    return tour_by_dynamic_programme(distances) if size <= DYNAMIC_PLACES else tour_by_integer_programme(distances)


def tour_by_integer_programme(distances: NDArray[np.int64]) -> tuple[list[int], int]:
    """`shortest_tour` for 3 places or more, by HiGHS.

    Every place has two edges. While the solution has several subtours, each of them gets the constraint that at least
    two edges leave it (Dantzig, Fulkerson and Johnson, 1954). Raises RuntimeError if the solver fails.
    """
    size = len(distances)
    edges = list(combinations(range(size), 2))
    costs = np.array([distances[edge] for edge in edges], float)
    groups: list[set[int]] = [{place} for place in range(size)]
    while True:
        leaving = np.array([[(left in group) != (right in group) for left, right in edges] for group in groups], float)
        most = [2 if len(group) == 1 else np.inf for group in groups]
        solution = milp(costs, integrality=1, bounds=Bounds(0, 1), constraints=LinearConstraint(leaving, 2, most))
        if not solution.success:
            raise RuntimeError(f"no shortest tour of {size} places was found: {solution.message}")
        chosen = nx.Graph(edge for edge, share in zip(edges, solution.x, strict=True) if share > 0.5)
        subtours = list(nx.connected_components(chosen))
        if len(subtours) == 1:
            tour = list(nx.dfs_preorder_nodes(chosen, 0))
            return [*tour, 0], int(sum(distances[edge] for edge in chosen.edges))
        groups += subtours


def tour_by_dynamic_programme(distances: NDArray[np.int64]) -> tuple[list[int], int]:
    """`shortest_tour` in time and memory that double with every place (Held and Karp, 1962)."""
    count = len(distances) - 1
    steps = distances[1:, 1:]
    # lengths[visited, last]: the shortest path from place 0 through `visited` (bits, without place 0) to `last`.
    lengths = np.full((1 << count, count), np.iinfo(np.int64).max // 4)
    bits = 1 << np.arange(count)
    lengths[bits, np.arange(count)] = distances[0, 1:]
    for visited in range(1, 1 << count):
        further = np.flatnonzero(visited & bits == 0)
        lengths[visited | bits[further], further] = (lengths[visited][:, None] + steps[:, further]).min(axis=0)
    closing = lengths[-1] + distances[1:, 0]
    tour, visited = [int(closing.argmin())], (1 << count) - 1
    while visited != 1 << tour[-1]:
        rest = visited & ~(1 << tour[-1])
        tour.append(int((lengths[rest] + steps[:, tour[-1]]).argmin()))
        visited = rest
    return [0, *(place + 1 for place in reversed(tour)), 0], int(closing.min())
