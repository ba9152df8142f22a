"""Dashboards as code: one definition of the panels, W&B's JSON offline, trackio's order, and clear refusals."""

import fnmatch
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.request import Request, urlopen

import psutil
import pytest
import wandb

from recipe.dashboard import __main__ as dashboard
from recipe.evaluation.vllm_servers import free_ports
from recipe.pages.panels import SAMPLES, Plot, guide, metric_order, panels, sections
from recipe.records.run_directory import RunDirectory
from tests.e2e.wandb_file import history, wait_for_exit
from tests.processes import PATIENCE
from tests.recipe.pages.conftest import make_run

GOLDEN = Path(__file__).parent / "dashboard.json"
"""Ids of the panels by title, and the samples' panel; to make it again: ``python -m tests.recipe.test_dashboard``."""


def shown(text: str) -> dict[str, list[dict]]:
    """Of a workspace's JSON what our code decides: each section's panels."""
    bank = json.loads(text)["spec"]["section"]["panelBankConfig"]
    return {
        section["name"]: [{"id": panel["__id__"], **panel["config"]} for panel in section["panels"]]
        for section in bank["sections"]
    }


def of_plot(plot: Plot) -> dict:
    """A panel's configuration."""
    found: dict = {"chartTitle": plot.title, "xAxis": "_step", "metrics": [] if plot.pattern else list(plot.metrics)}
    found |= {"yAxisMin": 0.0, "yAxisMax": 1.0} if plot.is_share else {}
    return found | ({"metricRegex": plot.pattern, "useMetricRegex": True} if plot.pattern else {})


def test_the_workspace_is_the_golden_one_every_time():
    pytest.importorskip("wandb_workspaces", reason="pip install -e .[dashboards]")
    first, second = (dashboard.workspace_json("p", "e") for _ in range(2))
    assert first == second
    golden, found = json.loads(GOLDEN.read_text()), shown(first)
    assert found.pop("samples") == golden.pop("samples")
    assert list(found) == list(golden)
    assert found == {
        name: [{"id": ids[plot.title], **of_plot(plot)} for plot in sections()[name]] for name, ids in golden.items()
    }
    assert (json.loads(first)["project"], json.loads(first)["entity"]) == ("p", "e")


def test_the_golden_workspace_shows_the_panels_of_today():
    """Without the package too: sections and titles are those of the one definition, in order, each with its own id."""
    golden = json.loads(GOLDEN.read_text())
    samples = golden.pop("samples")
    assert json.dumps(samples).count(f'"{SAMPLES}"') == 1
    assert {name: list(ids) for name, ids in golden.items()} == {
        name: [plot.title for plot in plots] for name, plots in sections().items()
    }
    assert list(golden) == ["credit", "projection and skills", "health", "cost"]
    ids = [one for panels in golden.values() for one in panels.values()] + [panel["id"] for panel in samples]
    assert len(set(ids)) == len(ids)


def test_every_curve_of_the_run_page_is_on_the_dashboard(tmp_path: Path):
    run: RunDirectory = make_run(tmp_path)
    drawn = {panel.title for group in panels([run], ["r"]).values() for panel in group}
    plots = [plot for own in sections().values() for plot in own]
    assert {plot.title for plot in plots} >= drawn - {
        "validation: mean of skills", "J of sql", "validation: each skill", "training samples of each step",
    }  # fmt: skip
    named = {key for row in run.metrics() for key in row}
    for key in ("skill/write/accuracy", "reward/acc", "actor/projection/anchor/sql", "timing_s/step", "credit/replays"):
        assert key in named
        assert [plot for plot in plots if key in plot.metrics or (plot.pattern and re.search(plot.pattern, key))]


def test_a_star_stands_for_a_skill_and_dots_for_themselves():
    plot = Plot("t", ("a.b/*/c", "d/*"))
    assert plot.pattern is not None
    matched = [
        one for one in ("a.b/x/c", "axb/x/c", "a.b/x/y/c", "d/x", "d/x/y", "ed/x") if re.search(plot.pattern, one)
    ]
    assert matched == ["a.b/x/c", "d/x"]
    assert Plot("t", ("a.b",)).pattern is None


def test_trackio_gets_every_metric_in_order_with_stars_at_the_end_only():
    order = metric_order().split(",")
    assert order[0] == "credit/fallback_rate"
    assert len(order) == len(set(order))
    assert not [name for name in order if "*" in name[:-1]]
    for plots in sections().values():
        for metric in (name for plot in plots for name in plot.metrics):
            assert any(fnmatch.fnmatch(metric, pattern) for pattern in order)


