"""torchjd's aggregators: our result equals torchjd's on the whole matrix; without torchjd the message says so."""

import sys

import pytest
import torch
from torch import Tensor

from recipe.checks import names
from recipe.records.run_directory import RunDirectory
from recipe.settings import ProjectionSettings, SettingsError, read_settings
from tests.composing import composed
from workers.aggregators import AGGREGATORS, MissingAggregatorsError, aggregator
from workers.geometry import METHODS
from workers.projection import project


def conflicting(seed: int = 0, skills: int = 3, parameters: int = 50) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    constraints = torch.randn(skills, parameters, generator=generator, dtype=torch.float64)
    return torch.randn(parameters, generator=generator, dtype=torch.float64) - constraints.sum(0), constraints


def rows_of_one_length(step: Tensor, constraints: Tensor) -> Tensor:
    return torch.stack([step, *(step.norm() * row / row.norm() for row in constraints)])


@pytest.fixture
def without_torchjd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchjd", None)
    monkeypatch.setitem(sys.modules, "torchjd.aggregation", None)


@pytest.mark.parametrize("name", AGGREGATORS)
@pytest.mark.parametrize("seed", range(3))
def test_it_is_what_torchjd_makes_of_rows_of_one_length(name: str, seed: int) -> None:
    aggregation = pytest.importorskip("torchjd.aggregation")
    step, constraints = conflicting(seed)
    found = project(step, constraints, method=name)
    expected = getattr(aggregation, name)()(rows_of_one_length(step, constraints))
    assert torch.allclose(found.step, expected, rtol=1e-6, atol=1e-9)
    assert torch.allclose(found.change, constraints @ found.step, rtol=1e-9, atol=1e-9)
    assert found.moved == pytest.approx(float((found.step - step).norm() / step.norm()))
    assert torch.allclose(found.step, found.kept * step + found.multipliers @ constraints)


@pytest.mark.parametrize("name", AGGREGATORS)
def test_it_is_scale_invariant_leaves_a_safe_step_alone_and_passes_over_gradients_of_zero(name: str) -> None:
    pytest.importorskip("torchjd.aggregation")
    step, constraints = conflicting()
    plain = project(step, constraints, method=name).step
    scaled = project(step, constraints * torch.tensor([1e-6, 1.0, 1e6])[:, None].double(), method=name).step
    assert torch.allclose(scaled, plain, rtol=1e-6, atol=1e-9)
    safe = constraints[0]
    assert project(safe, constraints[:1], method=name).step is safe
    with_zero = torch.cat([constraints, torch.zeros(1, constraints.shape[1], dtype=torch.float64)])
    assert torch.allclose(project(step, with_zero, method=name).step, plain)
    in_place = step.clone()
    assert project(in_place, constraints, method=name, in_place=True).step is in_place
    assert torch.allclose(in_place, plain)


def test_they_know_no_slack_and_their_names_are_those_of_the_configuration() -> None:
    step, constraints = conflicting()
    with pytest.raises(ValueError, match="UPGrad supports no slack"):
        project(step, constraints, 0.1, "UPGrad")
    with pytest.raises(ValueError, match="one of UPGrad, DualProj, AlignedMTL, MGDA, IMTLG, got 'GradDrop'"):
        aggregator("GradDrop")
    valid = ProjectionSettings.model_json_schema()["properties"]["method"]["enum"]
    assert set(valid) - {"off", "measure"} == set(METHODS) - {"none"}


def test_without_torchjd_the_message_names_the_extra(without_torchjd: None) -> None:
    step, constraints = conflicting()
    with pytest.raises(MissingAggregatorsError, match=r"MGDA is an aggregator of torchjd, .*\[torchjd\]"):
        project(step, constraints, method="MGDA")


@pytest.mark.slow
def test_preflight_says_so_before_training(without_torchjd: None) -> None:
    config = composed("experiment=quickstart", "projection=torchjd")
    run = RunDirectory("nowhere")  # the check does not open this folder
    (problem,) = names.check_optional_packages(config, run)
    assert "pip install -e '.[torchjd]'" in str(problem)
    config.projection.method = "qp"
    assert names.check_optional_packages(config, run) == []
    config.projection.method, config.projection.epsilon = "UPGrad", 0.1
    with pytest.raises(SettingsError, match="projection=UPGrad does not support slack"):
        read_settings(config)
