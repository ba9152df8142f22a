"""Random graphs with named nodes, from families that differ in what makes two nodes neighbours."""

import random
from collections.abc import Callable

import networkx as nx

_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"
_NAMES = [first.upper() + vowel + second for first in _CONSONANTS for vowel in _VOWELS for second in _CONSONANTS]


def random_names(rng: random.Random, count: int) -> list[str]:
    """Different names of three letters."""
    return rng.sample(_NAMES, count)


def _geometric(rng: random.Random, size: int) -> nx.Graph:
    """Points in a square; near ones are joined."""
    return nx.random_geometric_graph(size, rng.uniform(0.3, 0.6), seed=rng.randrange(2**32))


def _scale_free(rng: random.Random, size: int) -> nx.Graph:
    """Each new node is joined to some old ones, rather to those with many neighbours (Barabasi and Albert 1999)."""
    return nx.barabasi_albert_graph(size, rng.randint(1, min(5, size - 1)), seed=rng.randrange(2**32))


def _communities(rng: random.Random, size: int) -> nx.Graph:
    """Two or three groups, dense within and sparse between."""
    count = min(rng.randint(2, 3), size)
    sizes = [size // count + (place < size % count) for place in range(count)]
    inside, between = rng.uniform(0.5, 0.9), rng.uniform(0.05, 0.25)
    odds = [[inside if row == column else between for column in range(count)] for row in range(count)]
    return nx.stochastic_block_model(sizes, odds, seed=rng.randrange(2**32))


FAMILIES: dict[str, Callable[[random.Random, int], nx.Graph]] = {
    "geometric": _geometric,
    "scale_free": _scale_free,
    "communities": _communities,
}


def random_network(rng: random.Random, size: int) -> tuple[nx.Graph, str]:
    """A graph with at least one edge, its nodes and edges named in random order, and the name of its family."""
    family = rng.choice(list(FAMILIES))
    while True:
        graph = FAMILIES[family](rng, size)
        if graph.number_of_edges():
            break
    names = dict(zip(graph.nodes, random_names(rng, size), strict=True))
    edges = [rng.sample((names[left], names[right]), 2) for left, right in graph.edges]
    named = nx.Graph()
    named.add_nodes_from(rng.sample(list(names.values()), size))
    named.add_edges_from(rng.sample(edges, len(edges)))
    return named, family
