"""The page of one or several runs: one HTML file with everything in it.

It loads nothing, and its content security policy lets a browser run only the two scripts whose digests it names:
whatever a model wrote cannot run, even if it got past the escaping.
"""

import base64
import hashlib
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bokeh.resources import Resources
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from recipe.pages.curves import drawn
from recipe.pages.differences import between, differences, flat
from recipe.pages.facts import facts
from recipe.pages.panels import Curve, Panel, every_metric, panels
from recipe.pages.questions import questions
from recipe.pages.samples import SAMPLES, read_samples
from recipe.pages.text import island, visible
from recipe.records.run_directory import RunDirectory, write_atomically
from recipe.records.tables import cautions

NAME = "run.html"
"""The file's name in a run directory."""


def write_run_page(runs: Sequence[RunDirectory], out: Path | None = None, samples: int = SAMPLES) -> Path:
    """Write the page of these runs; returns its path, ``run.html`` in the first run unless `out` names another.

    samples: the largest number of them, of all runs together.

    Raises:
        RecordsError: this release cannot read a run's configuration.
    """
    path = out or runs[0].path / NAME
    write_atomically(path, run_page(runs, time.time(), samples))
    return path


def run_page(runs: Sequence[RunDirectory], now: float, samples: int = SAMPLES) -> str:
    """The HTML of the page. now: seconds since the epoch, for the age of a run's records."""
    found = [facts(run, now) for run in runs]
    names = _names([(one.experiment, one.name) for one in found])
    configs = [run.read_config() for run in runs]
    commands = [str(config.run.get("command") or "") for config in configs]
    flats = [flat(config) for config in configs]
    groups = panels(runs, names)
    numbered = {
        group: [(f"{group}-{place}", panel) for place, panel in enumerate(own)] for group, own in groups.items()
    }
    figures = {key: drawn(panel, len(runs)) for own in numbered.values() for key, panel in own}
    empty = [Curve(name, number, [], [], look="points") for number, name in enumerate(names)]
    figures["any-metric"] = drawn(Panel("all metrics", empty), len(runs))
    shown = read_samples(runs, samples)
    asked = [
        questions(
            run.metrics(),
            one.table,
            one.promise,
            credit=settings["credit.kind"] != "off",
            protects=settings["projection.method"] not in ("off", "measure"),
            samples=[row for row in shown.rows if row["run"] == number],
        )
        for number, (run, one, settings) in enumerate(zip(runs, found, flats, strict=True))
    ]
    environment = Environment(
        loader=PackageLoader("recipe.pages"), undefined=StrictUndefined, autoescape=True, trim_blocks=True,
        lstrip_blocks=True, finalize=_visible,
    )  # fmt: skip
    scripts = ["\n".join(Resources(mode="inline", components=["bokeh"]).js_raw), _source("run.js")]
    return environment.get_template("run.html.j2").render(
        runs=list(zip(names, found, commands, flats, strict=True)),
        asked=asked,
        names=names,
        panels=numbered,
        changed=[differences(config, command) for config, command in zip(configs, commands, strict=True)],
        between=between(flats),
        cautions=cautions(runs),
        left_out=shown.left_out,
        count=len(shown.rows),
        written=datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d %H:%M UTC"),
        style=Markup(_source("run.css")),
        scripts=[Markup(script) for script in scripts],
        policy=_policy(scripts),
        figures=island(figures),
        metrics=island([every_metric(run.metrics()) for run in runs]),
        samples=island({"rows": shown.rows, "texts": shown.texts, "runs": names}),
    )


def _names(names: Sequence[tuple[str, str]]) -> list[str]:
    """Runs' names, short for legends: with the experiment where that differs, numbered where two are the same."""
    one_experiment = len(names) > 1 and len({experiment for experiment, _ in names}) == 1
    shown = [name if one_experiment else f"{experiment} / {name}" for experiment, name in names]
    return [f"{name} ({place + 1})" if shown.count(name) > 1 else name for place, name in enumerate(shown)]


def _visible(value: Any) -> Any:
    """A value as the template prints it."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _policy(scripts: Sequence[str]) -> str:
    """The content security policy: these scripts, styles, pictures within the page, and nothing else."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; font-src data:"


def _source(name: str) -> str:
    return (Path(__file__).parent / "templates" / name).read_text(encoding="utf-8")
