"""The panels of a dashboard in another tool (W&B, trackio), made from those of the run page."""

import re
from dataclasses import dataclass

from recipe.pages.facts import PEAKS, SUMS
from recipe.pages.panels import CREDIT, HEALTH, LEVELS, PROJECTION, PROTECTION
from recipe.records.pictures import TRAINING_CURVES

_TIME = "timing_s/step"
SAMPLES = "val/generations"
"""verl's table of samples of each validation, `trainer.log_val_generations` of them: prompt, answer, score."""


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
    health = {metric: title for metric, title in (TRAINING_CURVES | HEALTH).items() if metric != _TIME}
    cost = {_TIME: TRAINING_CURVES[_TIME]} | SUMS | PEAKS
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
