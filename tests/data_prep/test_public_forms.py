"""EvalPlus, APPS and TACO, Spider, GraphArena and NPG-Muse from small files in exactly their form."""

import json
import pickle
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest

from data_prep.public import apps, evalplus, grapharena, spider
from data_prep.public.graph_pickles import nodes_and_edges, read_pickle
from data_prep.schema import DataFileError
from data_prep.tasks import Task, read_tasks
from rewards import compute_score
from rewards.verifiers.graphs.molecules import CommonSubgraphTruth
from tests.data_prep.task_examples import write_lines
from tests.data_prep.test_public_sets import humaneval_record, mbpp_record, refusals

# As the published test code: `is_floats` takes [] for floats, `allclose` broadcasts, some helpers do not assert.
CLOSE = """import numpy as np
from math import inf

def is_floats(x) -> bool:
    if isinstance(x, float):
        return True
    if isinstance(x, (list, tuple)):
        return all(isinstance(i, float) for i in x)
    if isinstance(x, np.ndarray):
        return x.dtype == np.float64 or x.dtype == np.float32
    return False

def assertion(out, exp, atol):
    exact_match = out == exp

    if atol == 0 and is_floats(exp):
        atol = 1e-6
    if not exact_match and atol != 0:
        assert np.allclose(out, exp, rtol=1e-07, atol=atol)
    else:
        assert exact_match, f"out: {out}, exp: {exp}"

inputs = [[[]], [[1, 2]]]
results = [[], [0.5000000001, 1.0]]
"""
NOT_NONE = """def assertion(out, exp, atol):
    if isinstance(out, bool):
        exact_match = out == exp
    else:
        exact_match = exp == (out is not None)

inputs = [['a'], ['b']]
results = [True, False]
"""
LOOP = "for i, (inp, exp) in enumerate(zip(inputs, results)):\n    assertion(f(*inp), exp, 0)\n"
FIND_ZERO = """import math

def _poly(xs: list, x: float):
    return sum([coeff * math.pow(x, i) for i, coeff in enumerate(xs)])

def check(candidate):
    inputs = [[[1, 2]]]
    results = [-0.5]
    for i, (inp, exp) in enumerate(zip(inputs, results)):
        assert _poly(*candidate(*inp), inp) <= 0.0001

check(find_zero)
"""


@pytest.mark.slow  # with the sandbox
@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("code", "test", "shown", "wrong"),
    [
        (
            "def f(xs):\n    return [x / 2 for x in xs]",
            CLOSE,
            "assert f([4]) == [2]",
            "return [x / 2 for x in xs] or [7]",
        ),
        ("def f(xs):\n    return xs if xs == 'a' else None", NOT_NONE, "assert f('a')", "return xs"),
    ],
)
async def test_evalplus_rejects_what_its_published_test_code_accepts(code, test, shown, wrong):
    record = mbpp_record(3, prompt="Do it.", test_imports=[], code=code, test_list=[shown], test=test + LOOP)
    task = Task.model_validate(evalplus.convert(record, "test", 0))
    assert (task.id, task.role, task.ground_truth["visible"]) == ("mbppplus/3", "test", 1)
    truth = json.dumps(task.ground_truth)
    assert "np." not in truth
    scores = [(await compute_score("code", one, truth))["score"] for one in (code, f"def f(xs):\n    {wrong}")]
    assert scores == [1.0, 0.5]


@pytest.mark.slow
def test_humaneval_plus_is_one_test_and_its_swapped_oracle_is_repaired(tmp_path):
    prompt = 'def find_zero(xs: list):\n    """ A zero. """\n'
    right = humaneval_record(
        32, prompt=prompt, canonical_solution="    return -xs[0] / xs[1]\n", entry_point="find_zero", test=FIND_ZERO
    )
    wrong = right | {"task_id": "HumanEval/33", "canonical_solution": "    return -9.0\n"}
    path, out = write_lines(tmp_path / "test.jsonl", right, wrong), tmp_path / "out"
    assert evalplus.main(["--version", "humaneval", "--out", str(out), "--from-file", f"test={path}"]) == 0
    (task,) = read_tasks(out / "test.jsonl")
    assert (task.id, task.licence, len(task.ground_truth["tests"])) == ("humanevalplus/32", "apache-2.0", 1)
    assert refusals(out) == {"humanevalplus/33": "its solution fails: wrong_answer"}


