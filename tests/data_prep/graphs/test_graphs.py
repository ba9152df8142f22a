"""Graph tasks: optima against exhaustive search, answers that satisfy the constraints, volumes that nest."""

import json
import random
from collections import Counter
from itertools import combinations, pairwise, permutations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from data_prep.graphs import suite
from data_prep.graphs.edit_distance import _cheapest_assignment, edit_distance
from data_prep.graphs.molecule_search import common_subgraph
from data_prep.graphs.molecules import built, cut_out
from data_prep.graphs.optima import (
    maximum_clique,
    maximum_independent_set,
    minimum_vertex_cover,
    shortest_tour,
    tour_by_dynamic_programme,
    tour_by_integer_programme,
)
from data_prep.graphs.problems import FAMILIES, NETWORK_SIZES, SMALL_SIZES, TASKS, random_network
from data_prep.json_lines import Journal
from data_prep.schema import DataFileError, read_rows
from data_prep.tasks import read_tasks, write_tasks
from rewards import extraction, registry
from rewards.verifiers.graphs.molecules import CommonSubgraphTruth, EditDistanceTruth
from tests.data_prep.all_sources import graphs, two_threads
from tests.data_prep.task_examples import task

pytestmark = pytest.mark.slow

SEEDS = st.integers(0, 10**6)


def largest(graph, joined):
    """Size of the largest set of nodes that are pairwise adjacent (or pairwise not adjacent)."""
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


@pytest.mark.parametrize("size", [3, 6, 9, 10])
def test_both_ways_to_a_shortest_tour_agree(size):
    # Two distant clusters of places: the integer program must merge subtours.
    points = np.random.default_rng(size).integers(0, 100, (size, 2)) + (np.arange(size) % 2)[:, None] * 1000
    distances = np.rint(np.linalg.norm(points[:, None] - points[None], axis=-1)).astype(np.int64)
    tour, length = tour_by_integer_programme(distances)
    assert sorted(tour[:-1]) == list(range(size))
    assert tour[0] == tour[-1] == 0
    assert length == tour_by_dynamic_programme(distances)[1]
    assert length == sum(int(distances[here, there]) for here, there in pairwise(tour))


@settings(deadline=None, max_examples=40)
@given(SEEDS, st.integers(4, 20))
def test_a_built_molecule_is_connected_and_keeps_every_valence(seed, size):
    molecule = built(random.Random(seed), size)
    graph = nx.Graph(molecule.bonds)
    assert len(molecule.atoms) == len(graph) == size
    assert nx.is_connected(graph)
    assert len(molecule.bonds) == graph.number_of_edges() >= size - 1
    most = {"C": 4, "N": 3, "O": 2, "S": 2, "F": 1}
    assert all(graph.degree[atom] <= most[element] for atom, element in enumerate(molecule.atoms))


def test_pieces_of_known_molecules_are_connected():
    pytest.importorskip("rdkit")
    molecule = cut_out(random.Random(3), 20)
    graph = nx.Graph(molecule.bonds)
    assert len(molecule.atoms) == len(graph) == 20
    assert nx.is_connected(graph)
    assert cut_out(random.Random(3), 20) == molecule != cut_out(random.Random(4), 20)


def pair_of(seed, size):
    """Two molecules as stored in a ground truth without an optimum, and as the searches read them."""
    rng = random.Random(seed)
    first, second = built(rng, size), built(rng, size)
    elements = sorted({*first.atoms, *second.atoms})
    row = {"first": first.truth(), "second": second.truth(), "optimum": 0, "optimal": False}
    return row, [*first.masks(elements), *second.masks(elements)]


def best_by_trying(truth, answers):
    """The best value of the feasible answers."""
    values = [value for answer in answers if (value := truth.value(answer)) is not None]
    return max(values) if truth.goal == "max" else min(values)


@pytest.mark.slow  # numba takes seconds to compile the searches
@pytest.mark.parametrize("seed", range(6))
def test_searches_over_molecules_find_what_trying_everything_finds(seed):
    row, masks = pair_of(seed, 5)
    places = [str(place) for place in range(5)]
    mapping = EditDistanceTruth(**row)
    image, cost, proved = edit_distance(*masks, 10**6)
    assert proved
    assert cost == mapping.value([[str(atom) for atom in image]])
    assert cost == best_by_trying(mapping, ([list(order)] for order in permutations(places)))
    pairing = CommonSubgraphTruth(**row)
    partner, proved = common_subgraph(*masks, 10**6)
    lists = [[str(atom) for atom in range(5) if partner[atom] >= 0], [str(atom) for atom in partner if atom >= 0]]
    tried = (
        [list(left), list(right)]
        for count in range(6)
        for left in combinations(places, count)
        for right in permutations(places, count)
    )
    assert proved
    assert len(lists[0]) == pairing.value(lists) == best_by_trying(pairing, tried)


