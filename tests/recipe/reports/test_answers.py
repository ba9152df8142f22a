"""The page of answers before and after training."""

from recipe.evaluation.samples import Answer, Problem, Sample
from recipe.reports.compare import answers_page


def problem(id: str, skill: str) -> Problem:
    return Problem("set", id, skill, "code", ({"role": "user", "content": f"Do {id}."},), "{}", None)


def sample(id: str, text: str, right: bool | None, number: int = 0) -> Sample:
    reward = None if right is None else {"acc": float(right), "error": "none"}
    return Sample("set", id, "skill", number, Answer(text, 1, "stop", None, 0.0, 1.0), reward)


PROBLEMS = [problem(id, skill) for id, skill in (("a", "sql"), ("b", "sql"), ("c", "write"), ("d", "write"))]


def test_a_problem_of_each_change_is_shown_and_all_are_counted():
    base = [sample("a", "a1", False), sample("b", "b1", False), sample("c", "c1", True), sample("d", "d1", False)]
    trained = [sample("a", "a2", True), sample("b", "b2", True), sample("c", "c2", False), sample("d", "d2", False)]
    sql, write = answers_page(PROBLEMS, base, trained).split("## write\n")
    assert "### wrong before, right after: 2 of 2\n\nQuestion:\n\n```\nDo a.\n```\n\nBefore:\n\n```\na1\n```" in sql
    assert "a2" in sql
    assert "b1" not in sql
    assert "### right before, wrong after: 0 of 2" in sql
    assert "### wrong before, right after: 0 of 2" in write
    assert "### right before, wrong after: 1 of 2\n\nQuestion:\n\n```\nDo c." in write
    assert "### wrong before and after: 1 of 2\n\nQuestion:\n\n```\nDo d." in write


def test_only_first_samples_with_a_verdict_in_both_count():
    base = [sample("a", "a1", False), sample("a", "other", True, number=1), sample("b", "b1", False)]
    page = answers_page(PROBLEMS, base, [sample("a", "a2", True), sample("b", "b2", None)])
    assert "### wrong before, right after: 1 of 1" in page
    assert "other" not in page
    assert "Do b" not in page
    assert "## write" not in page


def test_an_answer_with_a_code_block_stays_one_block():
    page = answers_page(PROBLEMS, [sample("a", "```python\nx\n```", False)], [sample("a", "y", True)])
    assert "````\n```python\nx\n```\n````" in page