def called(name: str, given: Any, expected: Any, *solutions: str, starter: str = "") -> dict[str, Any]:
    tests = {"fn_name": name, "inputs": [given], "outputs": [expected]} if name else given
    texts = {
        "input_output": json.dumps(tests) if tests else "",
        "solutions": json.dumps(solutions) if solutions else "",
    }
    return {"question": f"Solve {name}.", "difficulty": "interview", "url": "", "starter_code": starter} | texts


# Annotations need names that LeetCode provides.
LEETCODE = "class Solution:\n    def maxArea(self, height: List[int]) -> int:\n        return max(height)"


@pytest.mark.slow  # with the sandbox
def test_apps_has_printed_and_called_problems_and_tells_what_it_refuses(tmp_path):
    printed = {"inputs": ["1\n2\n", ["3", "4"]], "outputs": ["3\n", ["7"]]}
    method = "class Solution:\n    def add(self, a, b):\n        return a + b"
    records = [
        called("", printed, None, "print 3", "print(int(input()) + int(input()))"),
        called("twice", [1], [2], "def twice(a):\n    return 2 * a"),
        called("pair", [1], [1, [1]], "def pair(a):\n    return (a, [a])"),
        called("box", [1], [1], "def box(a):\n    return [a]"),
        called("add", [1, 2], 3, method, starter="class Solution:\n"),
        called("maxArea", [[1, 2]], 2, LEETCODE, starter="class Solution:\n    def maxArea(self, height: List[int])"),
        called("half", [1], 0.5, "def half(a):\n    return 0.1 * 5 * a"),
        called("text", "N = 3", "3", "def text(n):\n    return n"),
        called("", None, None, "print(1)"),
        called("no", [1], [2], "def no(a):\n    return 7"),
    ]
    path, out = write_lines(tmp_path / "train.jsonl", *records), tmp_path / "out"
    assert apps.main(["--out", str(out), "--from-file", f"train={path}"]) == 0
    made = read_tasks(out / "train.jsonl")
    assert [task.id for task in made] == [f"apps/train/{number}" for number in range(7)]
    assert made[0].ground_truth["cases"] == [{"stdin": "1\n2\n", "expected": "3\n"}, {"stdin": "3\n4", "expected": "7"}]
    assert {task.verifier for task in made[1:]} == {"calls"}
    assert [(one["function"], one["calls"][0]["expected"], one["wrapped"]) for one in
            (task.ground_truth for task in made[1:])] == [
        ("twice", [2], True), ("pair", [1, [1]], False), ("box", [1], True), ("add", 3, False), ("maxArea", 2, False),
        ("half", 0.5, False),
    ]  # fmt: skip
    assert "Define `Solution.maxArea`." in made[5].prompt
    for reason, words in zip(
        refusals(out).values(),
        (
            "arguments of 'text' are neither a list nor JSON",
            "has no tests",
            "its solution fails: wrong_answer",
        ),
        strict=True,
    ):
        assert words in reason


def test_a_set_with_a_loading_script_is_read_from_its_files(tmp_path, capsys, monkeypatch):
    asked: list[Any] = []

    def load_dataset(*arguments, **options):
        asked.append((*arguments, options))
        raise ConnectionError("no route")

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    assert apps.main(["--version", "taco", "--out", str(tmp_path)]) == 1
    files = {"train": "hf://datasets/BAAI/TACO@d593ed0a2becbbc952230bb89be09189bf1056dc/ALL/train-*.parquet"}
    assert asked == [("parquet", {"data_files": files, "split": "train"})]
    assert "--from-file train=FILE.parquet" in capsys.readouterr().err
    assert grapharena.main(["--out", str(tmp_path)]) == 1
    assert "grapharena is not on the Hugging Face hub: get dataset.zip" in capsys.readouterr().err