@pytest.mark.parametrize("seed", range(3))
def test_the_edit_distance_of_larger_molecules_is_that_of_the_best_of_all_mappings(seed):
    row, masks = pair_of(seed, 8)
    image, cost, proved = edit_distance(*masks, 10**6)
    orders = np.array(list(permutations(range(8))))
    elements, bonds, other_elements, other_bonds = masks[0], adjacency(masks[1]), masks[2], adjacency(masks[3])
    relabelled = (elements != other_elements[orders]).sum(axis=1)
    rebonded = (bonds != other_bonds[orders[:, :, None], orders[:, None, :]]).sum(axis=(1, 2)) // 2
    assert (proved, cost) == (True, (relabelled + rebonded).min())
    assert EditDistanceTruth(**row).value([[str(atom) for atom in image]]) == cost


def adjacency(neighbours):
    return (neighbours[:, None] >> np.arange(len(neighbours))) & 1


def test_molecules_that_differ_only_in_their_numbers_have_the_distance_0():
    rng = np.random.default_rng(0)
    for seed in range(4):
        _, (elements, neighbours, _, _) = pair_of(seed, 20)
        order = rng.permutation(20)
        bonds = adjacency(neighbours)[order][:, order]
        image, cost, proved = edit_distance(elements, neighbours, elements[order], bonds @ (1 << np.arange(20)), 10**6)
        assert (cost, proved) == (0, True)
        assert (elements == elements[order][image]).all()


@settings(deadline=None, max_examples=60)
@given(SEEDS, st.integers(1, 7))
def test_an_assignment_is_as_cheap_as_scipys_and_its_bounds_hold(seed, size):
    costs = np.random.default_rng(seed).integers(0, 9, (size, size))
    total, rows, reduced = _cheapest_assignment(costs)
    assert sorted(rows) == list(range(size))
    assert total == costs[rows, np.arange(size)].sum() == costs[linear_sum_assignment(costs)].sum()
    for column in range(size):
        rest = np.delete(costs[1:], column, axis=1)
        forced = costs[0, column] + rest[linear_sum_assignment(rest)].sum()
        assert total <= total + reduced[column] <= forced


def test_a_search_cut_short_gives_a_feasible_answer_and_says_so():
    row, masks = pair_of(0, 20)
    image, cost, proved = edit_distance(*masks, 50)
    assert not proved
    assert sorted(image) == list(range(20))
    assert EditDistanceTruth(**row).value([[str(atom) for atom in image]]) == cost
    partner, proved = common_subgraph(*masks, 50)
    lists = [[str(atom) for atom in range(20) if partner[atom] >= 0], [str(atom) for atom in partner if atom >= 0]]
    assert not proved
    assert CommonSubgraphTruth(**row).value(lists) == len(lists[0]) > 0


@pytest.mark.parametrize("name", ["mcs", "ged"])
def test_molecule_problems_have_the_size_of_their_level_and_are_solved(name):
    for level in (1, 4):
        problem = TASKS[name](random.Random(level), level)
        sizes = {len(problem.truth[side]["atoms"]) for side in ("first", "second")}
        assert sizes <= set(SMALL_SIZES[level])
        assert len(sizes) == 1
        truth = registry.validate_ground_truth(name, json.dumps(problem.truth))
        assert isinstance(truth, EditDistanceTruth | CommonSubgraphTruth)
        lists = [problem.answer] if problem.partners is None else [problem.answer, problem.partners]
        assert truth.value([list(items) for items in lists]) == problem.truth["optimum"]
        assert f"{'two lists' if name == 'mcs' else 'one list'} in square brackets" in problem.prompt


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_is_the_same_for_the_same_seed(family):
    first, again, other = (FAMILIES[family](random.Random(seed), 20) for seed in (0, 0, 1))
    assert len(first) == 20
    assert set(first.edges) == set(again.edges) != set(other.edges)


@pytest.mark.parametrize("level", suite.LEVELS)
@pytest.mark.parametrize("name", sorted(TASKS.keys() - {"mcs", "ged"}))
def test_problems_have_the_size_of_their_level_and_name_their_optimum(name, level):
    problem = TASKS[name](random.Random(level), level)
    sizes = SMALL_SIZES if name == "tsp" else NETWORK_SIZES
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


@pytest.fixture
def two():
    with two_threads() as cores:
        yield cores


def made(path, cores, limit):
    journal = Journal(path)
    yield from suite.drafts(
        ("mcp", "mis"), (1, 2), limit=limit, seed=3, request=extraction.REQUEST, cores=cores, journal=journal
    )
    journal.close()


