"""Figures drawn without a display and saved as PNG and SVG, and those of a run, drawn from its metrics."""

from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from cycler import cycler
from matplotlib.colors import TABLEAU_COLORS, to_rgb
from matplotlib.ticker import MaxNLocator
from PIL import Image

from recipe.records.intervals import NORMAL_QUANTILE, scatter
from recipe.records.run_directory import STEP_TIME, RunDirectory
from workers.skill_metrics import OVER_SKILLS

matplotlib.use("Agg")

# Paul Tol's scheme "muted": nine colours that readers with any colour vision distinguish; gray is for training samples.
PALETTE = (
    "#332288", "#CC6677", "#117733", "#88CCEE", "#999933", "#882255", "#44AA99", "#AA4499", "#DDCC77",
)  # fmt: skip

# The same data give the same bytes: ids from a fixed salt, no date. Text stays text, so that it can be searched.
matplotlib.rcParams.update(
    {"svg.hashsalt": "skillcredit", "svg.fonttype": "none", "axes.prop_cycle": cycler(color=PALETTE)}
)

MARKERS = "os^Dv<>PX*hpd8"  # shapes that differ without colour

WIDEST = 1500
"""Pixels of a PNG's width: what a page shows."""

TRAINING_CURVES = {
    "critic/score/mean": "mean reward of a step's samples",
    "actor/entropy": "entropy of the policy (nats per token)",
    "actor/grad_norm": "norm of the gradient",
    "training/rollout_actor_probs_pearson_corr": "rollout and actor probabilities: correlation",
    "response_length/mean": "response length (tokens)",
    STEP_TIME: "seconds per step",
}


def save(figure: plt.Figure, path: Path, dpi: int = 130, colours: int = 40) -> Path:
    """Write the PNG and an SVG next to it, each atomically (readers never see a partial file); close the figure.

    dpi: of the PNG, less where it would be wider than `WIDEST` pixels. colours: of the PNG; 256 where a colour bar
    shows fine steps.
    """
    for file, metadata in ((path, {}), (path.with_suffix(".svg"), {"Date": None})):
        partial = file.with_name(f".{file.name}")
        dpi = min(dpi, int(WIDEST / figure.get_figwidth()))
        figure.savefig(partial, dpi=dpi, format=file.suffix[1:], metadata=metadata)
        if file.suffix == ".png":
            _reduce_colours(partial, colours)
        partial.replace(file)
    plt.close(figure)
    return path


def _reduce_colours(file: Path, colours: int) -> None:
    """Store a PNG with a palette of this size: 40 colours take a fifth of its size.

    Colours are chosen by how many pixels have them, so those of thin lines and small points are added as they are.
    """
    fixed = [to_rgb(color) for color in (*PALETTE, *TABLEAU_COLORS, "white", "black")]
    with Image.open(file) as picture:
        full = picture.convert("RGB")
    common = np.array(full.quantize(colours - len(fixed)).getpalette(), dtype=np.int64).reshape(-1, 3)
    palette = np.concatenate([np.rint(255 * np.array(fixed)).astype(np.int64), common])
    pixels = np.asarray(full).reshape(-1, 3).astype(np.int64) @ (1 << 16, 1 << 8, 1)
    shown, where = np.unique(pixels, return_inverse=True)
    # Pillow's own search rounds colours, which turns white into gray.
    nearest = [((palette - (colour >> 16, colour >> 8 & 255, colour & 255)) ** 2).sum(1).argmin() for colour in shown]
    reduced = Image.fromarray(np.array(nearest, dtype=np.uint8)[where].reshape(full.height, full.width))
    reduced.putpalette(palette.astype(np.uint8).tobytes())
    reduced.save(file, format="PNG", optimize=True)


def series(rows: list[dict[str, float]], key: str) -> tuple[list[float], list[float]]:
    """Steps and values of one metric, for the rows that have it."""
    points = [(row["step"], row[key]) for row in rows if key in row]
    return [step for step, _ in points], [value for _, value in points]


def skill_names(rows: list[dict[str, float]]) -> list[str]:
    """The skills in a run's validations, in alphabetical order."""
    names = {key.split("/")[1] for row in rows for key in row if key.startswith("skill/") and key.endswith("/accuracy")}
    return sorted(names - set(OVER_SKILLS))


