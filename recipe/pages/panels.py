"""What a page draws of runs: panels of curves over updates, from the runs' metrics; and those of W&B and trackio."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from recipe.health.record import named
from recipe.pages.facts import PEAKS, SUMS
from recipe.records.intervals import NORMAL_QUANTILE, scatter
from recipe.records.pictures import TRAINING_CURVES, series, skill_names
from recipe.records.promise import constraint_names
from recipe.records.run_directory import PROJECTION, STEP_TIME, RunDirectory

Rows = list[dict[str, float]]

POINTS = 2_000
"""Points of a curve; longer ones are thinned evenly."""

CREDIT = {
    "credit/fallback_rate": "responses that keep their plain advantage (share)",
    "credit/advantage_shift": "mean change of a token's advantage by credit",
    "credit/valid_share": "steps with a credit (share)",
    "credit/replays": "replays of a step",
}
HEALTH = {
    "training/rollout_probs_diff_mean": "rollout and actor probabilities: mean difference",
    "response_length/clip_ratio": "answers as long as the step's longest (share)",
    "reward/masked_share": "samples without a verdict (share)",
    "actor/ppo_kl": "KL of an update",
}
LEVELS = {
    "level": ("J before the update", "line"),
    "verified_level": ("J after it", "points"),
    "anchor": ("anchor", "dashed"),
    "line": ("line", "dotted"),
}
"""Metrics of a protected skill's J, each with its name in legends and its look."""
PROTECTION = {"multiplier": "multipliers", "slack": "slack", "predicted_change": "predicted change"}
"""Metrics of all protected skills, each with the title of its panel."""

SAMPLES = "val/generations"
"""verl's table of samples of each validation, `trainer.log_val_generations` of them: prompt, answer, score."""


@dataclass(frozen=True)
class Curve:
    """name: in legends; run: number of its run; steps and values: its points; low, high: its 95% band, if measured.

    look: line, points (joined by a thin line), dashed or dotted.
    """

    name: str
    run: int
    steps: Sequence[float]
    values: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    look: str = "line"


@dataclass(frozen=True)
class Panel:
    """Curves that share axes. is_share: the values lie in [0, 1]."""

    title: str
    curves: Sequence[Curve]
    note: str = ""
    is_share: bool = False


def panels(runs: Sequence[RunDirectory], names: Sequence[str]) -> dict[str, list[Panel]]:
    """The panels of these runs by their group; groups and panels without a measurement are left out.

    names: of the runs, for legends.
    """
    rows = [run.metrics() for run in runs]
    groups = {
        "accuracy": _accuracy(runs, rows, names),
        "training": [_metric(key, title, rows, names) for key, title in (TRAINING_CURVES | HEALTH).items()],
        "credit": [_metric(key, title, rows, names) for key, title in CREDIT.items()],
        "protection": _protection(rows, names),
    }
    drawn = {group: [panel for panel in found if panel.curves] for group, found in groups.items()}
    return {group: found for group, found in drawn.items() if found}


def _metric(key: str, title: str, rows: Sequence[Rows], names: Sequence[str]) -> Panel:
    curves = (_curve(name, number, rows[number], key) for number, name in enumerate(names))
    return Panel(title, [curve for curve in curves if curve], note=key)


def _curve(name: str, run: int, rows: Rows, key: str, look: str = "line") -> Curve | None:
    points = [(step, value) for step, value in zip(*series(rows, key), strict=True) if math.isfinite(value)]
    if not points:
        return None
    points = points[:: math.ceil(len(points) / POINTS)]
    steps, values = zip(*points, strict=True)
    return Curve(name, run, steps, values, look=look)


def _accuracy(runs: Sequence[RunDirectory], rows: Sequence[Rows], names: Sequence[str]) -> list[Panel]:
    """Validations, of all skills in one panel for one run and in a panel per skill for several; training samples."""
    skills = list(dict.fromkeys(skill for own in rows for skill in skill_names(own)))
    several = len(runs) > 1
    validations = {
        skill: [curve for run, own in enumerate(rows) for curve in _validations(run, own, skill, names[run], several)]
        for skill in ["mean", *skills]
    }
    note = "sampled answers; bands: 95% intervals"
    if several:
        shown = [Panel(f"validation: {skill}", curves, note, is_share=True) for skill, curves in validations.items()]
    else:
        mean, others = validations["mean"], [curve for skill in skills for curve in validations[skill]]
        shown = [
            Panel("validation: mean of skills", mean, f"{note}; dashed: greedy answers", is_share=True),
            Panel("validation: each skill", others, note, is_share=True),
        ]
    trained = [curve for run, own in enumerate(rows) for curve in _training(run, own, names[run])]
    return [*shown, Panel("training samples of each step", trained, "band: 95%, from successive steps", is_share=True)]


def _validations(run: int, rows: Rows, skill: str, name: str, several: bool) -> list[Curve]:
    label = name if several else skill
    sampled = _curve(label, run, rows, f"skill/{skill}/accuracy", look="points")
    if sampled is None:
        return []
    errors = {row["step"]: row.get(f"skill/{skill}/standard_error", math.nan) for row in rows}
    curves = [_with_band(sampled, [NORMAL_QUANTILE * errors[step] for step in sampled.steps])]
    greedy = _curve(f"{label}, greedy", run, rows, f"skill/{skill}/greedy_accuracy", look="dashed")
    return [*curves, greedy] if greedy and skill == "mean" else curves


