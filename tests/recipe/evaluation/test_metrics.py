import pytest

from recipe.evaluation.budgets import Budget
from recipe.evaluation.metrics import by_data_set, interval, measure, table, throughput
from recipe.evaluation.samples import TOO_LONG, Answer, Sample
from recipe.records.tables import cut_warnings

FOUR = Budget("eval@k", samples=2, temperature=1.0)


def sample(
    id: str, number: int, error: str | None, *,
    tokens=10, finish="stop", ratio=0.0, started=0.0, ended=1.0, skill="skill", entropy=None,
):  # fmt: skip
    right = error == "none"
    reward = None
    if error is not None:
        reward = {"score": float(right), "acc": float(right), "pass_ratio": 1.0 if right else ratio, "error": error}
        reward |= {"visible_acc": float(right), "guard": "none", "judge_seconds": 0.5}
    return Sample("set", id, skill, number, Answer("text", tokens, finish, entropy, started, ended), reward)


def test_rates_are_means_over_problems_of_means_over_their_samples():
    found = measure(
        [
            sample("a", 0, "none"), sample("a", 1, "none"),
            sample("b", 0, "wrong_answer", ratio=0.5), sample("b", 1, "syntax"),
            sample("c", 0, "none"),
        ],
        FOUR, [2],
    )  # fmt: skip
    assert (found["problems"], found["samples"]) == (3, 5)
    assert found["accepted@1"]["estimate"] == pytest.approx(2 / 3)
    assert found["pass_ratio"]["estimate"] == pytest.approx((1 + 0.25 + 1) / 3)
    assert found["exec_success_rate"]["estimate"] == pytest.approx((1 + 0.5 + 1) / 3)
    assert found["syntax_error_rate"]["estimate"] == pytest.approx(0.5 / 3)
    assert found["pass@2"]["estimate"] == pytest.approx(1 / 2)  # c has too few samples
    assert found["errors"] == {"none": 0.6, "wrong_answer": 0.2, "syntax": 0.2}
    assert found["pass_ratio_quantiles"] == {"mean": 0.7, "p50": 1.0, "p90": 1.0}


def test_tokens_and_seconds_of_judging_are_shared_among_the_solved_problems():
    found = measure([sample("a", 0, "none"), sample("a", 1, "none", tokens=20), sample("b", 0, "timeout")], FOUR)
    assert found["generated_tokens"] == {
        "mean": pytest.approx(40 / 3), "total": 40, "per_solved_problem": 40.0,
        "judge_seconds_per_solved_problem": 1.5,
    }  # fmt: skip


def test_what_could_not_be_judged_or_asked_counts_nowhere_but_is_reported():
    found = measure(
        [sample("a", 0, "none"), sample("b", 0, "infrastructure"), sample("c", 0, None, finish=TOO_LONG)], Budget()
    )
    assert (found["problems"], found["not_judged"], found["prompt_too_long"]) == (1, 1, 1)
    assert found["accepted@1"] == {"estimate": 1.0, "low": None, "high": None}  # of a single problem


def test_the_gap_is_what_passes_the_shown_tests_and_is_wrong():
    def answer(id: str, visible: float, acc: float, guard: str) -> Sample:
        reward = {"score": 0.0, "pass_ratio": 0.5, "error": "none", "judge_seconds": 0.5}
        reward |= {"visible_acc": visible, "acc": acc, "guard": guard}
        return Sample("set", id, "skill", 0, Answer("text", 10, "stop", None, 0.0, 1.0), reward)

    found = measure(
        [
            answer("a", 1.0, 1.0, "none"), answer("b", 1.0, 0.0, "special_casing"),
            answer("c", 1.0, 0.0, "none"), answer("d", 0.0, 0.0, "empty"),
        ],
        Budget(),
    )  # fmt: skip
    assert found["visible_accuracy"]["estimate"] == 0.75
    assert found["visible_gap"]["estimate"] == 0.5
    assert found["visible_gap"]["low"] < 0.5 < found["visible_gap"]["high"]
    assert found["special_casing_rate"]["estimate"] == 0.25


