"""Pages of a run: EXPERIMENT.md, its setup and results, updated at every validation; HTML of its credits by step."""

import math
import platform
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from recipe.records.pictures import draw_learning_curve, draw_training_curves, series, skill_names
from recipe.records.run_directory import RunDirectory, read_jsonl, write_atomically
from recipe.records.tables import CUT_SHARE, cautions, cut_share
from workers.cpu.processor import processor

PACKAGES = ("verl", "torch", "transformers", "ray", "verl-skillcredit")


@dataclass(frozen=True)
class SkillRow:
    """Accuracy of one skill at the first and the last validation, as shares of 1.

    before, after: of sampled answers. greedy: the same two of greedy answers; None if not measured. once: the first
    validation is also the last.
    """

    skill: str
    before: float
    after: float
    greedy: tuple[float, float] | None = None
    once: bool = False

    @property
    def change(self) -> float:
        return self.after - self.before

    @property
    def points(self) -> str:
        """The change in points, as tables print it: one validation shows none."""
        return "-" if self.once else f"{100 * self.change:+.1f}"


def skill_table(run: RunDirectory) -> list[SkillRow]:
    """One row per skill, the mean over skills last; empty before the first validation."""
    rows = run.metrics()
    table = []
    for skill in [*skill_names(rows), "mean"]:
        _, values = series(rows, f"skill/{skill}/accuracy")
        _, greedy = series(rows, f"skill/{skill}/greedy_accuracy")
        if values:
            pair = (greedy[0], greedy[-1]) if greedy else None
            table.append(SkillRow(skill, values[0], values[-1], pair, once=len(values) == 1))
    return table


def recovery_rates(run: RunDirectory) -> tuple[float, float] | None:
    """Share of first-turn failures that later turns fixed, at the first and last validation; None without agents."""
    _, values = series(run.metrics(), "agent/recovery_rate")
    return (values[0], values[-1]) if values else None


def last_cut_share(run: RunDirectory) -> float | None:
    """Share of the last step's answers cut at ``data.max_response_length``; None before the first step."""
    limit = int(run.read_config().data.max_response_length)
    shares = [share for row in run.metrics() if (share := cut_share(row, limit)) is not None]
    return shares[-1] if shares else None


def update_report(run: RunDirectory) -> Path:
    """Draw the figures and write EXPERIMENT.md from the run's records."""
    draw_learning_curve(run)
    draw_training_curves(run)
    rows, events = run.metrics(), run.events()
    starts = [event for event in events if event["event"] == "start"]
    start = events[0] if events else {}
    started = start.get("time")
    config = run.read_config()
    template = Environment(
        loader=PackageLoader("recipe.records"), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    ).get_template("experiment.md.j2")
    text = template.render(
        run=run,
        config=config,
        command=config.run.get("command", ""),
        table=skill_table(run),
        cautions=cautions([run]),
        recovery=recovery_rates(run),
        cut=last_cut_share(run),
        much_cut=CUT_SHARE,
        step=int(rows[-1]["step"]) if rows else 0,
        started=_when(started) if started else "-",
        updated=_when(datetime.now(UTC).timestamp()),
        masked=sum(event["samples"] for event in events if event["event"] == "masked"),
        restarts=len(starts) - 1,
        versions={name: version(name) for name in PACKAGES},
        commit=(starts[-1].get("commit") if starts else None) or source_commit(),
        python=platform.python_version(),
        machine=f"{start.get('processor') or processor()}, {platform.machine()}, {platform.system()}",
        weights=start.get("weights", ""),
    )
    path = run.path / "EXPERIMENT.md"
    write_atomically(path, text)
    return path


@contextmanager
def failure_logged(run: RunDirectory, step: int) -> Iterator[None]:
    """Log an error of this block as the event ``report_failed`` instead of stopping the run.

    Only for output that can be written again from the run's records.
    """
    try:
        yield
    except Exception as error:
        run.log_event("report_failed", step=step, error=f"{type(error).__name__}: {error}")


def _when(timestamp: float) -> str:
    return datetime.fromtimestamp(timestamp, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def source_commit(folder: Path = Path(__file__).parent) -> str:
    """The newest git commit that changed the source, marked if files differ from it; ``unknown`` outside a checkout.

    docs/ does not count: no run reads it, and a study adds its finished runs to a file there.
    """
    code = ("--", ":/", ":(top,exclude)docs")
    try:
        commit = _git(folder, "log", "-1", "--format=%h", "--abbrev=12", *code)
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no", *code)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return commit + (" with local changes" if changed else "")


def _git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


@dataclass(frozen=True)
class Piece:
    """A part of a solution: a step with its credit, or text between steps (credit None).

    tests: the step's part in each test, of which its credit is the mean; none where they are not known.
    """

    text: str
    credit: float | None = None
    colour: str = "transparent"
    tests: tuple[float, ...] = ()


def pieces(
    response: str,
    spans: Sequence[Sequence[int]],
    credits: Sequence[float | None],
    tests: Sequence[Sequence[float]] = (),
) -> list[Piece]:
    """The whole response in order, split at the steps; colours are relative to the response's largest credit.

    tests: for each step its part in each test, if known.
    """
    largest = max((abs(value) for value in credits if value is not None and math.isfinite(value)), default=0.0)
    found, position = [], 0
    for (start, end), value, parts in zip(spans, credits, tests or [()] * len(spans), strict=True):
        found.append(Piece(response[position:start]))
        credit = value if value is not None and math.isfinite(value) else None
        colour = _colour(credit / largest) if credit is not None and largest > 0 else "#eeeeee"
        found.append(Piece(response[start:end], credit, colour, () if credit is None else tuple(parts)))
        position = end
    found.append(Piece(response[position:]))
    return [piece for piece in found if piece.text]


def _colour(share: float) -> str:
    """Green for shares above 0, red below, paler towards 0."""
    hue = 130 if share > 0 else 0
    return f"hsl({hue} 70% {95 - 40 * abs(share):.0f}%)"


def write_credit_page(run: RunDirectory, step: int) -> None:
    """Write ``plots/credit_<step>.html`` from this step's samples in ``generations/``."""
    rows = list(read_jsonl(run.path / "generations" / f"train_{step:06d}.jsonl"))
    samples = [_sample(row) for row in rows if row.get("credit_spans")]
    if not samples:
        return
    environment = Environment(
        loader=PackageLoader("recipe.records"), undefined=StrictUndefined, autoescape=True, trim_blocks=True
    )
    text = environment.get_template("credit.html.j2").render(step=step, samples=samples)
    write_atomically(run.path / "plots" / f"credit_{step:06d}.html", text)


def _sample(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "prompt": row["prompt"],
        "score": row["score"],
        "pass_ratio": row.get("pass_ratio", row["score"]),
        "cause": row.get("credit_cause", ""),
        "pieces": pieces(row["response"], row["credit_spans"], row["credit_values"], row.get("credit_tests", ())),
    }
