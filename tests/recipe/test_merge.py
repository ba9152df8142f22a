"""Merging of models trained from one start."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from data_prep.micro.model import make
from recipe.merge import MergeError, main, merged

BASE = {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([[0.5]], dtype=torch.bfloat16), "c": torch.tensor([0.1])}


def changed(**tensors: torch.Tensor) -> dict[str, torch.Tensor]:
    return BASE | tensors


def test_by_hand_half_of_each_change_is_the_mean_and_the_whole_is_their_sum():
    models = [
        changed(a=torch.tensor([3.0, 2.0])),
        changed(a=torch.tensor([1.0, 0.0]), b=torch.tensor([[1.0]], dtype=torch.bfloat16)),
    ]
    mean, total = merged(BASE, models, 0.5), merged(BASE, models, 1.0)
    assert (mean["a"].tolist(), total["a"].tolist()) == ([2.0, 1.0], [3.0, 0.0])
    assert (mean["b"].item(), total["b"].item(), mean["b"].dtype) == (0.75, 1.0, torch.bfloat16)
    assert mean["c"] is BASE["c"]


def test_adapters_are_merged_by_their_products_and_not_by_their_factors():
    """B A of two adapters of rank 1 on a base of 0: the mean of the products has rank 2."""
    products = [torch.outer(row, row) for row in torch.eye(2)]
    found = merged({"w": torch.zeros(2, 2)}, [{"w": each} for each in products], 0.5)
    assert found["w"].tolist() == [[0.5, 0.0], [0.0, 0.5]]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"a": BASE["a"]}, "differ in their tensors, such as b"),
        (changed(a=torch.zeros(3)), r"model 1 has a \(3,\), the base \(2,\)"),
    ],
)
def test_models_that_do_not_fit_are_refused(model: dict, message: str):
    with pytest.raises(MergeError, match=message):
        merged(BASE, [model], 1.0)


@pytest.mark.slow
def test_a_model_that_moved_is_merged_with_one_that_did_not_and_can_be_loaded(tmp_path: Path, capsys):
    base, moved, out = (tmp_path / name for name in ("base", "moved", "out"))
    make(base, seed=0)
    network = AutoModelForCausalLM.from_pretrained(base)
    name, weights = next((name, each) for name, each in network.named_parameters() if each.dim() == 2)
    before = weights.detach().clone()
    with torch.no_grad():
        weights.add_(1.0)
    network.save_pretrained(moved)
    assert main([str(base), str(base), str(moved), "--out", str(out)]) == 0
    found = dict(AutoModelForCausalLM.from_pretrained(out).named_parameters())[name]
    torch.testing.assert_close(found.detach(), before + 0.5)
    assert main([str(base), str(moved), "--out", str(out)]) == 2
    assert main([str(base), str(tmp_path), "--out", str(tmp_path / "other")]) == 2
    assert "is not a model: it has no config.json" in capsys.readouterr().err
