"""Exact optima of the graph tasks, by search that proves them."""

import networkx as nx
import numpy as np
from numpy.typing import NDArray

# 2^(n - 1) n numbers are held in memory: 13 places take 0.4 MB and a tenth of a second.
MAX_PLACES = 13


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
    """A shortest closed tour over a symmetric matrix (n, n), as n + 1 places from 0 to 0, and its length.

    The dynamic programme of Held and Karp (1962), so for at most MAX_PLACES places.
    """
    size = len(distances)
    if not 2 <= size <= MAX_PLACES:
        raise ValueError(f"{size} places are not 2 to {MAX_PLACES}")
    count = size - 1
    steps = distances[1:, 1:]
    # lengths[visited, last]: the shortest way from place 0 through `visited` (bits, without place 0) that ends in last.
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
