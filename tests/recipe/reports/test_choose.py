import pytest

from recipe.evaluation.budgets import Budget
from recipe.evaluation.folder import EvaluationFolder, FolderError
from recipe.evaluation.metrics import measure
from recipe.report import main
from recipe.reports.choose import best, score
from tests.recipe.evaluation.test_metrics import sample


def metrics(**accepted: float) -> dict:
    return {name.replace("_of_", "/"): {"accepted@1": {"estimate": value}} for name, value in accepted.items()}


def test_the_best_has_the_highest_mean_over_data_sets_and_of_equals_the_first_wins():
    evaluations = {"a": metrics(x=0.2, y=0.4), "b": metrics(x=0.5, y=0.3), "c": metrics(x=0.3, y=0.5)}
    assert best(evaluations, "accepted@1") == "b"


def test_skills_of_a_data_set_do_not_count_again():
    assert score(metrics(x=0.2, x_of_skill=1.0), "accepted@1") == 0.2


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(FolderError, match="do not cover the same"):
        best({"a": metrics(x=1.0), "b": metrics(y=1.0)}, "accepted@1")
    with pytest.raises(FolderError, match="'pass@9' was not measured"):
        best({"a": metrics(x=1.0)}, "pass@9")


def test_what_stands_beside_is_shown_and_not_chosen(tmp_path, capsys):
    for name, error in (("worse", "syntax"), ("better", "none")):
        folder = EvaluationFolder(tmp_path / name)
        folder.begin({"model": name, "max_tokens": 64, "limit": None}, {})
        folder.finish({"dev": measure([sample("a", 0, error)], Budget())}, {})
    worse, better = str(tmp_path / "worse"), str(tmp_path / "better")
    assert main(["choose", worse, "--beside", better]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{worse}\n"
    assert "better" in printed.err
    assert main(["choose", worse, better]) == 0
    assert capsys.readouterr().out == f"{better}\n"


def test_evaluations_that_differ_in_more_than_the_model_are_not_chosen_from(tmp_path, capsys):
    for name, tokens in (("short", 64), ("long", 2048)):
        folder = EvaluationFolder(tmp_path / name)
        folder.begin({"model": name, "max_tokens": tokens, "limit": None}, {})
        folder.finish({"dev": measure([sample("a", 0, "none")], Budget())}, {})
    assert main(["choose", str(tmp_path / "short"), str(tmp_path / "long")]) == 2
    assert "differ in more than the model: max_tokens (64 and 2048)" in capsys.readouterr().err
