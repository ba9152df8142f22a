import json

import pytest

from recipe.evaluation.folder import EvaluationFolder, FolderError
from recipe.evaluation.samples import Answer, Sample
from recipe.records.versions import EVALUATION_VERSION, KEY
from recipe.report import main
from recipe.reports.compare import compare, compare_runs, table, table_of_runs


def samples(verdicts: dict[str, bool], dataset: str = "set") -> list[Sample]:
    return [
        Sample(
            dataset, id, "skill", 0, Answer("", 1, "stop", None, 0.0, 1.0),
            {"score": float(right), "acc": float(right), "pass_ratio": float(right), "judge_seconds": 0.0,
             "visible_acc": float(right), "guard": "none", "error": "none" if right else "syntax"},
        )
        for id, right in verdicts.items()
    ]  # fmt: skip


def test_differences_are_paired_over_the_problems_that_both_have():
    base = samples({"a": True, "b": False, "c": False, "d": False, "only here": True})
    trained = samples({"a": True, "b": True, "c": True, "d": False, "only there": False})
    by_metric = {row.metric: row for row in compare(base, trained)}
    accepted, syntax = by_metric["accepted@1"], by_metric["syntax_error_rate"]
    assert (accepted.problems, accepted.base, accepted.trained) == (4, 0.25, 0.75)
    assert accepted.change.estimate == 0.5
    low, high = accepted.change.low, accepted.change.high
    assert low is not None
    assert high is not None
    assert 0 <= low < 0.5 < high <= 1
    assert (syntax.base, syntax.trained, syntax.change.estimate) == (0.75, 0.25, -0.5)


def test_score_entropy_cut_share_and_tokens_are_compared_and_the_accuracy_of_parts(tmp_path):
    def answers(score: float, tokens: int, finish: str, entropy: float) -> list[Sample]:
        answer = Answer("", tokens, finish, entropy, 0.0, 1.0)
        reward = {"score": score, "acc": 0.0, "pass_ratio": 0.0, "error": "wrong_answer"}
        reward |= {"visible_acc": 0.0, "guard": "none"}
        return [Sample("set", id, "skill", 0, answer, reward) for id in ("mbpp/1", "contests/1")]

    rows = compare(answers(0.5, 10, "stop", 0.2), answers(1.5, 14, "length", 0.1))
    changes = {row.metric: row.change.estimate for row in rows if row.dataset == "set"}
    assert (changes["score"], changes["cut_share"], changes["generated_tokens"]) == (1.0, 1.0, 4.0)
    assert changes["entropy"] == pytest.approx(-0.1)
    assert [(row.dataset, row.metric) for row in rows if "/" in row.dataset] == [
        ("set/contests", "accepted@1"), ("set/mbpp", "accepted@1"),
    ]  # fmt: skip
    cells = [[*column.cells] for column in table(rows).columns]
    shown = dict(zip(cells[1], zip(*cells[2:], strict=True), strict=True))
    assert shown["score"] == ("0.500", "1.500", "+1.000 [+1.000, +1.000]")
    assert shown["cut_share"] == ("0.0", "100.0", "+100.0 [+100.0, +100.0]")


def test_the_same_evaluation_differs_by_nothing_for_certain():
    same = samples({"a": True, "b": False})
    assert {(row.change.low, row.change.high) for row in compare(same, same)} == {(0.0, 0.0)}


def test_evaluations_of_other_problems_are_not_compared():
    with pytest.raises(FolderError, match="no judged problem in common"):
        compare(samples({"a": True}), samples({"b": True}))


@pytest.mark.slow
def test_the_command_prints_both_and_warns_of_other_settings(tmp_path, capsys):
    for name, right, sampling in (("base", False, "eval@1"), ("trained", True, "eval@k")):
        folder = EvaluationFolder(tmp_path / name)
        journal = folder.begin({"sampling": sampling, "model": name, "weights": name}, {})
        for sample in samples({"a": right, "b": right}):
            journal.add(sample)
        folder.finish({"set": {"cut_share": 0.5 if right else 0.05}}, {})
    assert main(["compare", str(tmp_path / "base"), str(tmp_path / "trained")]) == 0
    printed = capsys.readouterr()
    assert "+100.0 [+100.0, +100.0]" in printed.out
    assert "sampling: eval@1 in base, eval@k in trained" in printed.err
    assert "model: base" not in printed.err
    assert "weights: base" not in printed.err
    assert f"{tmp_path}/trained: warning: set: 50.0% of the answers were cut" in printed.err
    assert f"{tmp_path}/base: warning" not in printed.err


