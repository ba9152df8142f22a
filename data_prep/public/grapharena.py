"""GraphArena and NPG-Muse: `python -m data_prep.public.grapharena --out DIR --from-file TSP_easy=TSP_easy.pkl ...`.

GraphArena's pickles, for testing only, or with `--version npg` the parquet files that NPG-Muse trains on. Prompts are
the published ones; `--examples`, `--shots` and `--instruction` add what the benchmark adds. Optima are proved again: a
problem whose published optimum differs is refused.
"""

import json
import re
import sys
from collections.abc import Callable, Container, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

from data_prep.graphs.edit_distance import edit_distance
from data_prep.graphs.molecule_search import common_subgraph
from data_prep.graphs.molecules import RandomMolecule
from data_prep.graphs.optima import maximum_clique, maximum_independent_set, minimum_vertex_cover, shortest_tour
from data_prep.graphs.problems import (
    SEARCH_STEPS,
    GraphProblem,
    longest_shortest_path,
    network_truth,
    one_of_each_component,
)
from data_prep.public.graph_pickles import nodes_and_edges, read_pickle
from data_prep.sources import hub
from data_prep.sources.hub import PublicSet
from data_prep.sources.source import positive, source_parser

# The verifier of each task.
TASKS = {
    **{task: task.lower() for task in ("MCP", "MIS", "MVC", "TSP", "GED", "MCS")},
    **{"Neighbor": "common_neighbours", "Distance": "shortest_distance"},
    **{"Connected": "connected_components", "Diameter": "diameter"},
}
_SOLVERS: dict[str, Callable[[nx.Graph], list[str]]] = {
    **{"MCP": maximum_clique, "MIS": maximum_independent_set, "MVC": minimum_vertex_cover},
    **{"Connected": one_of_each_component, "Diameter": longest_shortest_path},
}
_FILES = tuple(f"{task}_{difficulty}" for task in TASKS for difficulty in ("easy", "hard"))
VERSIONS = {
    "grapharena": PublicSet(
        *("grapharena", "", None, _FILES, ("problem_text", "graph", "exact_answer"), "", "bsd-2-clause"),
        download="get dataset.zip by the link of github.com/squareRoot3/GraphArena",
        read={".pkl": read_pickle},
    ),
    "npg": PublicSet(
        *("npg", "", None, ("train", "valid"), ("data_source", "prompt", "extra_info"), "", "none given"),
        download="get littlewyy/NPG-Muse-RL-data from ModelScope",
    ),
}
_DISTANCE = re.compile(r"(\w+) to (\w+): (\d+)")
_ENDS = re.compile(r"(?:common neighbors of|shortest path between) (.+?) in this network")
_PROBLEM = "\n**Problem to Solve**\n"
_MOST_NODES = 60

# Nodes with their attributes, and edges.
Published = tuple[dict[Any, Any], list[tuple[Any, Any]]]


def convert_problem(
    record: dict[str, Any], split: str, index: int, *, instruction: str, shots: Callable[[str, int], list[str]]
) -> dict[str, Any]:
    """The task of a problem of GraphArena. shots: the solved examples that a task's prompt of this number shows."""
    task, _, difficulty = split.partition("_")
    graphs, text = record["graph"], record["problem_text"]
    read = [nodes_and_edges(graph) for graph in (graphs if isinstance(graphs, tuple) else (graphs,))]
    examples = [f"\n**Example {number}**\n\n{shown}\n" for number, shown in enumerate(shots(task, index), 1)]
    asked = (record["source"], record["target"]) if task == "Distance" and "source" in record else ()
    return _fields(task, text, read, record["exact_answer"], asked) | {
        "id": f"grapharena/{split}/{index}",
        "source": "grapharena",
        "split": "test",
        "role": "test",
        "prompt": instruction + text.replace(_PROBLEM, "".join(examples) + _PROBLEM, 1),
        "notes": {"difficulty": difficulty},
    }


def convert_row(record: dict[str, Any], split: str, index: int) -> dict[str, Any]:
    """The task of a row of NPG-Muse: its `data_source` begins with the task, its graph is JSON in node-link form."""
    info = record["extra_info"]
    graphs = _json(info["graph"])
    read = [_linked(_json(graph)) for graph in (graphs if isinstance(graphs, list) else [graphs])]
    return _fields(record["data_source"].partition("_")[0], info["problem_text"], read, info["exact_answer"]) | {
        "id": f"npg/{split}/{index}",
        "source": "npg",
        "split": split,
        "role": {"train": "train", "valid": "dev"}[split],
        "prompt": "\n\n".join(message["content"] for message in record["prompt"]),
    }


