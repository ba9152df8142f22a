"""What a page shows of one run in numbers: state, skills, findings, interference, timings, cost and events."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from statistics import fmean
from typing import Any

import numpy as np

from recipe.health.record import Record
from recipe.health.rules import Finding, findings
from recipe.pages.page_templates import shortened
from recipe.records.experiment_page import SkillRow, skill_table
from recipe.records.pictures import samples_of_a_step
from recipe.records.promise import Promise, promise
from recipe.records.run_directory import REFUSED, STEP_TIME, RunDirectory
from recipe.records.skill_record import read_skill_record
from recipe.records.skill_report import SkillRecord
from recipe.runtime.visible import visible
from recipe.settings import SettingsError, read_settings

_ROUTINE = ("build", "ready", "validate", "generate", "prompts", "update", "step", "save")
"""Events of every run; a page counts them, and lists all others."""
EVENTS = 200
"""Events that a page lists; of more it lists the last ones."""
SUMS = {
    "perf/total_num_tokens": "tokens, prompts included",
    "credit/replays": "replays",
    "credit/generated_tokens": "tokens of replays",
    "reward/sandbox_seconds": "seconds of sandbox workers",
}
"""Costs of a step that add up over a run."""
PEAKS = {
    "actor/perf/max_memory_allocated_gb": "memory of the actor",
    "actor/perf/cpu_memory_used_gb": "memory of the node",
}
"""Memory in GB, of which a run's largest counts."""
_LONGEST = 500


@dataclass(frozen=True)
class Cell:
    """A skill's change in a stage, in points: measured, and predicted by the constraints' gradients if known."""

    measured: float | None
    predicted: float | None
    colour: str


@dataclass(frozen=True)
class RunFacts:
    """All that a page shows of a run, as its template reads it.

    errors: standard error of each skill's last accuracy. timings: (part, seconds of a step, share of the step). cost:
    (what, how much). events: (when, event, step, the rest). counted: of the routine events.
    """

    name: str
    experiment: str
    state: str
    updates: int
    table: Sequence[SkillRow]
    errors: Mapping[str, float]
    findings: Sequence[Finding]
    skills: Sequence[str]
    interference: Sequence[tuple[str, Sequence[Cell]]]
    promise: Promise | None
    timings: Sequence[tuple[str, float, float]]
    cost: Sequence[tuple[str, str]]
    events: Sequence[tuple[str, str, str, str]]
    events_left_out: int
    counted: Mapping[str, int]


def facts(run: RunDirectory, now: float) -> RunFacts:
    """The facts of a run directory, read at time `now` (seconds since the epoch).

    Raises:
        RecordsError: this release cannot read the run's configuration.
    """
    record = Record.of(run, now)
    rows = list(record.rows)
    numbers = [{key: value for key, value in row.items() if math.isfinite(value)} for row in rows]
    events = list(record.events)
    notable = [event for event in events if event["event"] not in _ROUTINE]
    skills = _skill_record(run)
    return RunFacts(
        name=visible(run.path.resolve().name),
        experiment=visible(run.path.resolve().parent.name),
        state=state(events),
        updates=record.updates,
        table=skill_table(run),
        errors={key.split("/")[1]: row[key] for row in rows for key in row if key.endswith("/standard_error")},
        findings=list(findings(record)),
        skills=list(skills.skills) if skills else [],
        interference=_interference(skills),
        promise=promise(rows),
        timings=timings(numbers),
        cost=cost(numbers, events, samples_of_a_step(run)),
        events=[_event(event) for event in notable[-EVENTS:]],
        events_left_out=max(0, len(notable) - EVENTS),
        counted=Counter(str(event["event"]) for event in events if event["event"] in _ROUTINE),
    )


def state(events: Sequence[Mapping[str, Any]]) -> str:
    """Whether the run ended, failed, or neither: it is under way or was killed."""
    last = next((str(event["event"]) for event in reversed(events) if event["event"] != REFUSED), "")
    known = {"end": "finished", "failed": "failed", "stopped": "stopped", "": "not started"}
    return known.get(last, "not finished")


def _skill_record(run: RunDirectory) -> SkillRecord | None:
    try:
        return read_skill_record(run, read_settings(run.read_config()))
    except SettingsError:
        return None  # a later rule forbids these settings: the page has all but the interference of skills