def test_several_runs_are_compared_with_the_interval_over_the_runs():
    base = samples({"a": False, "b": False, "c": True, "d": False, "not in the third": True})
    rights = ({"a", "c"}, {"a", "b", "c"}, {"a", "b", "c", "d"})
    runs = [samples({id: id in right for id in "abcd"}) for right in rights]
    row, *others = compare_runs(base, runs)
    assert [row.metric, *(one.metric for one in others)] == ["accepted@1", "score", "cut_share"]
    assert (row.problems, row.base, row.trained) == (4, 0.25, [0.5, 0.75, 1.0])
    assert row.change.estimate == pytest.approx(0.5)
    # Mean 0.5, standard deviation 0.25, t of 2 degrees of freedom 4.303: 0.5 -+ 4.303 * 0.25 / sqrt(3).
    assert row.change.low == pytest.approx(-0.1210, abs=1e-4)
    assert row.change.high == pytest.approx(1.1210, abs=1e-4)
    with pytest.raises(FolderError, match="no judged problem in common"):
        compare_runs(base, [runs[0], samples({"x": True})])


def test_the_command_shows_a_column_for_each_run(tmp_path, capsys):
    for name, right in (("base", ()), ("s1", ("a",)), ("s2", ("a", "b"))):
        folder = EvaluationFolder(tmp_path / name)
        journal = folder.begin({"model": name, "weights": name}, {})
        for sample in samples({id: id in right for id in "ab"}):
            journal.add(sample)
        folder.finish({"set": {"cut_share": 0.0}}, {})
    folders = [str(tmp_path / name) for name in ("base", "s1", "s2")]
    assert main(["compare", *folders, "--out", f"{tmp_path}/report.json"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("s1", "s2", "+75.0 [-242.7, +392.7]"))
    row, *others = json.loads((tmp_path / "report.json").read_text())
    assert (row["metric"], row["base"], row["trained"]) == ("accepted@1", 0.0, [0.5, 1.0])
    assert {one["metric"]: one["trained"] for one in others} == {"score": [0.5, 1.0], "cut_share": [0.0, 0.0]}
    assert main(["compare", *folders, "--answers", f"{tmp_path}/answers.md"]) == 2
    assert main(["compare", folders[0]]) == 2
    assert "compare needs two folders or more" in capsys.readouterr().err


def test_an_evaluation_of_another_version_is_refused_by_its_number(tmp_path, capsys):
    folder = EvaluationFolder(tmp_path)
    folder.begin({"sampling": "eval@1"}, {})
    folder.finish({}, {})
    info = folder.run_info
    assert info.pop(KEY) == EVALUATION_VERSION
    (tmp_path / "run_info.json").write_text(json.dumps(info))  # as release 0.2.0 wrote it
    with pytest.raises(FolderError, match=r"has version 1 .* reads version 2 only: evaluate again with another --out"):
        folder.check({"sampling": "eval@1"})
    assert main(["compare", str(tmp_path), str(tmp_path)]) == 2
    assert f"{tmp_path} has version 1 of an evaluation's records" in capsys.readouterr().err
    with pytest.raises(FolderError, match="has version 1 "):
        _ = folder.metrics


def test_a_folder_without_an_evaluation_is_reported(tmp_path, capsys):
    assert main(["compare", str(tmp_path), str(tmp_path)]) == 2
    assert "holds no finished evaluation" in capsys.readouterr().err


def test_runs_are_compared_in_score_entropy_and_cut_share_in_their_units():
    def evaluation(score: float, finish: str, entropy: float) -> list[Sample]:
        reward = {"score": score, "acc": 0.0, "pass_ratio": 0.0, "error": "wrong_answer", "visible_acc": 0.0}
        answer = Answer("", 1, finish, entropy, 0.0, 1.0)
        return [Sample("set", id, "skill", 0, answer, reward | {"guard": "none"}) for id in "ab"]

    rows = compare_runs(evaluation(0.5, "stop", 0.5), [evaluation(1.5, "length", 0.25), evaluation(1.5, "stop", 0.25)])
    cells = [[*column.cells] for column in table_of_runs(rows, ["s1", "s2"]).columns]
    shown = dict(zip(cells[1], zip(*cells[2:5], strict=True), strict=True))
    assert shown == {
        "accepted@1": ("0.0", "0.0", "0.0"), "score": ("0.500", "1.500", "1.500"),
        "cut_share": ("0.0", "100.0", "0.0"), "entropy": ("0.500", "0.250", "0.250"),
    }  # fmt: skip