def _json(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def _linked(graph: dict[str, Any]) -> Published:
    return {node["id"]: node for node in graph["nodes"]}, [(link["source"], link["target"]) for link in graph["links"]]


def _fields(task: str, text: str, graphs: list[Published], published: Any, asked: Sequence[Any] = ()) -> dict[str, Any]:
    """The fields that the graphs determine; ValueError if the published optimum is another than ours.

    asked: the two nodes that the problem asks about; without them the text names them.
    """
    if task not in TASKS:
        raise ValueError(f"{task!r} is no graph task; valid ones: {', '.join(TASKS)}")
    if max(len(nodes) for nodes, _ in graphs) > _MOST_NODES:
        raise ValueError(f"a graph has more than {_MOST_NODES} nodes")
    if task in ("GED", "MCS"):
        problem = _of_molecules(task, *(_molecule(task, *graph) for graph in graphs))
    else:
        problem = _tour(text) if task == "TSP" else _of_network(task, text, *graphs[0], asked)
    edges_of_path = task in ("Distance", "Diameter")
    found = problem.truth.get("optimum", len(problem.answer) - edges_of_path)
    if published is not None and str(published).strip() and float(published) != found:
        how = "an exact" if problem.truth.get("optimal", True) else "a cut"
        raise ValueError(f"the published optimum is {published}, {how} search has {found}")
    names = {"skill": TASKS[task], "verifier": TASKS[task]}
    return names | {"ground_truth": problem.truth, "solution": problem.solution}


def _of_molecules(task: str, first: RandomMolecule, second: RandomMolecule) -> GraphProblem:
    elements = sorted({*first.atoms, *second.atoms})
    masks = [*first.masks(elements), *second.masks(elements)]
    truth: dict[str, Any] = {"first": first.truth(), "second": second.truth()}
    if task == "GED":
        if len(first.atoms) != len(second.atoms):
            raise ValueError("the molecules differ in size")
        image, cost, proved = edit_distance(*masks, SEARCH_STEPS)
        truth |= {"optimum": int(cost), "optimal": bool(proved)}
        return GraphProblem("", truth, [str(atom) for atom in image])
    partner, proved = common_subgraph(*masks, SEARCH_STEPS)
    answer = [atom for atom, other in enumerate(partner) if other >= 0]
    truth |= {"optimum": len(answer), "optimal": bool(proved)}
    return GraphProblem("", truth, [str(atom) for atom in answer], [str(partner[atom]) for atom in answer])


def _molecule(task: str, nodes: dict[Any, Any], edges: list[tuple[Any, Any]]) -> RandomMolecule:
    if sorted(nodes) != list(range(len(nodes))):
        raise ValueError("the atoms are not numbered from 0")
    # The prompts of MCS show no elements, and its published checker compares none.
    atoms = ["*" if task == "MCS" else nodes[atom]["label"] for atom in range(len(nodes))]
    return RandomMolecule(atoms, edges)


def _tour(text: str) -> GraphProblem:
    """The tour by the distances in the text, which are all that a model sees."""
    pairs = {frozenset(ends): int(length) for *ends, length in _DISTANCE.findall(text)}
    names = sorted({name for pair in pairs for name in pair})
    rows = [[0 if one == other else pairs.get(frozenset((one, other)), -1) for other in names] for one in names]
    tour, length = shortest_tour(np.array(rows))
    truth = {"nodes": names, "distances": rows, "optimum": int(length), "optimal": True}
    return GraphProblem("", truth, [names[place] for place in tour])


def _ends(text: str, names: Container[str]) -> tuple[str, str]:
    """The two nodes that the text asks about; names may contain " and "."""
    match = _ENDS.search(text)
    parts = match[1].split(" and ") if match else []
    splits = [(" and ".join(parts[:place]), " and ".join(parts[place:])) for place in range(1, len(parts))]
    known = [(first, second) for first, second in splits if first in names and second in names]
    if len(known) != 1:
        raise ValueError("the text does not name two nodes")
    return known[0]


def _of_network(
    task: str, text: str, nodes: dict[Any, Any], edges: list[tuple[Any, Any]], asked: Sequence[Any]
) -> GraphProblem:
    graph = nx.Graph()
    graph.add_nodes_from(node["name"] for node in nodes.values())
    graph.add_edges_from((nodes[left]["name"], nodes[right]["name"]) for left, right in edges)
    if len(graph) < len(nodes):
        raise ValueError("two nodes have the same name")
    more: dict[str, Any] = {}
    if task in _SOLVERS:
        answer = _SOLVERS[task](graph)
        more = {"optimum": len(answer), "optimal": True} if task in ("MCP", "MIS", "MVC") else {}
    else:
        first, second = (nodes[node]["name"] for node in asked) if asked else _ends(text, graph)
        more = {"first": first, "second": second}
        if task == "Distance" and not nx.has_path(graph, first, second):
            raise ValueError(f"no path joins {first} and {second}")
        near = task == "Neighbor"
        answer = sorted(nx.common_neighbors(graph, first, second)) if near else nx.shortest_path(graph, first, second)
    return GraphProblem("", network_truth(graph, **more), answer)


def _examples(folder: Path | None, count: int) -> Callable[[str, int], list[str]]:
    """The examples that the benchmark shows with a problem: TASK_examples.pkl, from the problem's number on."""
    known: dict[str, list[str]] = {}

    def shots(task: str, index: int) -> list[str]:
        if folder is None:
            return []
        if task not in known:
            known[task] = read_pickle(folder / f"{task}_examples.pkl")
        return [known[task][(index + place) % len(known[task])] for place in reversed(range(count))]

    return shots


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = source_parser("public.grapharena", __doc__)
    parser.add_argument("--version", choices=VERSIONS, default="grapharena")
    hub.add_options(parser, ("TASK_easy", "TASK_hard", "train", "valid"))
    parser.add_argument("--instruction", default="", help="text before every prompt of GraphArena")
    parser.add_argument("--examples", type=Path, help="folder of TASK_examples.pkl")
    parser.add_argument("--shots", type=positive, default=1, help="examples in a prompt, with --examples")
    options = parser.parse_args(arguments)
    shots = _examples(options.examples, options.shots)
    problem = partial(convert_problem, instruction=options.instruction, shots=shots)
    convert = problem if options.version == "grapharena" else convert_row
    return hub.make(VERSIONS[options.version], options, convert, "mcp", module="public.grapharena")


if __name__ == "__main__":
    sys.exit(main())