@pytest.mark.slow
def test_trackio_shows_a_run_of_verl_s_logger_on_the_loopback(tmp_path: Path):
    """Its own server: metrics come back as logged, in our order, and nothing listens beyond this machine."""
    environment = os.environ | {"TRACKIO_DIR": str(tmp_path / "runs"), "HF_HUB_OFFLINE": "1"}
    for first in ("1", "3"):  # the run is stopped after step 2
        logging = [sys.executable, "-c", LOGGED_BY_VERL, first]
        subprocess.run(logging, env=environment, check=True, timeout=PATIENCE, capture_output=True)
    guide_file, (port,) = tmp_path / "guide.md", free_ports(1)
    shown = [sys.executable, "-m", "recipe.dashboard", "trackio", "p", "--port", str(port), "--guide", str(guide_file)]
    with subprocess.Popen(
        shown, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as server:
        try:
            assert server.stdout is not None
            assert any(f"http://127.0.0.1:{port}" in line for line in server.stdout)
            assert listening(server.pid) == {("127.0.0.1", port)}
            rows = asked(port, "get_logs", project="p", run="r")
            assert [(row["step"], row["actor/entropy"]) for row in rows] == [
                (1, 0.5), (2, 0.25), (3, 0.125), (4, 0.0625),
            ]  # fmt: skip
            assert [one["name"] for one in asked(port, "get_runs_for_project", project="p")] == ["r"]
            (alert,) = asked(port, "get_alerts", project="p", run="r")
            assert (alert["title"], alert["text"][:5]) == ("health: entropy", "fell ")
            assert asked(port, "get_settings")["plot_order"] == metric_order().split(",")
        finally:
            server.terminate()
    assert guide_file.read_text() == guide("p")
    assert "- entropy of the policy (nats per token): `actor/entropy`" in guide("p")


LOGGED_BY_VERL = """
import sys

from omegaconf import OmegaConf
from verl.utils.tracking import Tracking

from recipe.health.alerts import send
from recipe.health.rules import RULES, Finding
from recipe.training.hooks.records import resume_in_trackio

names = {"project_name": "p", "experiment_name": "r"}
resume_in_trackio(OmegaConf.create({"trainer": {**names, "logger": ["trackio"]}, "a": {"b": 1}}))
tracking = Tracking(**names, default_backend=["trackio"], config={"a": {"b": 1}})
first = int(sys.argv[1])
for step in (first, first + 1):
    tracking.log(data={"actor/entropy": 0.5**step}, step=step)
if first > 1:
    send(Finding(next(one for one in RULES if one.name == "entropy"), "fell from 1 to 0.01"), ["trackio"])
"""


def listening(pid: int) -> set[tuple[str, int]]:
    """Addresses at which this process waits for connections."""
    connections = psutil.Process(pid).net_connections("tcp")
    return {(one.laddr.ip, one.laddr.port) for one in connections if one.status == psutil.CONN_LISTEN}


def asked(port: int, call: str, **body: str):
    """What trackio's interface answers."""
    request = Request(f"http://127.0.0.1:{port}/api/{call}", json.dumps(body).encode())
    with urlopen(request, timeout=10) as answer:
        return json.loads(answer.read())["data"]


@pytest.mark.parametrize(
    ("tool", "missing", "message"),
    [
        ("wandb", "wandb_workspaces.workspaces", "wandb_workspaces is missing: pip install wandb-workspaces==0.4.13"),
        ("trackio", "trackio", "trackio is missing: pip install trackio==0.43.0"),
    ],
)
def test_a_missing_package_is_said_with_its_command(monkeypatch, capsys, tool: str, missing: str, message: str):
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.setenv("TRACKIO_PLOT_ORDER", "")
    assert dashboard.main([tool, "p"]) == 2
    assert f"recipe.dashboard {tool}: {message}" in capsys.readouterr().err


def test_without_a_login_the_message_names_both_ways(monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.setattr(dashboard, "package", lambda name: None)
    monkeypatch.setattr(wandb, "login", lambda prompt: False)
    assert dashboard.main(["wandb", "p"]) == 2
    assert "W&B has no login: run `wandb login`, or write the workspace with --json FILE" in capsys.readouterr().err


@pytest.mark.slow
def test_samples_of_validations_are_a_table_in_the_offline_file_under_the_panel_s_name(tmp_path: Path, monkeypatch):
    """verl's logger writes it if `trainer.log_val_generations` is above 0; the last table has the earlier rows too."""
    from verl.utils.tracking import ValidationGenerationsLogger

    monkeypatch.setenv("WANDB_SILENT", "true")
    logger = ValidationGenerationsLogger("p", "e")
    with wandb.init(project="p", dir=str(tmp_path), mode="offline"):
        for step in (1, 2):
            logger.log(["wandb"], [(f"prompt {step}", "answer", 1.0)], step)
    (file,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    wait_for_exit(file)
    logged = [row for row in history(file) if any(key.startswith(SAMPLES) for key in row)]
    assert [row["_step"] for row in logged] == [1, 2]
    tables = [json.loads(path.read_text()) for path in tmp_path.glob("wandb/offline-run-*/files/media/**/*.table.json")]
    assert [["prompt 1", "prompt 2"][: len(one["data"])] for one in tables] == [
        [row[1] for row in one["data"]] for one in tables
    ]
    assert max(len(one["data"]) for one in tables) == 2


@pytest.mark.parametrize("package", ["wandb-workspaces", "trackio"])
def test_the_pin_is_that_of_the_message_and_of_the_requirements(package: str):
    (pin,) = re.findall(rf"{package}==[\d.]+", dashboard.INSTALL[package.replace("-", "_")])
    root = Path(__file__).parents[2]
    for file in ("pyproject.toml", "requirements/cpu.txt", "requirements/gpu.txt"):
        assert pin in (root / file).read_text()


if __name__ == "__main__":
    made = shown(dashboard.workspace_json("p", "e"))
    kept: dict = {"samples": made.pop("samples")}
    kept |= {name: {panel["chartTitle"]: panel["id"] for panel in panels} for name, panels in made.items()}
    GOLDEN.write_text(json.dumps(kept).replace('", "', '",\n"') + "\n")
