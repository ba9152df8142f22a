"""Spectrum of the average gradient outer product, against the full matrix and in closed form."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tensordict import TensorDict

from workers.agop import PART, part_sources, prompt_parts, spectrum
from workers.constraints import MEMORY


@pytest.mark.slow
@given(st.integers(1, 6), st.integers(1, 8), st.integers(0, 1_000))
def test_the_spectrum_is_that_of_the_outer_product_itself(parts, parameters, seed):
    gradients = torch.randn(parts, parameters, dtype=torch.float64, generator=torch.manual_seed(seed))
    found = spectrum(gradients @ gradients.T)
    matrix = torch.stack([torch.outer(gradient, gradient) for gradient in gradients]).mean(0)
    expected = torch.linalg.eigvalsh(matrix).flip(0)
    for place in range(min(4, parts, parameters)):
        assert found[f"agop/eigenvalue_{place + 1}"] == pytest.approx(float(expected[place]), abs=1e-9)
    assert found["agop/trace"] == pytest.approx(float(matrix.trace()))
    assert 1 - 1e-9 <= found["agop/effective_rank"] <= min(parts, parameters) + 1e-6


def test_orthogonal_gradients_of_one_length_have_full_rank_and_equal_ones_have_rank_one():
    found = spectrum(torch.eye(4))
    assert found["agop/effective_rank"] == pytest.approx(4)
    assert found["agop/top_share"] == pytest.approx(0.25)
    assert found["agop/trace"] == pytest.approx(1)
    assert spectrum(torch.ones(4, 4))["agop/effective_rank"] == pytest.approx(1)


def test_without_gradients_there_is_no_rank():
    found = spectrum(torch.zeros(3, 3))
    assert found == {"agop/eigenvalue_1": 0.0, "agop/eigenvalue_2": 0.0, "agop/eigenvalue_3": 0.0, "agop/trace": 0.0}


def test_samples_of_a_prompt_are_in_one_part_and_memory_is_in_none():
    prompts = ["a", "a", "b", "c", "b", "d"]
    parts = prompt_parts(prompts, 3)
    assert parts.tolist() == [0, 0, 1, 2, 1, 0]
    data = TensorDict({PART: parts, MEMORY: torch.tensor([False, True, False, False, False, False])}, batch_size=6)
    assert [source.halves for source in part_sources(data, 3)] == [([0, 5], []), ([2, 4], []), ([3], [])]
