"""Perplexity of held-out text: hand-worked losses, pairs of blocks, and what cannot be measured."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from data_prep.micro import model as micro_model
from recipe.evaluation.perplexity import TextError, blocks_of, change_table, changes, losses, read_text
from recipe.report import REFUSED, main


class Bigrams:
    """A network of three tokens whose next token depends on the last one alone."""

    device = torch.device("cpu")

    def __init__(self, table: Sequence[Sequence[float]]):
        self._logits = torch.tensor(table).log()

    def __call__(self, input_ids: torch.Tensor, labels: torch.Tensor) -> SimpleNamespace:
        logits = self._logits[input_ids]
        return SimpleNamespace(loss=torch.nn.functional.cross_entropy(logits[0, :-1], labels[0, 1:]))


def test_the_loss_of_a_block_is_the_mean_over_its_predicted_tokens():
    network = Bigrams([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]])
    expected = [-(math.log(0.25) + math.log(0.8)) / 2, -math.log(0.6)]
    assert list(losses(network, [[0, 1, 1], [2, 2]])) == pytest.approx(expected)


def test_blocks_are_whole_and_a_short_text_is_one_block():
    assert blocks_of(list(range(7)), 3) == [[0, 1, 2], [3, 4, 5]]
    assert blocks_of([5, 6], 3) == [[5, 6]]
    with pytest.raises(TextError, match="fewer than two tokens"):
        blocks_of([5], 3)


def test_changes_are_paired_by_block():
    found = changes({"before": [1.0, 2.0, 3.0, 4.0], "after": [1.1, 2.1, 3.1, 4.1]})
    assert found[0].change is None
    assert found[1].change is not None
    assert (found[1].change.estimate, found[1].change.low, found[1].change.high) == pytest.approx((0.1, 0.1, 0.1))
    assert found[0].perplexity == pytest.approx(math.exp(2.5))
    assert "| after | 13.46 | 2.600 [" in change_table(found)


def test_a_folder_is_read_in_the_order_of_names_and_a_change_of_it_changes_its_digest(tmp_path: Path):
    (tmp_path / "b.md").write_text("second\n")
    (tmp_path / "a.txt").write_text("first")
    (tmp_path / "c.py").write_text("no text")
    text = read_text([tmp_path])
    assert text.content == "first\n\nsecond"
    (tmp_path / "b.md").write_text("other\n")
    assert read_text([tmp_path]).digest != text.digest
    (tmp_path / "empty").mkdir()
    with pytest.raises(TextError, match="no text in"):
        read_text([tmp_path / "empty"])
    with pytest.raises(TextError, match="missing"):
        read_text([tmp_path / "missing"])


@pytest.mark.slow
def test_a_model_has_the_loss_of_its_uniform_start_and_does_not_differ_from_itself(tmp_path: Path, capsys):
    micro_model.make(tmp_path / "model", seed=0)
    (tmp_path / "text.md").write_text("Held-out text of our own, long enough for several blocks of it. " * 8)
    out = tmp_path / "out"
    micro_model.make(tmp_path / "same", seed=0)
    models = [str(tmp_path / "model"), str(tmp_path / "same")]
    assert (
        main(
            ["perplexity", "--models", *models, "--text", str(tmp_path / "text.md"), "--block", "64", "--out", str(out)]
        )
        == 0
    )
    before, after = json.loads((out / "perplexity.json").read_text())["models"]
    assert before["loss"]["estimate"] == pytest.approx(math.log(262), abs=0.5)  # 262 tokens, random weights
    assert after["change"] == {"estimate": 0.0, "low": 0.0, "high": 0.0}
    assert capsys.readouterr().out.startswith("7 blocks of 64 tokens, text ")


def test_what_is_no_model_or_no_block_is_refused(tmp_path: Path, capsys):
    (tmp_path / "text.md").write_text("text of several tokens")
    text = ["--text", str(tmp_path / "text.md")]
    assert main(["perplexity", "--models", str(tmp_path), *text]) == REFUSED
    assert "is not a Hugging Face folder; python -m recipe.export" in capsys.readouterr().err
    assert main(["perplexity", "--models", str(tmp_path), *text, "--block", "1"]) == REFUSED
    assert "at least two tokens" in capsys.readouterr().err