@pytest.mark.slow  # with the sandbox
def test_spider_questions_get_their_databases_and_the_rows_of_the_published_query(tmp_path):
    rows = {
        "concert": "(1, 'Ann'), (2, CAST(x'e97a' AS TEXT))",
        "concert_v1": "(1, 'Bob')",
        "large": f"(1, '{'x' * 9000}')",
    }
    for name, values in rows.items():
        path = tmp_path / name.partition("_")[0] / f"{name}.sqlite"
        path.parent.mkdir(exist_ok=True)
        with sqlite3.connect(path) as connection:
            connection.executescript(f"CREATE TABLE singer(id INTEGER, name TEXT); INSERT INTO singer VALUES {values};")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/broken.sqlite").write_text("not a database at all" * 99)
    query = "SELECT name FROM singer ORDER BY  id DESC;"
    asked = {"concert": query, "large": query, "broken": query, "../concert": query, "gone": query}
    records = [{"db_id": name, "query": text, "question": f"Who in {name}?"} for name, text in asked.items()]
    records.append(records[0] | {"query": "SELECT lost FROM singer"})
    records.append(records[0] | {"query": "SELECT name FROM singer WHERE id > 8"})
    file, out = tmp_path / "dev.json", tmp_path / "out"
    file.write_text(json.dumps([*records, {"db_id": "concert", "SQL": query, "question": "BIRD?"}]))
    options = ["--databases", str(tmp_path), "--per-question", "2", "--max-characters", "4000"]
    assert spider.main(["--out", str(out), *options, "--from-file", f"validation={file}"]) == 0
    (task,) = read_tasks(out / "validation.jsonl")
    assert (task.id, task.role, task.licence) == ("spider/validation/0", "test", "cc-by-sa-4.0")
    assert "CREATE TABLE singer" in task.prompt
    assert "Ann" not in task.prompt
    assert [one["expected"] for one in task.ground_truth["databases"]] == [[["\ufffdz"], ["Ann"]], [["Bob"]]]
    assert task.ground_truth["ordered"]
    words = [
        "more than 4,000 characters",
        "no readable database",
        "there is no",
        "there is no",
        "no such column",
        "returns no rows",
        "'query'",
    ]
    assert [word in reason for word, reason in zip(words, refusals(out).values(), strict=True)] == [True] * 7
    used = json.loads((out / "origin.json").read_text())["files"]
    assert used.keys() == {str(tmp_path / f"concert/{name}.sqlite") for name in ("concert", "concert_v1")}


def test_spider_holds_out_whole_databases_for_dev():
    records = [{"db_id": f"db{number % 100}"} for number in range(300)]
    held, kept = (
        {records[number]["db_id"] for number in spider.parts("train", records)[part]} for part in ("dev", "train")
    )
    assert 0 < len(held) < 20
    assert held.isdisjoint(kept)


def problem(graph: Any, optimum: Any, shown: str = "All.", **more: Any) -> dict[str, Any]:
    text = f"Solve.\n\n**Problem to Solve**\n\n{shown}"
    return {"id": 0, "problem_text": text, "graph": graph, "exact_answer": optimum, "path": None} | more


def molecule(labels: str, bonds: list[tuple[int, int]]) -> nx.Graph:
    graph = nx.Graph(bonds)
    nx.set_node_attributes(graph, dict(enumerate(labels)), "label")
    return graph