def _with_band(curve: Curve, reach: Sequence[float]) -> Curve:
    if not any(map(math.isfinite, reach)):
        return curve
    ends = [(value - by, value + by) if math.isfinite(by) else (value, value)
            for value, by in zip(curve.values, reach, strict=True)]  # fmt: skip
    low, high = zip(*((max(0.0, low), min(1.0, high)) for low, high in ends), strict=True)
    return Curve(curve.name, curve.run, curve.steps, curve.values, low, high, curve.look)


def _training(run: int, rows: Rows, name: str) -> list[Curve]:
    """Accuracy on each step's samples: answers of the policy before the step, so they stand at one update less."""
    curve = _curve(name, run, rows, "reward/acc")
    if curve is None:
        return []
    moved = Curve(name, run, [step - 1 for step in curve.steps], curve.values)
    return [_with_band(moved, [NORMAL_QUANTILE * scatter(curve.values)] * len(curve.steps))]


def _protection(rows: Sequence[Rows], names: Sequence[str]) -> list[Panel]:
    """J of each protected skill with its anchor and line; then multiplier and slack of all."""
    several = len(names) > 1
    skills = list(dict.fromkeys(name for own in rows for name in constraint_names(own)))
    panels = []
    for skill in skills:
        curves = [
            _curve(f"{names[run]}: {label}" if several else label, run, own, f"{PROJECTION}/{kind}/{skill}", look)
            for run, own in enumerate(rows)
            for kind, (label, look) in LEVELS.items()
        ]
        note = "verified steps end above the line"
        panels.append(Panel(f"J of {skill}", [curve for curve in curves if curve], note))
    for kind, title in PROTECTION.items():
        curves = [
            _curve(f"{names[run]}: {skill}" if several else skill, run, own, f"{PROJECTION}/{kind}/{skill}")
            for run, own in enumerate(rows)
            for skill in named(own, f"{PROJECTION}/{kind}/")
        ]
        panels.append(Panel(title, [curve for curve in curves if curve], f"{PROJECTION}/{kind}"))
    return panels


def every_metric(rows: Rows) -> dict[str, list[list[float]]]:
    """All metrics of a run, as [steps, values]; for a reader who looks for another than the panels show."""
    curves = {key: _curve("", 0, rows, key) for key in sorted({key for row in rows for key in row} - {"step", "time"})}
    return {
        key: [[int(step) for step in curve.steps], [float(f"{value:.6g}") for value in curve.values]]
        for key, curve in curves.items()
        if curve
    }


@dataclass(frozen=True)
class Plot:
    """A panel of lines over updates. metrics: names, in which ``*`` stands for any skill. is_share: within [0, 1]."""

    title: str
    metrics: tuple[str, ...]
    is_share: bool = False

    @property
    def pattern(self) -> str | None:
        """A regular expression of its metrics; None if they are plain names."""
        if not any("*" in metric for metric in self.metrics):
            return None
        return "|".join(f"^{re.escape(metric)}$".replace(r"\*", "[^/]+") for metric in self.metrics)


def sections() -> dict[str, list[Plot]]:
    """The plots of each section, in order."""
    health = {metric: title for metric, title in (TRAINING_CURVES | HEALTH).items() if metric != STEP_TIME}
    cost = {STEP_TIME: TRAINING_CURVES[STEP_TIME]} | SUMS | PEAKS
    levels = "; ".join(label for label, _ in LEVELS.values())
    return {
        "credit": _plots(CREDIT),
        "projection and skills": [
            Plot("validation: each skill", ("skill/*/accuracy",), is_share=True),
            Plot("training samples: each skill", ("train_skill/*/accuracy",), is_share=True),
            Plot(f"J of each protected skill: {levels}", tuple(f"{PROJECTION}/{kind}/*" for kind in LEVELS)),
            *_plots({f"{PROJECTION}/{kind}/*": title for kind, title in PROTECTION.items()}),
        ],
        "health": [Plot("training samples of each step", ("reward/acc",), is_share=True), *_plots(health)],
        "cost": _plots(cost),
    }


def _plots(titles: dict[str, str]) -> list[Plot]:
    return [Plot(title, (metric,)) for metric, title in titles.items()]


def metric_order() -> str:
    """The order of metrics for trackio's TRACKIO_PLOT_ORDER, where ``*`` may only end a name."""
    names = (metric.partition("*") for plots in sections().values() for plot in plots for metric in plot.metrics)
    return ",".join(dict.fromkeys(before + star for before, star, _ in names))


def guide(project: str) -> str:
    """What each metric is, as Markdown: for tools whose panels carry the metric's name alone."""
    lines = [
        f"# Panels of {project}",
        "",
        "`*` stands for each skill. Healthy ranges: `python -m recipe.doctor --rules`.",
    ]
    for name, plots in sections().items():
        lines += ["", f"## {name.capitalize()}", ""]
        lines += [f"- {plot.title}: {', '.join(f'`{metric}`' for metric in plot.metrics)}" for plot in plots]
    lines += ["", "## Samples", "", f"- {SAMPLES}: samples of validations (`trainer.log_val_generations`)"]
    return "\n".join(lines) + "\n"
