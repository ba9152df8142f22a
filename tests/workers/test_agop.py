"""The spectrum from inner products is that of the matrix itself, and means what its names say."""

import pytest
import torch

from workers.agop import spectrum


def of(gradients: torch.Tensor, top: int = 3) -> dict[str, float]:
    return spectrum(gradients @ gradients.T, top)


@pytest.mark.parametrize(("count", "parameters"), [(4, 30), (12, 5)])
def test_eigenvalues_are_those_of_the_average_outer_product(count: int, parameters: int) -> None:
    gradients = torch.randn(count, parameters, generator=torch.manual_seed(0), dtype=torch.float64)
    found = of(gradients)
    dense = torch.linalg.eigvalsh(gradients.T @ gradients / count).flip(0)
    assert [found[f"agop/eigenvalue_{place}"] for place in (1, 2, 3)] == pytest.approx(dense[:3].tolist())
    assert found["agop/trace"] == pytest.approx(float(gradients.square().sum(1).mean()))
    assert found["agop/agreement"] == pytest.approx(float(gradients.mean(0).square().sum()) / found["agop/trace"])


def test_effective_rank_is_one_for_one_direction_and_the_number_of_parts_for_as_many() -> None:
    same = of(torch.ones(6, 4, dtype=torch.float64))
    assert (same["agop/effective_rank"], same["agop/agreement"]) == pytest.approx((1.0, 1.0))
    own = of(torch.eye(6, dtype=torch.float64))
    assert (own["agop/effective_rank"], own["agop/agreement"]) == pytest.approx((6.0, 1 / 6))


def test_scale_changes_eigenvalues_and_nothing_else() -> None:
    gradients = torch.randn(5, 9, generator=torch.manual_seed(1), dtype=torch.float64)
    small, large = of(gradients), of(1000 * gradients)
    assert large["agop/effective_rank"] == pytest.approx(small["agop/effective_rank"])
    assert large["agop/eigenvalue_1"] == pytest.approx(1e6 * small["agop/eigenvalue_1"])


def test_gradients_of_zero_have_no_rank() -> None:
    assert set(of(torch.zeros(4, 3)).values()) == {0.0}