def draw_learning_curve(run: RunDirectory, path: Path | None = None) -> Path | None:
    """``plots/learning_curve.png``: accuracy on every step's training samples and on the validation prompts.

    Training samples are a line with a band of one standard error; validations are points per skill and for their
    mean, with 95% intervals if the run recorded standard errors; the dashed line is the mean of greedy answers.
    path: of the picture, in another place. None without a validation.
    """
    rows = run.metrics()
    if not any("skill/mean/accuracy" in row for row in rows):
        return None
    figure, axes = plt.subplots(figsize=(7.5, 4.5), layout="constrained")
    _draw_training_samples(axes, rows)
    for skill, color, marker in zip(skill_names(rows), cycle(PALETTE), cycle(MARKERS[1:]), strict=False):
        _draw_accuracy(axes, rows, skill, marker=marker, markersize=5, color=color, label=f"validation: {skill}")
    _draw_accuracy(axes, rows, "mean", marker="o", markersize=6, color="black", label="validation: mean of skills")
    greedy = series(rows, "skill/mean/greedy_accuracy")
    if greedy[0]:
        axes.plot(
            *greedy,
            marker="o",
            color="black",
            linestyle="--",
            markerfacecolor="white",
            label="validation: mean, greedy",
        )
    bars = any("skill/mean/standard_error" in row for row in rows)
    axes.set(xlabel="policy updates", ylabel="accuracy (share of right answers)", ylim=(0, 1))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    within = "; bars: 95% intervals" if bars else ""
    axes.set_title(f"{run.path.parent.name} / {run.path.name}{within}", fontsize=10)
    return save(figure, path or run.path / "plots" / "learning_curve.png")


def samples_of_a_step(run: RunDirectory) -> int:
    """Answers generated per update; 0 if the run has no configuration."""
    try:
        config = run.read_config()
    except FileNotFoundError:
        return 0
    return int(config.data.train_batch_size * config.actor_rollout_ref.rollout.n)


def _draw_training_samples(axes: plt.Axes, rows: list[dict[str, float]]) -> None:
    """Accuracy on each step's training samples, with a band of one standard error, the scatter of successive steps.

    They are answers of the policy before the step, so they stand at one update less.
    """
    steps, values = series(rows, "reward/acc")
    if not steps:
        return
    updates = np.array(steps) - 1
    axes.plot(updates, values, color="tab:gray", linewidth=1.2, label="training samples (band: standard error)")
    low, high = (np.clip(np.array(values) + by, 0, 1) for by in (-scatter(values), scatter(values)))
    axes.fill_between(updates, low, high, color="tab:gray", alpha=0.25, linewidth=0)


def _draw_accuracy(axes: plt.Axes, rows: list[dict[str, float]], skill: str, **look: Any) -> None:
    """Validations of a skill (or the mean) as points with bars of 1.96 standard errors, joined by a thin line."""
    steps, values = series(rows, f"skill/{skill}/accuracy")
    errors = {row["step"]: row.get(f"skill/{skill}/standard_error", np.nan) for row in rows}
    reach = [NORMAL_QUANTILE * errors[step] for step in steps]
    axes.errorbar(steps, values, yerr=reach, elinewidth=0.8, capsize=2, linestyle=":", linewidth=0.8, **look)


def draw_training_curves(run: RunDirectory) -> Path | None:
    """``plots/training.png``: metrics to monitor during training, one panel per metric."""
    rows = run.metrics()
    present = [key for key in TRAINING_CURVES if any(key in row for row in rows)]
    if not present:
        return None
    figure, grid = plt.subplots(2, 3, figsize=(12, 6), layout="constrained")
    for axes, key in zip(grid.flat, present, strict=False):
        axes.plot(*series(rows, key), linewidth=1.4)
        axes.set_title(TRAINING_CURVES[key], fontsize=9)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
    for axes in list(grid.flat)[len(present) :]:
        axes.set_axis_off()
    figure.supxlabel("policy updates", fontsize=9)
    return save(figure, run.path / "plots" / "training.png")
