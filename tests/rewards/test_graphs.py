"""Graph verifiers: every exploit of the public checkers is refused, and values agree with networkx on random graphs."""

import itertools
import json

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from rewards import compute_score, registry
from rewards.settings import JudgeSettings
from rewards.verifiers.graphs.task import parse_lists
from tests.rewards.examples import ALCOHOL, ETHER, EXAMPLES, SQUARE, thought
from tests.rewards.results import number_of

SETTINGS = JudgeSettings(shape="complicated")


def truth_of(name, truth):
    return registry.validate_ground_truth(name, json.dumps(truth))


def value_of(name, truth, *lists):
    return truth_of(name, truth).value([[str(item) for item in one] for one in lists])


async def judged(name, answer, **settings):
    result = await compute_score(name, answer, EXAMPLES[name].row, **settings)
    return result["error"], result["quality"]


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("mis", "[A, A, A, A]"),
        ("mis", "[B, D, Z]"),
        ("mis", "[B, D, '']"),
        ("mcp", "[A, B, C, C]"),
        ("mcp", "[A, B, C, Zoe]"),
        ("mcp", "[A B C]"),
        ("mcp", "[]"),
        ("mvc", "[A, C, Z]"),
        ("mvc", "[A, A, C]"),
        ("mvc", "[]"),
        ("mcs", "[0, 1, 2, 3, 4, 5, 6] [0, 1, 2, 3, 4, 5, 6]"),
        ("mcs", "[0, 0] [1, 1]"),
        ("mcs", "[0, 1] [1]"),
        ("mcs", "[0, 1, 2] [0, 1, 2]"),
        ("mcs", "[0, 2] [0, 1]"),
        ("mcs", "[-1] [0]"),
        ("mcs", "[] []"),
        ("ged", "[0, 1]"),
        ("ged", "[0, 1, 2, 3]"),
        ("ged", "[0, 0, 0]"),
        ("ged", "[-1, 0, 1]"),
        ("ged", "[0.0, 1, 2]"),
        ("tsp", "[A, B, C, D]"),
        ("tsp", "[A, B, C, D, B, A]"),
        ("tsp", "[A, B, A, B, A]"),
        ("tsp", "[A, A]"),
        ("tsp", "[A, B, C, Z, A]"),
        ("common_neighbours", "[A, A]"),
        ("common_neighbours", "[A, C, B]"),
        ("shortest_distance", "[B, D]"),
        ("shortest_distance", "[D, A, B]"),
        ("shortest_distance", "[B, A, B, A, D]"),
        ("shortest_distance", "[]"),
        ("connected_components", "[A, B, C, D]"),
        ("connected_components", "[C, C]"),
        ("diameter", "[A, B, A, B, C]"),
        ("diameter", "[A, D]"),
        ("diameter", "[A]"),
    ],
)
async def test_an_answer_that_breaks_a_rule_is_infeasible(name, answer):
    for response in (answer, thought(answer)):
        assert await judged(name, response) == ("infeasible", 0.0)
        shaped = await compute_score(name, response, EXAMPLES[name].row, shape="complicated")
        assert number_of(shaped, "score") <= 0.0


async def test_a_longer_path_is_not_a_diameter():
    assert value_of("diameter", SQUARE, "BACD") is None
    assert value_of("diameter", SQUARE, "BAD") == 2


@pytest.mark.parametrize(
    "response",
    [
        "[A, B, C, D, A].",
        "**[A, B, C, D, A]**",
        "\\boxed{[A, B, C, D, A]}",
        "['A', \"B\", C ,D,A]",
        "[\nA,\nB,\nC,\nD,\nA\n]",
        "First [A, C, B, D, A], better: [A, B, C, D, A]",
        "[C, D, A, B, C]",
        "[D, C, B, A, D]",
        "<think>\n[A, C, B, D, A]\n</think>\n[A, B, C, D, A]\nThis is the shortest.",
    ],
)
async def test_the_way_an_answer_is_written_does_not_matter(response):
    assert await judged("tsp", response) == ("none", 1.0)


@pytest.mark.parametrize(
    "response", ["<think>\n[A, B, C, D, A]", "<think>\n[A, B, C, D, A]\n</think>\nNow you know.", "A, B, C, D, A", ""]
)
async def test_lists_in_the_thinking_part_are_no_answer(response):
    assert await judged("tsp", response) == ("extract", 0.0)


@pytest.mark.parametrize(
    ("response", "opener", "binary_format", "complicated"),
    [
        ("<think>\nx</think>[A, B, C]", None, 1.5, 3.0),
        ("x</think>[A, B, C]", None, 1.0, 2.0),
        ("x</think>[A, B, C]", "template", 1.5, 3.0),
        ("x</think>[A, B, C]", "either", 1.5, 3.0),
        ("<think>\nx</think>[A, B, C]", "template", 1.0, 2.0),
    ],
)
async def test_the_format_is_paid_to_the_one_who_is_to_open_the_thinking(response, opener, binary_format, complicated):
    chosen = {} if opener is None else {"think_opener": opener}
    for shape, score in (("binary_format", binary_format), ("complicated", complicated)):
        assert (await compute_score("mcp", response, EXAMPLES["mcp"].row, shape=shape, **chosen))["score"] == score


