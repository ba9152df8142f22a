import pytest

from recipe.choose import best, score
from recipe.evaluation.folder import FolderError


def metrics(**accepted: float) -> dict:
    return {name.replace("_of_", "/"): {"accepted@1": {"estimate": value}} for name, value in accepted.items()}


def test_the_best_has_the_highest_mean_over_data_sets_and_of_equals_the_first_wins():
    evaluations = {"a": metrics(x=0.2, y=0.4), "b": metrics(x=0.5, y=0.3), "c": metrics(x=0.3, y=0.5)}
    assert best(evaluations, "accepted@1") == "b"


def test_skills_of_a_data_set_do_not_count_again():
    assert score(metrics(x=0.2, x_of_skill=1.0), "accepted@1") == 0.2


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(FolderError, match="not over the same"):
        best({"a": metrics(x=1.0), "b": metrics(y=1.0)}, "accepted@1")
    with pytest.raises(FolderError, match="'pass@9' was not measured"):
        best({"a": metrics(x=1.0)}, "pass@9")