# A path of four nodes as the benchmark pickles it: a view of a larger graph whose nodes are numpy's numbers.
WORLD = nx.Graph([(0, 1), (1, 2), (2, 3), (0, 4)], relation="knows")
WORLD.add_nodes_from((np.uint32(number), {"name": name}) for number, name in enumerate("ABCDE"))
PATH = nx.induced_subgraph(WORLD, range(4))
PAIR = molecule("CCO", [(0, 1), (1, 2)]), molecule("CCN", [(0, 1), (1, 2), (2, 0)])
PROBLEMS = {
    "MCP": problem(PATH, 2),
    "MIS": problem(PATH, np.int64(2)),
    "MVC": problem(PATH, 2),
    "Connected": problem(PATH, 1),
    "Diameter": problem(PATH, 3),
    "Neighbor": problem(PATH, 1, "Please identify the common neighbors of A and C in this network.", node1=0, node2=2),
    "Distance": problem(
        PATH, 3, "Please determine the shortest path between A and D in this network.", source=0, target=3
    ),
    "TSP": problem(nx.Graph(), 12, "- Airports to visit: AAA, BBB, CCC\nAAA to BBB: 3\nAAA to CCC: 4\nBBB to CCC: 5"),
    "GED": problem(PAIR, None),
    "MCS": problem(PAIR, None),
}


@pytest.fixture
def pickles(tmp_path: Path) -> list[str]:
    for name, one in PROBLEMS.items():
        (tmp_path / f"{name}_hard.pkl").write_bytes(pickle.dumps([one, one | {"exact_answer": 77}]))
        (tmp_path / f"{name}_examples.pkl").write_bytes(pickle.dumps([f"Shot {n}." for n in range(100)]))
    return [f"{name}_hard={tmp_path}/{name}_hard.pkl" for name in PROBLEMS]


@pytest.mark.slow  # compiles the searches
def test_every_task_of_grapharena_is_read_proved_and_compared_with_its_published_optimum(tmp_path, pickles):
    assert grapharena.main(["--out", str(tmp_path / "out"), "--from-file", *pickles]) == 0
    made = {task.id.split("/")[1].removesuffix("_hard"): task for task in read_tasks(tmp_path / "out/test.jsonl")}
    assert {name: task.verifier for name, task in made.items()} == grapharena.TASKS
    optima = [made[name].ground_truth["optimum"] for name in ("MCP", "MIS", "MVC", "TSP", "GED", "MCS")]
    assert optima == [2, 2, 2, 12, 2, 2]
    reasons = refusals(tmp_path / "out").values()
    assert ["the published optimum is 77, an exact search has" in reason for reason in reasons] == [True] * len(
        PROBLEMS
    )


def distance_between(ends: str, names: Sequence[str], folder: Path, **published: int) -> dict[str, Any]:
    """The task of a shortest path in the path of these names."""
    graph = nx.path_graph(len(names))
    nx.set_node_attributes(graph, dict(enumerate(names)), "name")
    text = f"Please determine the shortest path between {ends} in this network."
    (folder / "one.pkl").write_bytes(pickle.dumps([problem(graph, 2, text, **published)]))
    (record,) = read_pickle(folder / "one.pkl")
    return grapharena.convert_problem(record, "Distance_easy", 0, instruction="", shots=lambda *_: [])


@pytest.mark.parametrize("published", [{}, {"source": 0, "target": 2}])
def test_names_of_nodes_may_contain_and(tmp_path, published):
    names = ("Trinidad and Tobago", "Caribbean", "Haiti")
    truth = distance_between("Trinidad and Tobago and Haiti", names, tmp_path, **published)["ground_truth"]
    assert (truth["first"], truth["second"]) == ("Trinidad and Tobago", "Haiti")


@pytest.mark.parametrize("names", [("A", "A and B", "B and C", "C"), ("A and B", "D")])
def test_a_text_that_names_no_two_nodes_for_certain_is_refused(tmp_path, names):
    with pytest.raises(ValueError, match="does not name two nodes"):
        distance_between("A and B and C", names, tmp_path)


def test_prompts_are_the_benchmarks_with_its_examples(tmp_path, pickles):
    more = ["--examples", str(tmp_path), "--shots", "2", "--instruction", "No code. "]
    assert grapharena.main(["--out", str(tmp_path / "out"), "--from-file", pickles[0], *more]) == 0
    (task,) = read_tasks(tmp_path / "out/test.jsonl")
    shots = "\n**Example 1**\n\nShot 1.\n\n**Example 2**\n\nShot 0.\n"
    assert task.prompt == f"No code. Solve.\n{shots}\n**Problem to Solve**\n\nAll."


