"""Preflight tests credit with the run's own tokenizer, and gives the reason for each refusal."""

import pytest

from recipe import preflight
from recipe.checks import reward
from recipe.records.run_directory import RunDirectory
from tests.composing import composed
from tests.rewards.made_tokenizers import made

pytestmark = pytest.mark.slow


@pytest.fixture
def run(tmp_path):
    return RunDirectory.prepare(str(tmp_path / "outputs"), "quickstart", "r")


@pytest.fixture
def check(tiny_arguments, tmp_path, run):
    """Check a configuration with credit and a tokenizer of this kind (None: the micro model's)."""

    def problems(kind=None, *more):
        words = ["credit=counterfactual", *more]
        if kind:
            made(kind).save_pretrained(tmp_path / "tokenizer")
            words.append(f"actor_rollout_ref.model.tokenizer_path={tmp_path}/tokenizer")
        return reward.check_tokenizer(composed(*tiny_arguments, *words), run)

    return problems


@pytest.mark.parametrize("unit", ["statement", "line", "paragraph"])
@pytest.mark.parametrize("kind", [None, "byte-level", "byte-level, trimmed offsets", "byte fallback"])
def test_tokenizers_that_keep_the_text_pass(check, kind, unit):
    assert check(kind, f"credit.unit={unit}") == []


@pytest.mark.parametrize("kind", ["unigram", "word pieces", "words, blanks cleaned up"])
def test_a_tokenizer_that_loses_line_breaks_is_refused_with_what_it_makes_of_a_program(check, kind):
    (problem,) = map(str, check(kind))
    assert "has 5 steps (statement), but 1 after decoding" in problem
    assert problem.endswith("-> use a model whose tokenizer preserves the text, or credit=off")
    assert check(kind, "credit=off") == []
    assert check(kind, "credit.unit=turn", "credit.methods=[truncate]") == []


def test_an_error_is_the_reason(check, monkeypatch):
    def broken(*_):
        raise KeyError("no such piece")

    monkeypatch.setattr(reward, "token_offsets", broken)
    (problem,) = map(str, check())
    assert "credit cannot be assigned with the tokenizer of" in problem
    assert "KeyError: 'no such piece'" in problem


def test_a_step_without_a_token_is_named(check, monkeypatch):
    monkeypatch.setattr(reward, "token_offsets", lambda _, ids: [(0, 12)] * len(ids))
    (problem,) = map(str, check())
    assert "no token belongs to 'total = a'" in problem


def test_preflight_asks(tiny_arguments, run, monkeypatch):
    monkeypatch.setattr(reward, "lost_steps", lambda *_: "the reason")
    assert preflight.examine(composed(*tiny_arguments), run) == []
    (problem,) = preflight.examine(composed(*tiny_arguments, "credit=counterfactual"), run)
    assert "the reason" in str(problem)