def test_a_smaller_limit_is_a_balanced_subset_of_a_larger_one(tmp_path, two):
    small, large = (list(made(tmp_path / str(limit), two, limit)) for limit in (8, 20))
    cells = [(item["skill"], item["notes"]["level"]) for item in small if item["role"] == "train"]
    assert sorted(cells) == sorted([("mcp", 1), ("mcp", 2), ("mis", 1), ("mis", 2)] * 2)
    assert {item["id"] for item in small} < {item["id"] for item in large}
    assert {item["source"] for item in large} == {"graphs"}


def test_an_interrupted_run_draws_only_what_it_lacks_and_ends_alike(tmp_path, two, monkeypatch):
    whole = list(made(tmp_path / "whole", two, 20))
    drawn, asked = suite.drawn, []

    def noted(*cell):
        asked.append(cell)
        return drawn(*cell)

    monkeypatch.setattr(suite, "drawn", noted)
    begun = made(tmp_path / "cut", two, 20)
    for _ in range(9):
        next(begun)
    begun.close()
    with (tmp_path / "cut").open("a") as stream:
        stream.write('{"key": "mcp/2/3/x')
    first = asked.copy()
    asked.clear()
    assert list(made(tmp_path / "cut", two, 20)) == whole
    assert ("mcp", 1, 3, 0) in first
    assert ("mcp", 1, 3, 0) not in asked


def test_endless_work_is_done_in_order_and_not_far_ahead(two):
    begun = []

    def work(item):
        begun.append(item)
        return item * item

    results = two.ordered_map(work, iter(range(10**9)))
    assert [next(results) for _ in range(20)] == [item * item for item in range(20)]
    results.close()
    assert len(begun) <= 23


def test_volumes_are_the_first_of_every_cell(tmp_path, capsys):
    cells = [("mcp", 1), ("mcp", 2), ("tsp", 1)]
    tasks = [
        task(number * 10 + index, skill=skill, notes={"level": level})
        for number, (skill, level) in enumerate(cells)
        for index in range(4)
    ]
    write_tasks(tmp_path / "train.jsonl", tasks)
    suite.write_volumes(tmp_path, [6, 9])
    small, large = ([item.id for item in read_tasks(tmp_path / f"train_{volume}.jsonl")] for volume in (6, 9))
    assert small == [f"own/{number}" for number in (0, 1, 10, 11, 20, 21)]
    assert set(small) < set(large)
    assert "train_9.parquet: 9 rows" in capsys.readouterr().out
    with pytest.raises(DataFileError, match="--volumes 15: every task and level needs 5 problems, one has 4"):
        suite.write_volumes(tmp_path, [15])


def test_the_command_writes_balanced_volumes_that_nest(tmp_path):
    arguments = ["--tasks", "mcp", "mis", "tsp", "--levels", "1", "2", "3", "--limit", "54"]
    assert suite.main(["--out", str(tmp_path), *arguments, "--volumes", "27", "36", "54"]) == 0
    held_out = {item.prompt for split in ("dev", "test") for item in read_tasks(tmp_path / f"{split}.jsonl")}
    smaller: set[str] = set()
    for volume in (27, 36, 54):
        tasks = read_tasks(tmp_path / f"train_{volume}.jsonl")
        cells = Counter((item.skill, item.notes["level"]) for item in tasks)
        ids = {item.id for item in tasks}
        assert (len(ids), len(cells), set(cells.values())) == (volume, 9, {volume // 9})
        assert smaller < ids
        assert [row.extra_info.id for row in read_rows(tmp_path / f"train_{volume}.parquet")] == [
            item.id for item in tasks
        ]
        assert not held_out & {item.prompt for item in tasks}
        smaller = ids
    assert not (tmp_path / ".drawn.jsonl").exists()


def test_a_volume_above_the_limit_is_refused_before_any_work(tmp_path, capsys):
    with pytest.raises(SystemExit):
        suite.main(["--out", str(tmp_path / "out"), "--limit", "10", "--volumes", "20"])
    assert "--volumes 20 is more than --limit 10" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("origin", "said"), [("built", True), ("cut_out", False)])
def test_molecules_that_differ_from_those_of_other_machines_are_said_to(tmp_path, monkeypatch, capsys, origin, said):
    monkeypatch.setattr(suite, "origin_here", lambda: origin)
    words = ["--out", str(tmp_path), "--levels", "1", "--limit", "1"]
    assert graphs([*words, "--tasks", "mcs"]) == 0
    assert ("rdkit is not installed: molecules are built" in capsys.readouterr().err) == said
    assert graphs([*words, "--tasks", "mcp"]) == 0
    assert "rdkit" not in capsys.readouterr().err