def test_a_common_subgraph_without_elements_is_two_sets_of_atoms():
    chain = {"atoms": ["*"] * 4, "bonds": [[0, 1], [1, 2], [2, 3]]}
    truth = CommonSubgraphTruth.model_validate({"first": chain, "second": chain, "optimum": 4})
    assert truth.value([["0", "1", "3"], ["3", "0", "1"]]) == 3
    assert truth.value([["0", "1", "3"], ["0", "1", "2"]]) is None
    assert truth.value([["0", "0"], ["1", "2"]]) is None
    elements = CommonSubgraphTruth.model_validate_json(truth.model_dump_json().replace("*", "C"))
    assert elements.value([["0", "1", "3"], ["3", "0", "1"]]) is None


class Hostile:
    def __init__(self, *reduced: Any) -> None:
        self.reduced = reduced

    def __reduce__(self) -> Any:
        return self.reduced


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_a_pickle_is_read_and_nothing_that_it_names_is_run(tmp_path, protocol):
    file, target = tmp_path / "x.pkl", tmp_path / "made"
    file.write_bytes(pickle.dumps([PATH, PATH.copy(), np.int64(-3), {1}], protocol))
    *graphs, number, chosen = read_pickle(file)
    for graph in graphs:
        nodes, edges = nodes_and_edges(graph)
        assert {node: nodes[node]["name"] for node in sorted(nodes)} == dict(enumerate("ABCD"))
        assert sorted(edges) == [(n, n + 1) for n in range(3)]
    assert (number, chosen) == (-3, {1})
    opens = f"open({str(target)!r}, 'w')"
    for hostile in (Hostile(Path.touch, (target,)), Hostile(eval, (opens,)), Hostile(getattr, (1, "real"))):
        file.write_bytes(pickle.dumps([hostile], protocol))
        with pytest.raises(DataFileError, match=r"refused, it names .*; nothing in it was run"):
            read_pickle(file)
    # A name of an allowed package is inert, whatever it is.
    file.write_bytes(f"cnumpy.testing._private.utils\nruncstring\n(V{opens}\ntR.".encode())
    with pytest.raises(DataFileError, match="a list of problems was expected"):
        read_pickle(file)
    assert not target.exists()
    file.write_bytes(pickle.dumps([1], protocol)[:-3])
    with pytest.raises(DataFileError, match="refused"):
        read_pickle(file)


@pytest.mark.slow  # compiles the searches
def test_rows_of_npg_muse_are_read(tmp_path):
    graph = {"nodes": [{"id": n, "name": f"N{n}"} for n in range(3)], "links": [{"source": 0, "target": 1}]}
    bonds = [{"nodes": [{"id": n, "label": "C"} for n in range(2)], "links": [{"source": 0, "target": 1}]}] * 2
    rows = [
        ("MIS_complicated", graph, "2"),
        ("GED_easy_binary", bonds, "0.0"),
        ("MIS_binary", graph, "3"),
        ("AIME", graph, ""),
    ]
    pd.DataFrame(
        {
            "data_source": source,
            "prompt": [{"role": "user", "content": f"Solve {n}."}],
            "extra_info": {"graph": json.dumps(given), "problem_text": "Solve.", "exact_answer": answer},
        }
        for n, (source, given, answer) in enumerate(rows)
    ).to_parquet(tmp_path / "t.parquet")
    out = tmp_path / "out"
    assert grapharena.main(["--version", "npg", "--out", str(out), "--from-file", f"train={tmp_path}/t.parquet"]) == 0
    made = [(task.id, task.verifier, task.prompt) for task in read_tasks(out / "train.jsonl")]
    assert made == [("npg/train/0", "mis", "Solve 0."), ("npg/train/1", "ged", "Solve 1.")]
    assert refusals(out)["npg/train record 2"].endswith("the published optimum is 3, an exact search has 2")
    assert "'AIME' is no graph task" in refusals(out)["npg/train record 3"]
