"""Problems of the graph tasks: random graphs of several families, prompt, ground truth and an optimal answer."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np

from data_prep.graphs.edit_distance import edit_distance
from data_prep.graphs.molecule_search import Ints, common_subgraph
from data_prep.graphs.molecules import ORIGINS, RandomMolecule, origin_here
from data_prep.graphs.optima import maximum_clique, maximum_independent_set, minimum_vertex_cover, shortest_tour
from rewards import extraction

_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"
_NAMES = [first.upper() + vowel + second for first in _CONSONANTS for vowel in _VOWELS for second in _CONSONANTS]


def random_names(rng: random.Random, count: int) -> list[str]:
    """Distinct names of three letters."""
    return rng.sample(_NAMES, count)


def _geometric(rng: random.Random, size: int) -> nx.Graph:
    """Points in a square; close ones are joined."""
    return nx.random_geometric_graph(size, rng.uniform(0.3, 0.6), seed=rng.randrange(2**32))


def _scale_free(rng: random.Random, size: int) -> nx.Graph:
    """Each new node is joined to some old ones, preferably those with many neighbours (Barabasi and Albert 1999)."""
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


# Number of nodes by level: levels 1 to 3 are the benchmark's easy range, 4 and 5 its hard one.
NETWORK_SIZES = {1: range(4, 8), 2: range(8, 11), 3: range(11, 15), 4: range(15, 23), 5: range(23, 31)}
# Places of a tour and atoms of a molecule.
SMALL_SIZES = {1: range(4, 6), 2: range(6, 8), 3: range(8, 10), 4: range(10, 15), 5: range(15, 21)}
# Limit on nodes of a search tree: some seconds, for the few pairs of molecules that reach it.
SEARCH_STEPS = 1_000_000
_SIDE = 3000


@dataclass(frozen=True)
class GraphProblem:
    """One problem: `text` asks for a bracketed list, `answer` is the best known one, `truth` the ground truth.

    partners: the second list, if the problem asks for two.
    """

    text: str
    truth: dict[str, Any]
    answer: Sequence[str]
    partners: Sequence[str] | None = None

    @property
    def solution(self) -> str:
        """The answer as it ends a response."""
        lists = [self.answer] if self.partners is None else [self.answer, self.partners]
        return " and ".join(f"[{', '.join(items)}]" for items in lists)

    @property
    def prompt(self) -> str:
        """The text and the answer format."""
        lists = "one list" if self.partners is None else "two lists"
        return f"{self.text} {extraction.REQUEST} The answer is {lists} in square brackets, items separated by commas."


def network_truth(graph: nx.Graph, **more: Any) -> dict[str, Any]:
    """The graph as fields of a ground truth, with more fields."""
    return {"nodes": list(graph.nodes), "edges": [list(edge) for edge in graph.edges], **more}


def _network_text(graph: nx.Graph, question: str) -> str:
    edges = ", ".join(f"{left}-{right}" for left, right in graph.edges)
    return f"An undirected graph has the nodes {', '.join(graph.nodes)} and the edges {edges}. {question}"


def _node_set(solve: Callable[[nx.Graph], list[str]], question: str) -> Callable[..., GraphProblem]:
    def draw(rng: random.Random, level: int) -> GraphProblem:
        graph, _ = random_network(rng, rng.choice(NETWORK_SIZES[level]))
        answer = solve(graph)
        truth = network_truth(graph, optimum=len(answer), optimal=True)
        return GraphProblem(_network_text(graph, f"Find {question}."), truth, answer)

    return draw


def _tour(rng: random.Random, level: int) -> GraphProblem:
    size = rng.choice(SMALL_SIZES[level])
    names = random_names(rng, size)
    points = np.array([[rng.randrange(_SIDE), rng.randrange(_SIDE)] for _ in range(size)])
    distances = np.rint(np.linalg.norm(points[:, None] - points[None], axis=-1)).astype(np.int64)
    tour, length = shortest_tour(distances)
    lines = [
        f"{names[left]} to {names[right]}: {distances[left, right]}" for left in range(size) for right in range(left)
    ]
    text = (
        f"These are the distances in kilometres between airports:\n{chr(10).join(lines)}\nFind a shortest tour that "
        "visits every airport once and returns to its start; name the start again at the end."
    )
    truth = {"nodes": names, "distances": distances.tolist(), "optimum": length, "optimal": True}
    return GraphProblem(text, truth, [names[place] for place in tour])


def _pair(rng: random.Random, level: int) -> tuple[RandomMolecule, RandomMolecule, list[Ints], str]:
    """Two molecules of equal size, their arrays for the searches, and the beginning of the text."""
    origin = ORIGINS[origin_here()]
    size = rng.choice(SMALL_SIZES[level])
    first, second = origin(rng, size), origin(rng, size)
    elements = sorted({*first.atoms, *second.atoms})
    text = (
        "Two molecules are given without hydrogen; atoms are numbered from 0, bonds are pairs of atoms.\n"
        f"First: {first.text()}.\nSecond: {second.text()}.\n"
    )
    return first, second, [*first.masks(elements), *second.masks(elements)], text


def _common_subgraph(rng: random.Random, level: int) -> GraphProblem:
    while True:
        first, second, masks, text = _pair(rng, level)
        if not {*first.atoms}.isdisjoint(second.atoms):
            break
    partner, proved = common_subgraph(*masks, SEARCH_STEPS)
    answer = [atom for atom, other in enumerate(partner) if other >= 0]
    text += (
        "Find their largest common induced subgraph: pair atoms of the same element, so that two atoms of the first "
        "are bonded exactly where their partners in the second are. Name the atoms of the first, then their partners, "
        "in the same order."
    )
    truth = {"first": first.truth(), "second": second.truth(), "optimum": len(answer), "optimal": proved}
    return GraphProblem(text, truth, [str(atom) for atom in answer], [str(partner[atom]) for atom in answer])


def _edit_distance(rng: random.Random, level: int) -> GraphProblem:
    first, second, masks, text = _pair(rng, level)
    image, cost, proved = edit_distance(*masks, SEARCH_STEPS)
    text += (
        "Map every atom of the first to an atom of the second, each to another one, at the smallest cost: 1 for every "
        "atom mapped to another element, 1 for every bond that only one of the molecules has under the mapping. Name "
        "the images of the atoms 0, 1, 2 and so on, in this order."
    )
    truth = {"first": first.truth(), "second": second.truth(), "optimum": int(cost), "optimal": proved}
    return GraphProblem(text, truth, [str(atom) for atom in image])


def _common_neighbours(rng: random.Random, level: int) -> GraphProblem:
    graph, _ = random_network(rng, rng.choice(NETWORK_SIZES[level]))
    first, second = rng.sample(list(graph.nodes), 2)
    question = f"Find all common neighbours of {first} and {second}; an empty list if there are none."
    answer = sorted(nx.common_neighbors(graph, first, second))
    return GraphProblem(_network_text(graph, question), network_truth(graph, first=first, second=second), answer)


def _connected(rng: random.Random, level: int) -> nx.Graph:
    while True:
        graph, _ = random_network(rng, rng.choice(NETWORK_SIZES[level]))
        if nx.is_connected(graph):
            return graph


def _shortest_distance(rng: random.Random, level: int) -> GraphProblem:
    graph = _connected(rng, level)
    first, second = rng.sample(list(graph.nodes), 2)
    question = f"Find a shortest path from {first} to {second}, with all nodes on it."
    truth = network_truth(graph, first=first, second=second)
    return GraphProblem(_network_text(graph, question), truth, nx.shortest_path(graph, first, second))


def one_of_each_component(graph: nx.Graph) -> list[str]:
    """The first name of each connected component."""
    return [min(component) for component in nx.connected_components(graph)]


def longest_shortest_path(graph: nx.Graph) -> list[str]:
    """A shortest path between two nodes that are farthest apart."""
    return max((path for _, ends in nx.all_pairs_shortest_path(graph) for path in ends.values()), key=len)


def _connected_components(rng: random.Random, level: int) -> GraphProblem:
    graph, _ = random_network(rng, rng.choice(NETWORK_SIZES[level]))
    question = "Find its connected components: name one node of each."
    return GraphProblem(_network_text(graph, question), network_truth(graph), one_of_each_component(graph))


def _diameter(rng: random.Random, level: int) -> GraphProblem:
    graph = _connected(rng, level)
    question = "Find its diameter: name all nodes of a shortest path between two nodes that are farthest apart."
    return GraphProblem(_network_text(graph, question), network_truth(graph), longest_shortest_path(graph))


# Keyed by the name of the verifier.
TASKS: dict[str, Callable[[random.Random, int], GraphProblem]] = {
    "mcp": _node_set(maximum_clique, "a largest clique: nodes of which every two are joined by an edge"),
    "mis": _node_set(maximum_independent_set, "a largest independent set: nodes of which no two are joined by an edge"),
    "mvc": _node_set(minimum_vertex_cover, "a smallest vertex cover: nodes such that every edge has one of them"),
    "mcs": _common_subgraph,
    "ged": _edit_distance,
    "tsp": _tour,
    "common_neighbours": _common_neighbours,
    "shortest_distance": _shortest_distance,
    "connected_components": _connected_components,
    "diameter": _diameter,
}