def _interference(record: SkillRecord | None) -> list[tuple[str, list[Cell]]]:
    if record is None:
        return []
    changes = record.interference
    predicted = np.full_like(changes.measured, np.nan) if changes.predicted is None else changes.predicted
    known = np.abs(changes.measured[np.isfinite(changes.measured)])
    largest = float(known.max()) if known.size else 0.0
    return [
        (stage, [_cell(*pair, largest) for pair in zip(measured, guessed, strict=True)])
        for stage, measured, guessed in zip(record.stages, changes.measured, predicted, strict=True)
    ]


def _cell(measured: float, predicted: float, largest: float) -> Cell:
    if not np.isfinite(measured):
        return Cell(None, None, "transparent")
    share = measured / largest if largest else 0.0
    colour = f"rgb({'0 158 115' if share > 0 else '213 94 0'} / {0.75 * abs(share):.2f})"
    return Cell(100 * float(measured), float(predicted) if np.isfinite(predicted) else None, colour)


def timings(rows: Sequence[Mapping[str, float]]) -> list[tuple[str, float, float]]:
    """(part, seconds, share) of a mean step, longest first; the rest last. Parts that a step lacks count as 0 in it."""
    steps = [row for row in rows if row.get(STEP_TIME, 0.0) > 0]
    if not steps:
        return []
    whole = fmean(row[STEP_TIME] for row in steps)
    names = {key for row in steps for key in row if key.startswith("timing_s/") and key.count("/") == 1} - {STEP_TIME}
    parts = {name.partition("/")[2]: fmean(row.get(name, 0.0) for row in steps) for name in names}
    # verl's step does not contain the parts that follow it in some of its modes: shares are of all parts then.
    whole = max(whole, sum(parts.values()))
    parts["rest"] = whole - sum(parts.values())
    ordered = sorted(parts.items(), key=lambda part: (part[0] == "rest", -part[1]))
    return [(name, seconds, seconds / whole) for name, seconds in ordered]


def cost(
    rows: Sequence[Mapping[str, float]], events: Sequence[Mapping[str, Any]], samples: int
) -> list[tuple[str, str]]:
    """What the run took: time, tokens, samples, replays, sandbox, memory; what was not recorded is left out.

    samples: of a step.
    """
    steps = [row for row in rows if STEP_TIME in row]
    entries = []
    if len(events) > 1:
        entries.append(("time under way", _duration(under_way(events))))
    if steps:
        seconds = fmean(row[STEP_TIME] for row in steps)
        entries += [("updates", f"{len(steps):,}"), ("seconds of a step, mean", f"{seconds:.1f}")]
        entries.append(("samples", f"{samples * len(steps):,}"))
    for key, name in SUMS.items():
        if any(key in row for row in rows):
            entries.append((name, f"{sum(row.get(key, 0.0) for row in rows):,.0f}"))
    for key, name in PEAKS.items():
        if any(key in row for row in rows):
            entries.append((f"{name}, peak", f"{max(row.get(key, 0.0) for row in rows):.1f} GB"))
    return entries


def under_way(events: Sequence[Mapping[str, Any]]) -> float:
    """Seconds between the events of each start; a clock that was set back adds nothing."""
    timed = [event for event in events if "time" in event and event["event"] != REFUSED]
    return sum(
        max(0.0, float(after["time"]) - float(before["time"]))
        for before, after in pairwise(timed)
        if after["event"] != "start"
    )


def _duration(seconds: float) -> str:
    try:
        return str(timedelta(seconds=round(seconds)))
    except (OverflowError, ValueError):  # a file of events may say anything
        return "-"


def _event(event: Mapping[str, Any]) -> tuple[str, str, str, str]:
    rest = {key: value for key, value in event.items() if key not in ("time", "event", "step")}
    text = ", ".join(f"{key}: {value}" for key, value in rest.items())
    try:
        when = datetime.fromtimestamp(float(event["time"]), UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (KeyError, TypeError, ValueError, OSError, OverflowError):
        when = "-"
    return when, str(event["event"]), str(event.get("step", "")), shortened(text, _LONGEST)