def test_none_or_all_of_thirty_is_not_certain():
    assert interval([0.0] * 30) == {"estimate": 0.0, "low": 0.0, "high": pytest.approx(0.1135, abs=1e-4)}
    assert interval([1.0] * 30) == {"estimate": 1.0, "low": pytest.approx(0.8865, abs=1e-4), "high": 1.0}
    assert interval([0.0]) == {"estimate": 0.0, "low": None, "high": None}
    assert interval([]) is None


def test_nothing_judged_gives_no_rates():
    found = measure([sample("a", 0, "infrastructure")], Budget())
    assert (found["accepted@1"], found["judge_seconds"]["p95"], found["cut_share"]) == (None, None, None)


@pytest.mark.slow
def test_more_than_a_twentieth_of_cut_answers_is_a_warning():
    def of_hundred(cut):
        samples = [sample(str(n), 0, "none", finish="length" if n < cut else "stop") for n in range(100)]
        return {"set": measure(samples, Budget()), "set/skill": measure(samples, Budget())}

    assert of_hundred(5)["set"]["cut_share"] == 0.05
    assert cut_warnings(of_hundred(5)) == []
    assert cut_warnings(of_hundred(6)) == [
        "warning: set: 6.0% of the answers were cut at the length limit; raise it, in training too"
    ]
    assert cut_warnings({"set": measure([], Budget())}) == []


def test_partial_scores_and_entropy_are_means_that_the_table_shows_as_they_are():
    samples = [sample("a", 0, "none", entropy=0.25), sample("a", 1, "syntax", entropy=0.5), sample("b", 0, "syntax")]
    assert samples[1].reward is not None
    samples[1].reward["score"] = 2.5  # a shape with a part for the format
    found = measure(samples, FOUR)
    assert (found["score"]["estimate"], found["entropy"]) == ((1.75 + 0) / 2, 0.375)
    columns = table({"set": found, "none": measure([], FOUR)}).columns[-2:]
    assert [[column.header, *column.cells] for column in columns] == [["score", "0.88", "-"], ["entropy", "0.38", "-"]]


def test_a_data_set_is_divided_by_skill_and_by_source_where_there_are_several():
    named = {"mbpp/1": "skill", "contests/a/1": "read", "contests/2": "skill"}
    samples = [sample(id, 0, "none", skill=skill) for id, skill in named.items()]
    parts = {name: [one.id for one in found] for name, found in by_data_set(samples).items()}
    assert parts == {
        "set": ["mbpp/1", "contests/a/1", "contests/2"],
        "set/read": ["contests/a/1"], "set/skill": ["mbpp/1", "contests/2"],
        "set/contests": ["contests/a/1", "contests/2"], "set/mbpp": ["mbpp/1"],
    }  # fmt: skip
    assert by_data_set([sample(str(number), 0, "none") for number in range(3)]).keys() == {"set"}
    assert by_data_set([sample(f"{number}/a", 0, "none") for number in range(33)]).keys() == {"set"}


def test_pauses_do_not_count_as_time_of_generation():
    times = [(0.0, 2.0), (1.0, 3.0), (10.0, 11.0)]
    found = throughput([sample("a", n, "none", started=start, ended=end) for n, (start, end) in enumerate(times)])
    assert found == {"seconds": 4.0, "samples_per_second": 0.75, "tokens_per_second": 7.5}


def test_a_budget_solves_a_problem_with_one_accepted_answer():
    paid = Budget("eval@budget", temperature=1.0, budget=9)
    found = measure([sample("a", 0, "syntax"), sample("a", 1, "none"), sample("b", 0, "syntax")], paid)
    assert found["solved@budget"]["estimate"] == 0.5


def test_the_recovery_rate_counts_samples_whose_first_turn_failed_and_no_others():
    samples = [sample("a", 0, "none"), sample("a", 1, "syntax"), sample("b", 0, "none"), sample("c", 0, "none")]
    for one, first in zip(samples, (0.0, 0.0, 1.0, None), strict=True):
        assert one.reward is not None
        one.reward["first_acc"] = first
    found = measure(samples, Budget())
    assert found["recovery_rate"]["estimate"] == 0.5
    assert found["first_turn_accuracy"]["estimate"] == 0.5
    assert measure([sample("a", 0, "none")], Budget())["recovery_rate"] is None
