import pytest

from data_prep.files import file_hash
from data_prep.tasks import write_task_rows
from recipe.evaluation.folder import EvaluationFolder, FolderError
from recipe.evaluation.samples import Answer, Problem, Sample
from recipe.evaluation.verified import demonstrations, pairs, read_verified
from tests.recipe.evaluation.conftest import task


def sample(id: str, number: int, text: str, ratio: float, *, tokens: int = 5, finish: str = "stop") -> Sample:
    reward = {"score": ratio, "acc": float(ratio == 1.0), "pass_ratio": ratio, "error": "none", "judge_seconds": 0.0}
    reward |= {"visible_acc": reward["acc"], "guard": "none"}
    return Sample("own", id, "say", number, Answer(text, tokens, finish, None, 0.0, 1.0), reward)


def evaluation(tmp_path, tasks, samples) -> EvaluationFolder:
    data = tmp_path / "own.parquet"
    write_task_rows(data, tasks)
    folder = EvaluationFolder(tmp_path / "evaluation")
    journal = folder.begin({"judge": {}, "data": {"own": file_hash(data)}, "limit": None}, {}, {"own": str(data)})
    for one in samples:
        journal.add(one)
    return folder


def test_demonstrations_are_distinct_accepted_whole_answers_to_problems_that_may_be_trained_on(tmp_path):
    tasks = [task(1, role="train"), task(2, role="test"), task(3, role="train")]
    folder = evaluation(
        tmp_path, tasks,
        [
            sample("own/1", 0, "wrong", 0.5), sample("own/1", 1, "x = 1", 1.0), sample("own/1", 2, "x=1  # same", 1.0),
            sample("own/1", 3, "x = 1 + 0", 1.0), sample("own/1", 4, "x = 2 - 1", 1.0),
            sample("own/2", 0, "reserved", 1.0), sample("own/3", 0, "cut", 1.0, finish="length"),
        ],
    )  # fmt: skip
    solved, reserved = read_verified([folder.path])
    found = demonstrations(solved, per_problem=2)
    assert [one.messages[-1].content for one in found] == ["x = 1", "x = 1 + 0"]
    assert [message.content for message in found[0].messages] == ["say 1", "x = 1"]
    assert reserved == 1


def test_an_evaluation_on_reserved_problems_alone_is_refused(tmp_path):
    folder = evaluation(tmp_path, [task(2, role="test")], [sample("own/2", 0, "x", 1.0)])
    with pytest.raises(FolderError, match="1 problems of these evaluations may not be trained on"):
        read_verified([folder.path])


def test_a_data_file_that_has_changed_is_noticed(tmp_path):
    folder = evaluation(tmp_path, [task(1, role="train")], [sample("own/1", 0, "x", 1.0)])
    write_task_rows(tmp_path / "own.parquet", [task(1, "say one", role="train")])
    with pytest.raises(FolderError, match="is missing, or has changed"):
        read_verified([folder.path])


def solved(*problems: list[Sample]):
    made = [Problem("own", found[0].id, "say", "gsm8k", (), "{}", "train") for found in problems]
    return {problem.key: (problem, found) for problem, found in zip(made, problems, strict=True)}


def test_pairs_have_the_margin_and_the_better_answer_first():
    found = pairs(
        solved([sample("a", 0, "", 1.0), sample("a", 1, "", 0.8), sample("a", 2, "", 0.2)]),
        min_margin=0.5, per_problem=5,
    )  # fmt: skip
    assert {(pair.chosen.number, pair.rejected.number) for pair in found} == {(0, 2), (1, 2)}
    assert all(pair.margin >= 0.5 for pair in found)


def test_equal_answers_make_no_pair():
    assert pairs(solved([sample("a", 0, "", 0.5), sample("a", 1, "", 0.5)]), min_margin=0.0, per_problem=5) == []


def test_lengths_cancel_over_the_pairs_where_they_can():
    """Each problem has a pair whose better answer is longer by 10, and a pair where it is shorter by 10."""
    offered = [
        [sample(f"p{n}", 0, "", 1.0, tokens=20), sample(f"p{n}", 1, "", 0.0, tokens=10),
         sample(f"p{n}", 2, "", 0.0, tokens=30)]
        for n in range(8)
    ]  # fmt: skip
    found = pairs(solved(*offered), min_margin=0.5, per_problem=1)
    assert len(found) == 8
    assert sum(pair.surplus for pair in found) == 0
