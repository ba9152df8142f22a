"""The page of one or several runs: one HTML file with everything in it.

It loads nothing, and its content security policy lets a browser run only the two scripts whose digests it names:
whatever a model wrote cannot run, even if it got past the escaping.
"""

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from bokeh.resources import Resources
from markupsafe import Markup

from recipe.pages.curves import drawn
from recipe.pages.differences import between, differences, flat
from recipe.pages.facts import RunFacts, facts
from recipe.pages.page_samples import SAMPLES, read_samples
from recipe.pages.page_templates import environment, island, policy, source
from recipe.pages.panels import Curve, Panel, every_metric, panels
from recipe.pages.questions import PageQuestion, SampleRow, questions
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


def run_page(runs: Sequence[RunDirectory], now: float, samples: int = SAMPLES, reload: int | None = None) -> str:
    """The HTML of the page. now: seconds since the epoch, for the age of a run's records.

    reload: None for a file; seconds after which a page that the list of runs links loads itself again, 0 for never.
    """
    infos = [facts(run, now) for run in runs]
    names = _names([(one.experiment, one.name) for one in infos])
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
    scripts = ["\n".join(Resources(mode="inline", components=["bokeh"]).js_raw), source("run.js")]
    return (
        environment()
        .get_template("run.html.j2")
        .render(
            runs=list(zip(names, infos, commands, flats, strict=True)),
            asked=[_asked(number, *one, shown.rows) for number, one in enumerate(zip(runs, infos, flats, strict=True))],
            texts=shown.texts,
            names=names,
            panels=numbered,
            changed=[differences(config, command) for config, command in zip(configs, commands, strict=True)],
            between=between(flats),
            cautions=cautions(runs),
            left_out=shown.left_out,
            count=len(shown.rows),
            written=datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d %H:%M UTC"),
            style=Markup(source("run.css")),
            scripts=[Markup(script) for script in scripts],
            policy=policy(scripts),
            reload=reload,
            figures=island(figures),
            metrics=island([every_metric(run.metrics()) for run in runs]),
            samples=island({"rows": shown.rows, "texts": shown.texts, "runs": names}),
        )
    )


def _asked(
    number: int, run: RunDirectory, run_facts: RunFacts, settings: Mapping[str, str], samples: Sequence[SampleRow]
) -> list[PageQuestion]:
    """The three questions of the run with this number. settings: flat; samples: of all runs."""
    return questions(
        run.metrics(),
        run_facts.table,
        run_facts.promise,
        credit=settings.get("credit.kind", "off") != "off",
        protects=settings.get("projection.method", "off") not in ("off", "measure"),
        samples=[row for row in samples if row["run"] == number],
    )


def _names(names: Sequence[tuple[str, str]]) -> list[str]:
    """Runs' names, short for legends: with the experiment where that differs, numbered where two are the same."""
    one_experiment = len(names) > 1 and len({experiment for experiment, _ in names}) == 1
    shown = [name if one_experiment else f"{experiment} / {name}" for experiment, name in names]
    return [f"{name} ({place + 1})" if shown.count(name) > 1 else name for place, name in enumerate(shown)]