async def test_a_worse_tour_is_worth_the_optimum_over_its_length():
    assert await judged("tsp", "[A, C, B, D, A]") == ("wrong_answer", pytest.approx(5.5 / 21.5))
    steep = await compute_score("tsp", "[A, C, B, D, A]", EXAMPLES["tsp"].row, shape="complicated")
    assert steep["score"] == pytest.approx(0.5 * (5.5 / 21.5) ** 2)
    flat = await compute_score("mcp", "[A, B]", EXAMPLES["mcp"].row, shape="complicated")
    assert flat["score"] == pytest.approx(0.5 * 2 / 3)


async def test_an_optimum_that_is_no_whole_number_is_not_cut():
    near = EXAMPLES["tsp"].truth | {"optimum": 5.0}
    result = await compute_score("tsp", "[A, B, C, D, A]", json.dumps(near))
    assert result["acc"] == 0.0
    assert result["quality"] == pytest.approx(5.0 / 5.5)


async def test_an_answer_that_beats_the_optimum_is_right_where_that_is_not_proven_and_masked_where_it_is():
    wrong_row = SQUARE | {"optimum": 2}
    beaten = await compute_score("mcp", "[A, B, C]", json.dumps(wrong_row | {"optimal": False}))
    assert (beaten["acc"], beaten["quality"]) == (1.0, 1.0)
    assert (await compute_score("mcp", "[A, B, C]", json.dumps(wrong_row)))["error"] == "infrastructure"


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("mcp", {"optimum": None}),
        ("mcp", {"optimum": -2}),
        ("mcp", {"optimum": float("nan")}),
        ("mcp", {"edges": [["A", "Z"]]}),
        ("mcp", {"edges": [["A", "A"]]}),
        ("mcp", {"edges": [["A", "B"], ["B", "A"]]}),
        ("mcp", {"nodes": ["A", "A", "B", "C", "D"]}),
        ("mcp", {"nodes": ["A", "B", "C", "D", "E, F"]}),
        ("mcp", {"nodes": ["A", "B", "C", "D", " E"]}),
        ("mcp", {"nodes": ["A", "B", "C", "D", "[E]"]}),
        ("mcp", {"weights": []}),
        ("ged", {"second": {"atoms": ["C"], "bonds": []}}),
        ("ged", {"second": {"atoms": ["C", "C", "O"], "bonds": [[0, 3]]}}),
        ("ged", {"second": {"atoms": ["C", "C", "O"], "bonds": [[0, -1]]}}),
        ("ged", {"second": {"atoms": ["C", "C", "O"], "bonds": [[0, 1], [1, 0]]}}),
        ("ged", {"second": {"atoms": ["C", "C", "O"], "bonds": [[0, 0]]}}),
        ("tsp", {"distances": [[0, 1], [1, 0]]}),
        ("tsp", {"distances": [[0, 1, 9, 1.5], [1, 0, 2, 9], [9, 2, 0, 1], [1.5, 9, 2, 0]]}),
        ("tsp", {"distances": [[1, 1, 9, 1.5], [1, 0, 2, 9], [9, 2, 0, 1], [1.5, 9, 1, 0]]}),
        ("common_neighbours", {"first": "Z"}),
        ("common_neighbours", {"first": "D"}),
        ("shortest_distance", {"edges": [["A", "B"]]}),
        ("diameter", {"edges": [["A", "B"]]}),
    ],
)
def test_a_row_that_no_answer_could_be_judged_by_is_refused_when_it_is_made(name, change):
    changed = {key: value for key, value in (EXAMPLES[name].truth | change).items() if value is not None}
    with pytest.raises(ValidationError):
        truth_of(name, changed)


def test_names_with_blanks_and_quotes_inside_are_names():
    truth = truth_of("mcp", {"nodes": ["Ann Lee", "O'Hare"], "edges": [["Ann Lee", "O'Hare"]], "optimum": 2})
    assert truth.value(parse_lists("[Ann Lee, 'O'Hare']", 1)) == 2


@pytest.mark.parametrize(
    ("text", "count", "lists"),
    [
        ("[a, b]", 1, [["a", "b"]]),
        ("[[0, 1], [2]]", 2, [["0", "1"], ["2"]]),
        ("[a] [b] [c]", 2, [["b"], ["c"]]),
        ("[ ]", 1, [[]]),
        ("[a,]", 1, [["a", ""]]),
        ("[a", 1, None),
        ("[a]", 2, None),
    ],
)
def test_the_last_lists_of_a_text(text, count, lists):
    assert parse_lists(text, count) == lists


