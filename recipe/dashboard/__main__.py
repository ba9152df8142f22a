"""The run page's panels as a dashboard of W&B or trackio: ``python -m recipe.dashboard {wandb,trackio} PROJECT``.

wandb: saves a workspace in the project (needs an account), or writes its JSON (``--json FILE``, ``--dry-run``) without.
trackio: shows the project on this machine, without an account; its metrics stand in the order of the run page's.
PROJECT is ``trainer.project_name`` of the runs. Exit status 2 if it cannot be done.
"""

import argparse
import hashlib
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recipe.pages.panels import SAMPLES, Plot, guide, metric_order, sections
from recipe.records.run_directory import write_atomically
from recipe.runtime.console import program

REFUSED = 2
NAME = "verl-skillcredit"
INSTALL = {
    "wandb_workspaces": "pip install wandb-workspaces==0.4.13 (the extra `dashboards`)",
    "trackio": "pip install trackio==0.43.0 (the extra `dashboards`)",
}


class DashboardError(RuntimeError):
    """The dashboard cannot be made; the message addresses the user."""


def package(name: str) -> Any:
    """The package of this name; DashboardError says how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise DashboardError(f"{name.partition('.')[0]} is missing: {INSTALL[name.partition('.')[0]]}") from error


def workspace(project: str, entity: str) -> Any:
    """The dashboard as a workspace of wandb-workspaces; equal panels have equal ids every time."""
    spaces = package("wandb_workspaces.workspaces")
    made = [
        spaces.Section(name=name, panels=[_line_plot(name, plot) for plot in plots], is_open=True)
        for name, plots in sections().items()
    ]
    made.append(spaces.Section(name="samples", panels=[_table(SAMPLES)], is_open=True))
    return spaces.Workspace(name=NAME, entity=entity, project=project, sections=made)


def _line_plot(section: str, plot: Plot) -> Any:
    reports = package("wandb_workspaces.reports.v2")
    names = {"y": list(plot.metrics)} if plot.pattern is None else {"metric_regex": plot.pattern}
    made = reports.LinePlot(title=plot.title, range_y=(0, 1) if plot.is_share else (None, None), **names)
    return _with_id(made, f"{section}/{plot.title}")


def _table(metric: str) -> Any:
    """The panel of a logged table."""
    return _with_id(package("wandb_workspaces.reports.v2").WeavePanelSummaryTable(table_name=metric), metric)


def _with_id(panel: Any, name: str) -> Any:
    # wandb-workspaces draws a random id; W&B keeps what a user changed in a panel under it.
    panel._id = hashlib.sha256(name.encode()).hexdigest()[:11]
    return panel


def workspace_json(project: str, entity: str) -> str:
    """The workspace as W&B's interface receives it."""
    text: str = workspace(project, entity)._to_model().model_dump_json(by_alias=True, exclude_none=True, indent=1)
    return text + "\n"


def to_wandb(options: argparse.Namespace) -> None:
    """Carry out the subcommand wandb."""
    if options.json or options.dry_run:
        text = workspace_json(options.project, options.entity or "")
        if options.json:
            write_atomically(options.json, text)
        print(options.json or text)
        return
    package("wandb_workspaces.workspaces")  # before asking for a login
    import wandb

    try:
        if not wandb.login(prompt=False):
            raise DashboardError("W&B has no login: run `wandb login`, or write the workspace with --json FILE")
        entity = str(options.entity or wandb.Api().default_entity)
        print(workspace(options.project, entity).save().url)
    except (wandb.Error, OSError, ValueError) as error:
        raise DashboardError(
            f"W&B rejected the workspace: {error}. Check the login, and that project {options.project!r} has a run "
            "(--entity), or write the workspace with --json FILE"
        ) from error


def to_trackio(options: argparse.Namespace) -> None:
    """Carry out the subcommand trackio."""
    if options.guide:
        write_atomically(options.guide, guide(options.project))
    if options.dry_run:
        print(f"TRACKIO_PLOT_ORDER={metric_order()}\n\n{guide(options.project)}")
        return
    os.environ["TRACKIO_PLOT_ORDER"] = metric_order()
    trackio = package("trackio")
    try:
        # Its default too, but an address of all networks would have no password.
        trackio.show(
            project=options.project, host="127.0.0.1", server_port=options.port, share=False, open_browser=False,
            block_thread=True,
        )  # fmt: skip
    except OSError as error:
        raise DashboardError(f"trackio cannot start: {error}. Choose another --port") from error


def command_line() -> argparse.ArgumentParser:
    """Parser of both subcommands; ``options.run(options)`` runs the chosen one."""
    parser = argparse.ArgumentParser(
        prog=program("dashboard"), description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    tools = parser.add_subparsers(dest="tool", required=True)
    wandb = tools.add_parser("wandb", help="a workspace in a project of W&B")
    wandb.add_argument("--entity", help="user or team (default: that of the login)")
    wandb.add_argument("--json", type=Path, metavar="FILE", help="write the workspace's JSON here instead of saving it")
    wandb.set_defaults(run=to_wandb)
    trackio = tools.add_parser("trackio", help="a local dashboard without an account")
    trackio.add_argument("--port", type=int, help="(default: the first free one from 7860)")
    trackio.add_argument("--guide", type=Path, metavar="FILE", help="write what each metric is, as Markdown")
    trackio.set_defaults(run=to_trackio)
    for tool in (wandb, trackio):
        tool.add_argument("project", metavar="PROJECT", help="`trainer.project_name` of the runs")
        tool.add_argument("--dry-run", action="store_true", help="print it; contact nothing")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = command_line().parse_args(arguments)
    try:
        options.run(options)
    except (DashboardError, OSError) as error:
        print(f"recipe.dashboard {options.tool}: {error}", file=sys.stderr)
        return REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main())
