"""Pictures: colours and markers that readers tell apart, also in the file."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from numpy.typing import NDArray
from PIL import Image

from recipe.records.pictures import MARKERS, PALETTE, draw_learning_curve
from recipe.records.run_directory import RunDirectory

SKILLS = ("chain", "parts", "repair", "sql", "trace", "word", "write", "z")
# What a reader sees (linear RGB): Machado, Oliveira and Fernandes 2009, severity 1.
VISION = {
    "all colours": np.eye(3),
    "no red": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "no green": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}


def lab(color: str, vision: NDArray[np.float64]) -> NDArray[np.float64]:
    """A colour in CIE L*a*b*, where a distance of about 2 can just be seen."""
    rgb = np.array(to_rgb(color))
    linear = vision @ np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = np.cbrt(to_xyz @ np.clip(linear, 0, 1) / (0.9505, 1.0, 1.089))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("vision", VISION.values(), ids=VISION)
def test_eight_skills_have_colours_that_differ_for_every_reader(vision: NDArray[np.float64]):
    colours = [lab(color, vision) for color in PALETTE[: len(SKILLS)]]
    assert min(float(np.linalg.norm(one - other)) for one, other in combinations(colours, 2)) > 10
    assert len(set(MARKERS[1 : len(SKILLS) + 1])) == len(SKILLS)


@pytest.mark.slow
def test_the_file_of_a_curve_has_every_skills_colour_and_a_white_ground(tmp_path: Path):
    run = RunDirectory.prepare(str(tmp_path), "many", "r")
    for step in range(3):
        values = {f"skill/{name}/accuracy": 0.1 * number + 0.05 for number, name in enumerate(SKILLS, start=1)}
        run.log_metrics(step, values | {"skill/mean/accuracy": 0.5, "reward/acc": 0.4})
    path = draw_learning_curve(run, tmp_path / "curve.png")
    assert path is not None
    with Image.open(path) as picture:
        assert picture.mode == "P"
        drawn, counts = np.unique(np.asarray(picture.convert("RGB")).reshape(-1, 3), axis=0, return_counts=True)
    found = {tuple(colour): int(count) for colour, count in zip(drawn.tolist(), counts, strict=True)}
    assert max(found, key=found.__getitem__) == (255, 255, 255)
    for name, color in zip(SKILLS, PALETTE, strict=False):
        assert found.get(tuple(round(255 * part) for part in to_rgb(color)), 0) > 50, name
