"""Graph tasks: optima against search over everything, answers that keep the rules, volumes that nest."""

import random
from itertools import combinations, pairwise, permutations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep import graphs
from data_prep.graph_families import FAMILIES, random_network
from data_prep.graph_optima import (
    MAX_PLACES,
    maximum_clique,
    maximum_independent_set,
    minimum_vertex_cover,
    shortest_tour,
)
from data_prep.graph_problems import NETWORK_SIZES, TASKS, TOUR_SIZES

SEEDS = st.integers(0, 10**6)


def largest(graph, joined):
    """The size of the largest set of nodes of which every two are joined (or none are)."""
    return max(
        len(chosen)
        for size in range(1, len(graph) + 1)
        for chosen in combinations(graph.nodes, size)
        if all(graph.has_edge(*pair) == joined for pair in combinations(chosen, 2))
    )


@settings(deadline=None, max_examples=25)
@given(SEEDS, st.integers(2, 8))
def test_node_sets_are_feasible_and_as_good_as_any(seed, size):
    graph, _ = random_network(random.Random(seed), size)
    clique, independent, cover = maximum_clique(graph), maximum_independent_set(graph), minimum_vertex_cover(graph)
    assert all(graph.has_edge(*pair) for pair in combinations(clique, 2))
    assert not any(graph.has_edge(*pair) for pair in combinations(independent, 2))
    assert all(left in cover or right in cover for left, right in graph.edges)
    assert (len(clique), len(independent)) == (largest(graph, True), largest(graph, False))
    assert len(cover) == size - len(independent)


@settings(deadline=None, max_examples=25)
@given(SEEDS, st.integers(2, 7))
def test_a_tour_is_as_short_as_any(seed, size):
    half = np.triu(np.random.default_rng(seed).integers(0, 100, (size, size)), 1)
    distances = half + half.T
    tour, length = shortest_tour(distances)

    def length_of(places):
        return sum(int(distances[here, there]) for here, there in pairwise(places))

    assert sorted(tour[:-1]) == list(range(size))
    assert tour[0] == tour[-1] == 0
    assert length == length_of(tour) == min(length_of((0, *rest, 0)) for rest in permutations(range(1, size)))


def test_tours_beyond_the_proof_are_refused():
    with pytest.raises(ValueError, match="14 places are not 2 to 13"):
        shortest_tour(np.zeros((MAX_PLACES + 1, MAX_PLACES + 1), np.int64))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_is_the_same_for_the_same_seed(family):
    first, again, other = (FAMILIES[family](random.Random(seed), 20) for seed in (0, 0, 1))
    assert len(first) == 20
    assert set(first.edges) == set(again.edges) != set(other.edges)


@pytest.mark.parametrize("level", graphs.LEVELS)
@pytest.mark.parametrize("name", TASKS)
def test_problems_have_the_size_of_their_level_and_name_their_optimum(name, level):
    problem = TASKS[name](random.Random(level), level)
    sizes = TOUR_SIZES if name == "tsp" else NETWORK_SIZES
    assert len(problem.truth["nodes"]) in sizes[level]
    assert all(node in problem.text for node in problem.truth["nodes"])
    assert set(problem.answer) <= set(problem.truth["nodes"])
    if name in ("mcp", "mis", "mvc"):
        assert problem.truth["optimum"] == len(problem.answer)


@settings(deadline=None, max_examples=20)
@given(SEEDS, st.sampled_from([1, 2, 3]))
def test_paths_of_a_diameter_and_a_distance_are_shortest(seed, level):
    for name in ("diameter", "shortest_distance"):
        problem = TASKS[name](random.Random(seed), level)
        graph = nx.Graph(problem.truth["edges"])
        graph.add_nodes_from(problem.truth["nodes"])
        assert nx.is_path(graph, problem.answer)
        between = nx.shortest_path_length(graph, problem.answer[0], problem.answer[-1])
        assert len(problem.answer) - 1 == (nx.diameter(graph) if name == "diameter" else between)


def test_a_smaller_volume_is_a_balanced_subset_of_a_larger_one():
    small, large = (list(graphs.drafts(("mcp", "mis"), (1, 2), limit=limit, seed=3)) for limit in (8, 20))
    cells = [(item["skill"], item["notes"]["level"]) for item in small if item["role"] == "train"]
    assert sorted(cells) == sorted([("mcp", 1), ("mcp", 2), ("mis", 1), ("mis", 2)] * 2)
    assert {item["id"] for item in small} < {item["id"] for item in large}
    assert {item["source"] for item in large} == {"graphs"}
