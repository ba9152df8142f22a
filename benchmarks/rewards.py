"""Speed of the verifiers on one core: checks per second of processor time, median and quartiles over several runs.

    OMP_NUM_THREADS=1 python -m benchmarks.rewards
    OMP_NUM_THREADS=1 python -m benchmarks.rewards --only tsp gsm8k --nodes 60 --runs 31
    python -m benchmarks.rewards hostile

`judge` is the verifier on a parsed row, `compute_score` the whole work of a reward worker for one more answer of a
group: settings, guardrails, verdict. Programs and queries run in the sandbox: benchmarks/sandbox.py.
`repeats` is the detector of repeated text, in ms for 32,768 characters of five kinds.
`hostile` is time vs. length for every regular expression of rewards/ and every other function that reads an answer.
"""

import argparse
import asyncio
import json
import random
import statistics
import time
from collections.abc import Callable, Iterable
from itertools import combinations, pairwise
from typing import Any

from benchmarks.answers import hostile
from rewards import compute_score, registry
from rewards.guardrails import repeats_itself
from rewards.settings import JudgeSettings

CHECKS = 200
CHARACTERS = 32_768
THINKING = (
    "<think>\nThe degrees are counted first, then the candidates are tried in turn; one of them fits.\n</think>\n"
)
TARGETS = dict.fromkeys(("mcp", "mis", "mvc", "countdown", "gsm8k"), 20_000) | dict.fromkeys(
    ("mcs", "ged", "tsp"), 5_000
)

AnsweredRow = tuple[dict[str, Any], str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = [*problems(8), "repeats"]
    parser.add_argument("what", nargs="?", choices=["speed", "hostile"], default="speed")
    parser.add_argument("--only", nargs="+", choices=kinds, default=kinds)
    parser.add_argument("--nodes", type=int, default=30, help="nodes per graph, atoms per molecule")
    parser.add_argument("--runs", type=int, default=15)
    arguments = parser.parse_args()
    if arguments.what == "hostile":
        hostile.main()
        return
    print(f"{'':22}{'judge':>26}{'compute_score':>26}{'target':>9}   checks/s, median (quartiles)")
    for name, row in problems(arguments.nodes).items():
        if name in arguments.only:
            rates = asyncio.run(measure(name, *row, arguments.runs))
            print(f"{name:22}" + "".join(f"{spread(rate):>26}" for rate in rates) + f"{TARGETS.get(name, ''):>9}")
    if "repeats" in arguments.only:
        for kind, text in texts().items():
            times = [1000 * seconds(lambda text=text: repeats_itself.__wrapped__(text)) for _ in range(arguments.runs)]
            print(f"repeats, {kind:13}{spread(times, 2):>26} ms, target 20")


async def measure(name: str, truth: dict[str, Any], response: str, runs: int) -> tuple[list[float], list[float]]:
    """Checks per second of `judge` and of `compute_score`, one figure per run."""
    row, verifier, settings = json.dumps(truth), registry.get(name), JudgeSettings()
    parsed = registry.validate_ground_truth(name, row)
    judged: list[float] = []
    scored: list[float] = []
    for _ in range(runs):
        start = time.process_time()
        for _ in range(CHECKS):
            await verifier.judge(response, parsed, settings)
        middle = time.process_time()
        for _ in range(CHECKS):
            result = await compute_score(name, response, row)
        judged.append(CHECKS / (middle - start))
        scored.append(CHECKS / (time.process_time() - middle))
        if result["error"] not in ("none", "wrong_answer"):
            raise RuntimeError(f"{name}: the measured answer must be feasible, got {result}")
    return judged, scored


def problems(nodes: int) -> dict[str, AnsweredRow]:
    """A ground truth and a feasible answer for every verifier that needs no sandbox."""
    rng = random.Random(0)
    names = [f"Node {number}" for number in range(nodes)]
    chosen, others = names[: nodes // 4], names[nodes // 4 :]
    pairs = [pair for pair in combinations(names, 2) if not set(pair) <= set(chosen)]
    apart = rng.sample(pairs, len(pairs) // 3)
    joined = apart + list(combinations(chosen, 2))
    line = list(pairwise(names))
    first, second = molecule(rng, nodes), molecule(rng, nodes)
    atoms = range(nodes)
    return {
        "mcp": ({"nodes": names, "edges": joined, "optimum": nodes}, listed(chosen)),
        "mis": ({"nodes": names, "edges": apart, "optimum": nodes}, listed(chosen)),
        "mvc": ({"nodes": names, "edges": apart, "optimum": 1}, listed(others)),
        "mcs": (
            {"first": first, "second": first, "optimum": nodes},
            f"{listed(atoms)} {listed(atoms)[len(THINKING) :]}",
        ),
        "ged": ({"first": first, "second": second, "optimum": 0}, listed(rng.sample(atoms, nodes))),
        "tsp": ({"nodes": names, "distances": distances(rng, nodes), "optimum": 1}, listed([*names, names[0]])),
        "common_neighbours": (
            {"nodes": names, "edges": joined, "first": chosen[0], "second": chosen[1]},
            listed(chosen[2:]),
        ),
        "shortest_distance": ({"nodes": names, "edges": line, "first": names[0], "second": names[-1]}, listed(names)),
        "connected_components": ({"nodes": names, "edges": line[::2]}, listed(names[::2])),
        "diameter": ({"nodes": names, "edges": line}, listed(names)),
        "countdown": ({"numbers": [95, 38, 2, 6], "target": 19}, f"{THINKING}<answer>(95 - 38) * 2 / 6</answer>"),
        "gsm8k": ({"answer": "72"}, f"{THINKING}She sold 48 / 2 = 24 in May and 48 + 24 = 72 in all.\n#### 72"),
    }


def listed(items: Iterable[object]) -> str:
    """A response whose answer is this list."""
    return f"{THINKING}[{', '.join(map(str, items))}]"


def molecule(rng: random.Random, atoms: int) -> dict[str, Any]:
    """A random tree of carbon, nitrogen and oxygen atoms."""
    return {"atoms": rng.choices("CNO", k=atoms), "bonds": [(rng.randrange(atom), atom) for atom in range(1, atoms)]}


def distances(rng: random.Random, places: int) -> list[list[int]]:
    """A symmetric table of kilometres."""
    table = [[0] * places for _ in range(places)]
    for left, right in combinations(range(places), 2):
        table[left][right] = table[right][left] = rng.randint(50, 15_000)
    return table


def texts() -> dict[str, str]:
    """Texts of CHARACTERS characters without a repeat to detect, from friendly to hostile."""
    rng = random.Random(0)
    previous, word = "a", "b"
    while len(word) < CHARACTERS:
        previous, word = word, word + previous
    kinds = {
        "words": " ".join(rng.choices(("the", "of", "node", "edge", "clique", "is", "in", "so", "we"), k=CHARACTERS)),
        "edges": ", ".join(f"({left}, {right})" for left in range(100) for right in range(100)),
        "two letters": "".join(rng.choices("ab", k=CHARACTERS)),
        "near misses": "".join("a" * 98 + chr(200 + number) for number in range(CHARACTERS // 99 + 1)),
        "Fibonacci": word,
    }
    return {kind: text[:CHARACTERS] for kind, text in kinds.items()}


def seconds(work: Callable[[], object]) -> float:
    """Processor time of one call, so that other load on the machine does not count."""
    start = time.process_time()
    work()
    return time.process_time() - start


def spread(values: list[float], digits: int = 0) -> str:
    """Median and quartiles."""
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:,.{digits}f} ({low:,.{digits}f}-{high:,.{digits}f})"


if __name__ == "__main__":
    main()