@st.composite
def networks(draw):
    nodes = "ABCDEFG"[: draw(st.integers(1, 7))]
    pairs = list(itertools.combinations(nodes, 2))
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    network = nx.Graph(edges)
    network.add_nodes_from(nodes)
    return network, {"nodes": list(nodes), "edges": edges}


@pytest.mark.slow
@settings(deadline=None)
@given(networks(), st.data())
def test_subset_tasks_agree_with_networkx(network, data):
    network, truth = network
    chosen = data.draw(st.lists(st.sampled_from(sorted(network)), unique=True))
    inside = network.subgraph(chosen)
    is_clique = inside.number_of_edges() == len(chosen) * (len(chosen) - 1) / 2
    outside = network.subgraph(set(network) - set(chosen))
    for name, feasible in [
        ("mcp", is_clique),
        ("mis", inside.number_of_edges() == 0),
        ("mvc", outside.number_of_edges() == 0),
    ]:
        assert value_of(name, truth | {"optimum": 0}, chosen) == (len(chosen) if feasible else None)


@pytest.mark.slow
@settings(deadline=None)
@given(networks())
def test_polynomial_tasks_know_the_optimum_that_networkx_finds(network):
    network, truth = network
    components = list(nx.connected_components(network))
    assert truth_of("connected_components", truth).best == len(components)
    assert value_of("connected_components", truth, map(min, components)) == len(components)
    if len(components) == 1:
        assert truth_of("diameter", truth).best == nx.diameter(network)
    for first, second in itertools.combinations(sorted(network), 2):
        ends = truth | {"first": first, "second": second}
        assert truth_of("common_neighbours", ends).best == len(list(nx.common_neighbors(network, first, second)))
        if nx.has_path(network, first, second):
            shortest = nx.shortest_path(network, first, second)
            assert truth_of("shortest_distance", ends).best == len(shortest) - 1
            assert value_of("shortest_distance", ends, shortest) == len(shortest) - 1
        if len(components) == 1:
            assert value_of("diameter", truth, shortest) == len(shortest) - 1


@st.composite
def molecules(draw, size):
    atoms = draw(st.lists(st.sampled_from("CNO"), min_size=size, max_size=size))
    bonds = draw(st.lists(st.sampled_from(list(itertools.combinations(range(size), 2))), unique=True))
    graph = nx.Graph(bonds)
    graph.add_nodes_from((number, {"atom": atom}) for number, atom in enumerate(atoms))
    return graph, {"atoms": atoms, "bonds": bonds}


@pytest.mark.slow
@settings(deadline=None)
@given(molecules(4), molecules(4))
def test_the_best_mapping_costs_the_edit_distance_of_networkx(first, second):
    (graph, one), (other_graph, other) = first, second
    truth = {"first": one, "second": other, "optimum": 0}
    costs = [value_of("ged", truth, image) for image in itertools.permutations(range(4))]
    # No atom may be deleted here, so networkx must not find that cheaper.
    assert min(costs) == nx.graph_edit_distance(
        graph,
        other_graph,
        node_match=lambda left, right: left == right,
        node_del_cost=lambda _: 100,
        node_ins_cost=lambda _: 100,
    )


@pytest.mark.slow
@settings(deadline=None)
@given(molecules(4), molecules(4), st.data())
def test_a_pairing_is_feasible_when_networkx_sees_the_isomorphism(first, second, data):
    (graph, one), (other_graph, other) = first, second
    size = data.draw(st.integers(0, 4))
    left, right = (data.draw(st.permutations(range(4)))[:size] for _ in range(2))
    partner = dict(zip(left, right, strict=True))
    renamed = nx.relabel_nodes(graph.subgraph(left), {atom: f"{mate}" for atom, mate in partner.items()})
    same_bonds = {frozenset(bond) for bond in renamed.edges} == {
        frozenset(map(str, bond)) for bond in other_graph.subgraph(right).edges
    }
    same_atoms = all(graph.nodes[a]["atom"] == other_graph.nodes[b]["atom"] for a, b in partner.items())
    value = value_of("mcs", {"first": one, "second": other, "optimum": 0}, left, right)
    assert value == (size if same_bonds and same_atoms else None)


@pytest.mark.slow
@settings(deadline=None)
@given(st.permutations("ABCD"))
def test_a_tour_may_begin_anywhere_and_run_either_way(order):
    truth = EXAMPLES["tsp"].truth
    length = value_of("tsp", truth, [*order, order[0]])
    turned = [*order[1:], order[0]]
    assert value_of("tsp", truth, [*turned, turned[0]]) == pytest.approx(length)
    assert value_of("tsp", truth, [*order[::-1], order[-1]]) == pytest.approx(length)
    assert length >= truth["optimum"]


def test_ether_and_alcohol():
    pair = {"first": ETHER, "second": ALCOHOL, "optimum": 2}
    assert value_of("ged", pair, [0, 1, 2]) == 2
    assert value_of("ged", pair, [1, 0, 2]) == 4
    assert value_of("mcs", pair, [0, 1], [1, 2]) == 2
    assert value_of("mcs", pair, [0, 2], [0, 2]) is None
