"""Which package may import which (docs/architecture.md): an import that breaks a rule fails here, with its chain."""

from pathlib import Path

import grimp
import pytest
from grimp import ImportGraph, Layer

ROOT = Path(__file__).parents[1]
PACKAGES = ("recipe", "workers", "rewards", "data_prep", "examples", "scripts", "benchmarks")

# From the top: a layer imports lower ones only. Packages of one layer do not import each other. `tests`, which two
# benchmarks import, is outside.
HOUSE = (
    Layer("benchmarks"),
    Layer("scripts"),
    Layer("examples"),
    Layer("recipe"),
    Layer("data_prep"),
    Layer("rewards", "workers", independent=True),
)
RECIPE = (
    Layer("studies", "reports", independent=True),
    Layer("checks", "evaluation", independent=True),
    Layer("capacity"),
    Layer("training"),
    Layer("pages"),
    Layer("runtime", "health", independent=True),
    Layer("records"),
    Layer("settings"),
)
REWARDS = (
    Layer("manager"),
    Layer("counterfactual"),
    Layer("environments"),
    Layer("verl_rows"),
    Layer("verifiers"),
    Layer("registry"),
    Layer("guardrails", "settings", independent=True),
    Layer("analysis"),
    Layer("verdict"),
    Layer("sandbox", "extraction", "requests", "sample_credit", "shapes", "skills", independent=True),
)
SANDBOX = (
    Layer("__main__"),
    Layer("client", "server", independent=True),
    Layer("worker"),
    Layer("isolation", "cases", independent=True),
    Layer("inside"),
)
DATA_PREP = (
    Layer("english", "public", independent=True),
    Layer("audit_tests", "govern", "impossible", "micro", "graphs", "pretrained", "validate", independent=True),
    Layer("strength"),
    Layer("sources"),
    Layer("proving", "governance", independent=True),
    Layer("tasks"),
    Layer("json_lines"),
    Layer("schema"),
    Layer("made_from"),
    Layer("files", "machine", "splits", independent=True),
)

WORKERS = (
    Layer("detached"),
    Layer("actor"),
    Layer("engines", "safe_update", "agop", "penalties", independent=True),
    Layer("safety"),
    Layer("projection"),
    Layer("constraints", "geometry", "update_request", independent=True),
    Layer(
        "displacement", "solution_store", "aggregators", "credit", "skill_metrics", "cpu",
        independent=True,
    ),
    Layer("digests", "choices", "ranks", independent=True),
)  # fmt: skip
LAYERS = [
    (None, HOUSE), ("recipe", RECIPE), ("rewards", REWARDS), ("rewards.sandbox", SANDBOX), ("data_prep", DATA_PREP),
    ("workers", WORKERS),
]  # fmt: skip
# Modules of no layer: entry points.
BESIDE = {"rewards.sandbox.server_token"}
PURE = ("workers.credit", "workers.geometry", "workers.projection", "workers.safety", "rewards.verifiers")
SHELLS = {"workers.safety.verification"}  # forward passes by the actor's engine


@pytest.fixture(scope="module")
def graph() -> ImportGraph:
    return grimp.build_graph(*PACKAGES, cache_dir=None, exclude_type_checking_imports=False)


@pytest.mark.slow
@pytest.mark.parametrize(("container", "layers"), LAYERS)
def test_a_layer_imports_lower_ones_only(graph: ImportGraph, container: str | None, layers: tuple[Layer, ...]) -> None:
    names = {f"{container}.{name}" if container else name for layer in layers for name in layer.module_tails}
    assert names <= graph.modules
    found = graph.find_illegal_dependencies_for_layers(layers, containers={container} if container else None)
    assert not found, sorted(f"{one.importer} imports {one.imported}" for one in found)


@pytest.mark.parametrize(("container", "layers"), LAYERS[2:])
def test_every_module_has_its_layer(graph: ImportGraph, container: str, layers: tuple[Layer, ...]) -> None:
    named = {f"{container}.{name}" for layer in layers for name in layer.module_tails}
    assert graph.find_children(container) - named <= BESIDE


@pytest.mark.slow
def test_credit_projection_and_verifiers_reach_neither_ray_nor_verl() -> None:
    graph = grimp.build_graph(
        *PACKAGES, cache_dir=None, exclude_type_checking_imports=True, include_external_packages=True
    )
    modules = {one for name in PURE for one in (name, *graph.find_descendants(name))} - SHELLS
    assert len(modules) > 25
    chains = [graph.find_shortest_chain(one, package) for one in sorted(modules) for package in ("ray", "verl")]
    assert not any(chains), [chain for chain in chains if chain]


def test_no_module_imports_itself_through_others(graph: ImportGraph) -> None:
    cycles = [
        f"{importer} -> {imported}"
        for importer in sorted(graph.modules)
        for imported in sorted(graph.find_modules_directly_imported_by(importer))
        if graph.chain_exists(importer=imported, imported=importer)
    ]
    assert not cycles


@pytest.mark.parametrize(
    ("parts", "modules"),
    [
        (("rewards.sandbox",), 40),
        (("workers.cpu", "workers.digests"), 14),
    ],
)
def test_what_could_live_elsewhere_imports_nothing_else_of_the_project(
    graph: ImportGraph, parts: tuple[str, ...], modules: int
) -> None:
    inside = {one for part in parts for one in (part, *graph.find_descendants(part))}
    assert len(inside) > modules
    imported = set().union(*(graph.find_modules_directly_imported_by(module) for module in inside))
    assert imported <= inside


def test_commands_are_imported_by_no_room(graph: ImportGraph) -> None:
    commands = graph.find_children("recipe") - {f"recipe.{name}" for layer in RECIPE for name in layer.module_tails}
    assert {"recipe.train", "recipe.preflight", "recipe.evaluate"} <= commands
    importers = {one for command in commands for one in graph.find_modules_that_directly_import(command)}
    assert importers <= commands


def test_outside_tests_no_folder_has_more_than_16_modules_and_no_module_more_than_400_lines() -> None:
    files = [path for folder in PACKAGES for path in (ROOT / folder).rglob("*.py")]
    assert len(files) > 150
    folders = {path.parent for path in files}
    assert {str(one): count for one in folders if (count := len(list(one.glob("*.py")))) > 16} == {}
    assert {str(one): lines for one in files if (lines := len(one.read_text().splitlines())) > 400} == {}
