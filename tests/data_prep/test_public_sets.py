"""Public sets from files with the hub's columns: tasks, proofs, refusals, resumption."""

import hashlib
import itertools
import json
import re

import datasets
import huggingface_hub
import pandas as pd
import pytest

from data_prep import proving
from data_prep.public import apps, evalplus, grapharena, maths, spider
from data_prep.schema import read_rows
from data_prep.sources import codecontests, countdown_tasks, gsm8k, humaneval, mbpp
from data_prep.sources.source import MORE_SOLUTIONS, ShowTests
from data_prep.tasks import read_tasks
from rewards import registry
from rewards.verl_rows import unit_tests
from tests.data_prep.task_examples import write_lines

SHORTEST = "print(sum(map(int, input().split())))"

HUMANEVAL_TEST = """
METADATA = {"author": "x"}

def check(candidate):
    assert True, "first"
    assert candidate([1, 2]) == 5
    assert candidate([]) == 0, "empty"
"""


def mbpp_record(number=611, **changes):
    return {
        "task_id": number,
        "text": "Write a function to find the larger of two numbers.",
        "code": "def helper(x):\r\n    return x\r\ndef larger(a, b):\r\n    return max(a, helper(b))",
        "test_list": ["assert larger(1, 2) == 2", "assert larger(math.pi, 0) == math.pi"],
        "test_setup_code": "import math",
    } | changes


def humaneval_record(number=0, **changes):
    return {
        "task_id": f"HumanEval/{number}",
        "prompt": 'def square(x):\n    return x * x\n\ndef squares(xs):\n    """ Sum of squares. """\n',
        "canonical_solution": "    return sum(map(square, xs))\n",
        "test": HUMANEVAL_TEST,
        "entry_point": "squares",
    } | changes


def codecontests_record():
    return {
        "name": "1_A. Sum",
        "description": "Add.\n",
        "public_tests": {"input": ["1 2\n"], "output": ["3\n"]},
        "private_tests": {"input": ["x" * 70_000, "2 2\n"], "output": ["", "4\n"]},
        "generated_tests": {"input": ["5 5\n"], "output": ["10\n"]},
        "solutions": {
            "language": [2, 3, 3, 1],
            "solution": ["c", "import sys\nprint(sum(map(int, sys.stdin.read().split())))", SHORTEST, "p"],
        },
    }


def refusals(folder):
    lines = [json.loads(line) for line in (folder / "refused.jsonl").read_text().splitlines()]
    return {line["id"]: line["reason"] for line in lines}


def test_mbpp_shows_one_test_and_hides_the_others():
    task = mbpp.convert(mbpp_record(), "train", 0)
    assert task["ground_truth"]["tests"] == [
        "import math\nassert larger(1, 2) == 2",
        "import math\nassert larger(math.pi, 0) == math.pi",
    ]
    assert "Call the function `larger`" in task["prompt"]
    assert "assert larger(1, 2) == 2" in task["prompt"]
    assert "math.pi" not in task["prompt"]
    assert "math.pi" in mbpp.convert(mbpp_record(), "train", 0, show_tests="all")["prompt"]
    assert "assert" not in mbpp.convert(mbpp_record(), "train", 0, show_tests="none")["prompt"]
    shown: tuple[tuple[ShowTests, int], ...] = (("none", 0), ("one", 1))
    for show, visible in shown:
        assert mbpp.convert(mbpp_record(), "train", 0, show_tests=show)["ground_truth"]["visible"] == visible


@pytest.mark.parametrize(
    ("name", "record", "prompt", "answer"),
    [
        ("aime24", {"Problem": "How many?", "Answer": 204}, "How many?", "204"),
        ("gaokao2023en", {"question": "Find x.", "answer": "$\\frac{1}{2}$"}, "Find x.", "\\frac{1}{2}"),
        ("asdiv", {"body": "Two and 7.", "question": "Sum?", "answer": "9 (apples)"}, "Two and 7. Sum?", "9"),
    ],
)
def test_a_set_of_mathematics_asks_for_a_box_and_expects_the_answer_alone(name, record, prompt, answer):
    task = maths.convert(record, "test", 3, public=maths.SETS[name])
    assert task["prompt"].splitlines() == [prompt, "Reason step by step and put the final answer in \\boxed{}."]
    assert (task["ground_truth"], task["id"], task["role"]) == ({"answer": answer}, f"{name}/3", "test")


@pytest.mark.parametrize("answer", ["2; 3", "14 (cows); 6 (chickens)"])
def test_a_problem_with_several_answers_is_refused(answer):
    with pytest.raises(ValueError, match="several answers"):
        maths.convert({"body": "", "question": "", "answer": answer}, "test", 0, public=maths.SETS["asdiv"])


@pytest.mark.parametrize("missing", ["problem", "answer"])
def test_a_record_without_a_value_is_refused(missing: str):
    with pytest.raises(ValueError, match=f"no '{missing}'"):
        maths.convert({"problem": "q", "answer": "1", missing: None}, "test", 0, public=maths.SETS["math500"])


def test_the_sanitized_version_has_its_own_columns():
    record = mbpp_record(prompt="Larger one.", test_imports=["import math"])
    del record["text"], record["test_setup_code"]
    full = mbpp.convert(mbpp_record(text="Larger one."), "test", 0)
    assert mbpp.convert(record, "test", 0) == full


@pytest.mark.slow
def test_the_regression_split_has_150_problems_none_of_them_of_test():
    published = {"train": range(601, 975), "validation": range(511, 601), "test": range(11, 511)}
    tasks = [mbpp.convert(mbpp_record(number), split, 0) for split, numbers in published.items() for number in numbers]
    assert {role: sum(task["role"] == role for task in tasks) for role in ("train", "dev", "test")} == {
        **{"train": 314, "dev": 150, "test": 500}
    }
    assert {task["split"] for task in tasks} == {"train", "mbpp_reg", "test"}


def test_mbpp_from_files_proves_every_solution_and_lists_what_it_refuses(tmp_path, capsys):
    train = write_lines(
        tmp_path / "train.jsonl",
        mbpp_record(611),
        mbpp_record(612, code="def larger(a, b):\n    return a"),
        mbpp_record(611, text="again"),
        mbpp_record(613, code="def other(a): pass"),
        mbpp_record(614, test_list="not a list"),
        b"\xff",
    )
    test = tmp_path / "test.parquet"
    pd.DataFrame([mbpp_record(11), mbpp_record(12)]).to_parquet(test)
    out = tmp_path / "out"
    assert mbpp.main(["--out", str(out), "--from-file", f"train={train}", f"test={test}"]) == 0
    assert [row.extra_info.id for row in read_rows(out / "train.parquet")] == ["mbpp/611"]
    assert [row.extra_info.model_extra["role"] for row in read_rows(out / "test.parquet")] == ["test", "test"]
    found = refusals(out)
    assert found["mbpp/612"] == "its solution fails: wrong_answer"
    assert found["mbpp/611"] == "the id is that of an earlier row"
    assert "call no function" in found["mbpp/train record 3"]
    assert "call no function" in found["mbpp/train record 4"]
    assert "line 6: not UTF-8" in found["mbpp/train record 5"]
    printed = capsys.readouterr().out
    assert f"{out}/train.parquet: 1 rows" in printed
    assert "5 problems refused" in printed
    assert not (out / ".proved.jsonl").exists()


def test_mbpp_names_a_function_called_like_a_builtin_and_imports_what_its_solution_did():
    code = "import numpy as np\nimport os\ndef sum(a, b):\n    return a + b"
    record = mbpp_record(code=code, test_list=["assert sum(1, np.array(2)) == 3"], test_setup_code="")
    truth = mbpp.convert(record, "train", 0)["ground_truth"]
    assert truth["entry_points"] == ["sum"]
    assert truth["tests"] == ["import numpy as np\nassert sum(1, np.array(2)) == 3"]
    assert "entry_points" not in mbpp.convert(mbpp_record(), "train", 0)["ground_truth"]


def test_humaneval_has_one_test_for_each_assertion_and_is_for_testing(tmp_path):
    path = write_lines(tmp_path / "h.jsonl", humaneval_record())
    assert humaneval.main(["--out", str(tmp_path / "out"), "--from-file", f"test={path}"]) == 0
    (task,) = read_tasks(tmp_path / "out/test.jsonl")
    assert (task.id, task.role) == ("humaneval/0", "test")
    helper = "def square(x):\n    return x * x"
    assert task.ground_truth["tests"] == [
        f"{helper}\ncandidate = squares\nassert candidate([1, 2]) == 5",
        f"{helper}\ncandidate = squares\nassert candidate([]) == 0, 'empty'",
    ]


def test_a_check_with_a_loop_is_one_test():
    looping = "def check(f):\n    for n in range(3):\n        assert f([n]) == n * n\n"
    (test,) = unit_tests("def squares(xs):\n", looping, "squares")
    assert test == "def check(f):\n    for n in range(3):\n        assert f([n]) == n * n\ncheck(squares)"


def test_gsm8k_has_the_number_after_the_mark():
    record = {"question": "How many? ", "answer": "3*400=<<3*400=1200>>1,200\n#### 1,200"}
    task = gsm8k.convert(record, "train", 4)
    assert task["ground_truth"] == {"answer": "1200"}
    assert task["solution"] == "3*400=1,200\n#### 1,200"
    assert task["id"] == "gsm8k/train/4"
    with pytest.raises(ValueError, match="no number after ####"):
        gsm8k.convert({"question": "q", "answer": "12"}, "train", 0)


def test_codecontests_takes_published_tests_first_and_the_shortest_python_solution():
    record = codecontests_record()
    task = codecontests.convert(record, "valid", 0, max_tests=2)
    cases = [{"stdin": "1 2\n", "expected": "3\n"}, {"stdin": "2 2\n", "expected": "4\n"}]
    assert task["ground_truth"] == {"cases": cases, "visible": 1}
    assert (task["solution"], task["role"]) == (SHORTEST, "dev")
    record["solutions"] = {"language": [], "solution": []}
    assert codecontests.convert(record, "test", 0)["solution"] is None


@pytest.mark.parametrize(
    ("expected", "laid_out"),
    [
        ("3\n", False),
        ("1 2\n3 4\n", False),
        ("YES  \nNO\n", False),
        ("\n3", False),
        ("  *\n ***\n", True),
        ("1\n 2", True),
        ("a  b", True),
        ("a\tb", True),
        ("\t3", True),
    ],
)
def test_leading_blanks_and_runs_of_blanks_are_layout(expected, laid_out):
    assert codecontests.is_laid_out([{"stdin": "", "expected": "1\n"}, {"stdin": "", "expected": expected}]) == laid_out


@pytest.mark.slow  # with the sandbox
@pytest.mark.parametrize(
    ("printed", "solution", "layout"),
    [
        ("  *\n ***\n", "print('  *\\n ***')", True),
        ("  *\n ***\n", "print('*\\n***')", False),
        ("  *\n ***\n", None, False),
        ("  *\n ***\n", ["print('*\\n***')", "print('  *\\n ***')"], True),
        ("* ***\n", "print('* ***')", False),
    ],
)
def test_a_contest_is_about_layout_where_its_solution_proves_it(tmp_path, printed, solution, layout):
    none: dict[str, list[str]] = {"input": [], "output": []}
    record = codecontests_record() | {"private_tests": none, "generated_tests": none}
    record["public_tests"] = {"input": ["1\n"], "output": [printed]}
    solutions = [solution] if isinstance(solution, str) else solution or []
    record["solutions"] = {"language": [3] * len(solutions), "solution": solutions}
    path = write_lines(tmp_path / "c.jsonl", record)
    assert codecontests.main(["--out", str(tmp_path / "out"), "--from-file", f"valid={path}"]) == 0
    (task,) = read_tasks(tmp_path / "out/valid.jsonl")
    assert task.ground_truth.get("layout", False) is layout


def test_countdown_records_are_train_dev_and_test_in_this_order():
    parts = countdown_tasks.parts("train", range(490_364))
    assert {part: (numbers[0], numbers[-1], len(numbers)) for part, numbers in parts.items()} == {
        "train": (0, 326_655, 326_656),
        "dev": (326_656, 327_679, 1_024),
        "test": (327_680, 328_703, 1_024),
    }
    few = countdown_tasks.parts("train", range(5))
    assert {part: list(numbers) for part, numbers in few.items()} == {"train": [0, 1, 2, 3, 4], "dev": [], "test": []}
    task = countdown_tasks.convert({"target": 98, "nums": [44, 19, 35]}, "dev", 327_000)
    assert (task["id"], task["split"], task["role"]) == ("countdown34/327000", "dev", "dev")
    assert task["ground_truth"] == {"numbers": [44, 19, 35], "target": 98}
    with pytest.raises(ValueError, match="no expression"):
        countdown_tasks.convert({"target": 1000, "nums": [1, 1, 1]}, "train", 0)


@pytest.mark.slow
def test_a_limit_of_countdown_counts_train_dev_and_test_alike(tmp_path):
    path = tmp_path / "countdown.parquet"
    pd.DataFrame({"target": [98] * 330_000, "nums": [[44, 19, 35]] * 330_000}).to_parquet(path)
    assert countdown_tasks.main(["--out", str(tmp_path / "out"), "--from-file", f"train={path}", "--limit", "40"]) == 0
    tasks = {split: read_tasks(tmp_path / f"out/{split}.jsonl") for split in ("train", "dev", "test")}
    assert {split: len(found) for split, found in tasks.items()} == {"train": 40, "dev": 40, "test": 40}
    assert all(task.role == split for split, found in tasks.items() for task in found)
    assert refusals(tmp_path / "out") == {}


@pytest.mark.slow
def test_gsm8k_holds_a_twentieth_of_train_out_by_the_question(tmp_path):
    records = [{"question": f"{number % 2_000} + 0?", "answer": f"#### {number % 2_000}"} for number in range(4_000)]
    parts = gsm8k.parts("train", records)
    assert sorted(parts["train"] + parts["dev"]) == list(range(4_000))
    assert 140 < len(parts["dev"]) < 260
    asked = {part: {records[number]["question"] for number in numbers} for part, numbers in parts.items()}
    assert not asked["train"] & asked["dev"]
    train = write_lines(tmp_path / "train.jsonl", *records[:400])
    test = write_lines(tmp_path / "test.jsonl", *records[400:410])
    assert gsm8k.main(["--out", str(tmp_path / "out"), "--from-file", f"train={train}", f"test={test}"]) == 0
    tasks = {split: read_tasks(tmp_path / f"out/{split}.jsonl") for split in ("train", "dev", "test")}
    assert len(tasks["train"]) + len(tasks["dev"]) == 400
    assert [len(tasks["dev"]) > 0, len(tasks["test"])] == [True, 10]
    assert all(task.role == split for split, found in tasks.items() for task in found)
    assert all(task.id.startswith("gsm8k/train/") for task in tasks["dev"])


WRONG, WORSE = "print(4)", "print(int(input()))"


@pytest.mark.slow  # with the sandbox
@pytest.mark.parametrize(
    ("programs", "kept"),
    [([WRONG, SHORTEST, WORSE], SHORTEST), ([SHORTEST, WRONG], SHORTEST), ([WRONG, WORSE], None)],
)
def test_a_contest_is_kept_where_any_of_its_shortest_solutions_is_right(tmp_path, programs, kept):
    record = codecontests_record() | {"solutions": {"language": [3] * len(programs), "solution": programs}}
    other = codecontests_record() | {"name": "2_B. Other"}
    path = write_lines(tmp_path / "c.jsonl", record, other)
    assert codecontests.main(["--out", str(tmp_path / "out"), "--from-file", f"valid={path}"]) == 0
    solutions = {task.id: task.solution for task in read_tasks(tmp_path / "out/valid.jsonl")}
    assert solutions.get("codecontests/valid/1_A. Sum") == kept
    more = {line["id"]: line["solutions"] for line in map(json.loads, (tmp_path / "out" / MORE_SOLUTIONS).open())}
    assert more == {"codecontests/valid/2_B. Other": ["import sys\nprint(sum(map(int, sys.stdin.read().split())))"]}
    refused = refusals(tmp_path / "out").get("codecontests/valid/1_A. Sum")
    assert refused == (None if kept else "its solution fails: runtime")


def test_of_many_solutions_the_five_shortest_are_tried():
    record = codecontests_record() | {
        "solutions": {"language": [3] * 9, "solution": ["p" * n for n in (9, 2, 5, 2, 7, 4, 8, 3, 6)]}
    }
    task = codecontests.convert(record, "valid", 0)
    assert [task["solution"], *task["alternatives"]] == ["p" * n for n in (2, 3, 4, 5, 6)]


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (
            [{"task_id": 1, "code": "x"}],
            "the columns text, test_list, test_setup_code are missing; found: code, task",
        ),
        ([], "are missing; found: no records"),
        ([mbpp_record(task_id="nine")], "no task is good enough to write (mbpp/train record 0: ValueError"),
    ],
)
def test_a_file_that_is_of_no_use_is_one_clear_line(tmp_path, capsys, lines, reason):
    path = write_lines(tmp_path / "x.jsonl", *lines)
    assert mbpp.main(["--out", str(tmp_path / "out"), "--from-file", f"train={path}"]) == 1
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_no_parquet_is_one_clear_line(tmp_path, capsys):
    (tmp_path / "x.parquet").write_bytes(b"PAR1 not really")
    assert mbpp.main(["--out", str(tmp_path / "out"), "--from-file", f"train={tmp_path / 'x.parquet'}"]) == 1
    assert "x.parquet: not a readable parquet file" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("module", "record", "reason"),
    [
        (mbpp, mbpp_record(code=7), "AttributeError"),
        (humaneval, humaneval_record(test=None), "TypeError"),
        (gsm8k, {"question": "?", "answer": 4}, "TypeError"),
        (gsm8k, {"question": "?", "answer": "four"}, "the answer has no number after ####"),
        (codecontests, codecontests_record() | {"public_tests": [1]}, "TypeError"),
        (countdown_tasks, {"target": "many", "nums": [1, 2, 3]}, "ValueError"),
    ],
)
def test_values_of_a_wrong_type_cost_their_record_only(tmp_path, module, record, reason):
    good = {
        mbpp: mbpp_record(612),
        humaneval: humaneval_record(5),
        gsm8k: {"question": "6 x 7?", "answer": "6 * 7 = 42\n#### 42"},
        codecontests: codecontests_record(),
        countdown_tasks: {"target": 98, "nums": [44, 19, 35]},
    }[module]
    split = "test" if module is humaneval else "train"
    path = write_lines(tmp_path / "x.jsonl", record, good)
    assert module.main(["--out", str(tmp_path / "out"), "--from-file", f"{split}={path}"]) == 0
    ((label, found),) = refusals(tmp_path / "out").items()
    assert label.endswith(f"/{split} record 0")
    assert reason in found
    assert len(read_tasks(tmp_path / "out" / f"{split}.jsonl")) == 1


def test_an_unknown_split_is_refused_with_the_valid_ones(tmp_path, capsys):
    assert mbpp.main(["--out", str(tmp_path), "--from-file", "valid=x.jsonl"]) == 1
    assert "SPLIT one of train, validation, test, prompt" in capsys.readouterr().err


def test_a_split_that_is_named_twice_is_refused(tmp_path, capsys):
    path = write_lines(tmp_path / "x.jsonl", mbpp_record())
    assert mbpp.main(["--out", str(tmp_path / "out"), "--from-file", f"train={path}", f"train={path}"]) == 1
    assert "the split train is given twice; join its files into one" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_files_that_tasks_were_made_of_are_kept_with_their_hashes(tmp_path):
    path = write_lines(tmp_path / "x.jsonl", mbpp_record())
    assert mbpp.main(["--out", str(tmp_path / "out"), "--from-file", f"train={path}"]) == 0
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert json.loads((tmp_path / "out/origin.json").read_text()) == {
        "licence": "cc-by-4.0",
        "train": {"records": 1, "file": str(path), "sha256": digest},
    }


@pytest.mark.slow
def test_the_hub_and_a_file_with_its_columns_give_the_same_tasks(tmp_path, capsys, monkeypatch):
    published = {"train": [mbpp_record(611)], "validation": [mbpp_record(520)], "test": [mbpp_record(11)]}
    published["prompt"] = [mbpp_record(3)]
    asked = []

    def load_dataset(repository, configuration, split, revision):
        asked.append((repository, configuration, split, revision))
        return datasets.Dataset.from_list(published[split])

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    assert mbpp.main(["--out", str(tmp_path / "hub")]) == 0
    pinned = "4bb6404fdc6cacfda99d4ac4205087b89d32030c"
    assert asked == [("google-research-datasets/mbpp", "full", split, pinned) for split in published]
    origin = json.loads((tmp_path / "hub/origin.json").read_text())
    assert (origin["repository"], origin["revision"]) == ("google-research-datasets/mbpp", pinned)
    assert [origin[split]["records"] for split in published] == [1, 1, 1, 1]
    kept = {split: tmp_path / f"hub/snapshot/{split}.parquet" for split in published}
    hashes = [hashlib.sha256(path.read_bytes()).hexdigest() for path in kept.values()]
    assert [origin[split]["sha256"] for split in published] == hashes
    snapshot = [f"{split}={path}" for split, path in kept.items()]
    assert mbpp.main(["--out", str(tmp_path / "again"), "--from-file", *snapshot]) == 0
    files = [f"{split}={write_lines(tmp_path / f'{split}.jsonl', *records)}" for split, records in published.items()]
    assert mbpp.main(["--out", str(tmp_path / "files"), "--from-file", *files]) == 0
    for split in ("train", "mbpp_reg", "test", "prompt"):
        made = [read_tasks(tmp_path / f"{folder}/{split}.jsonl") for folder in ("hub", "files", "again")]
        assert made[0] == made[1] == made[2]
    assert mbpp.main(["--out", str(tmp_path / "other"), "--revision", "5" * 40]) == 0
    assert {revision for *_, revision in asked[4:]} == {"5" * 40}
    capsys.readouterr()
    published["train"] = [{"task_id": 611, "code": "x"}]
    assert mbpp.main(["--out", str(tmp_path / "changed")]) == 1
    assert "the columns text, test_list, test_setup_code are missing; the set has changed" in capsys.readouterr().err


ALL_SETS = [
    *(mbpp.VERSIONS.values(), maths.SETS.values(), evalplus.VERSIONS.values(), apps.VERSIONS.values()),
    *(grapharena.VERSIONS.values(), [module.PUBLIC for module in (codecontests, countdown_tasks, gsm8k, humaneval)]),
    [spider.PUBLIC],
]


@pytest.mark.parametrize(
    "public", list(itertools.chain(*ALL_SETS)), ids=lambda public: f"{public.name}-{public.repository}"
)
def test_every_public_set_names_its_licence_and_the_hubs_are_pinned_to_a_commit(public):
    assert re.fullmatch("[0-9a-f]{40}" if public.repository else "", public.revision)
    assert public.licence in ("mit", "apache-2.0", "bsd-2-clause", "none given") or public.licence.startswith("cc-by-")


def test_the_commit_that_a_branch_names_is_printed_recorded_and_read(tmp_path, capsys, monkeypatch):
    asked = []

    def load_dataset(repository, configuration, split, revision):
        asked.append(revision)
        return datasets.Dataset.from_list([humaneval_record()])

    def dataset_info(self, repository, revision):
        return huggingface_hub.DatasetInfo(id=repository, sha={"main": "a" * 40}[revision])

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", dataset_info)
    assert humaneval.main(["--out", str(tmp_path), "--revision", "main"]) == 0
    assert f"openai/openai_humaneval: main is commit {'a' * 40} now" in capsys.readouterr().out
    assert json.loads((tmp_path / "origin.json").read_text())["revision"] == "a" * 40
    assert asked == ["a" * 40]
    assert humaneval.main(["--out", str(tmp_path / "none"), "--revision", "typo"]) == 1
    assert "the hub did not name the commit of openai/openai_humaneval at typo (KeyError" in capsys.readouterr().err


def test_a_hub_out_of_reach_names_the_other_way(tmp_path, capsys, monkeypatch):
    def load_dataset(*_, **__):
        raise ConnectionError("no route")

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    assert humaneval.main(["--out", str(tmp_path)]) == 1
    printed = capsys.readouterr().err
    assert "the split test of openai/openai_humaneval at 7dce6050a7d6d172f3cc5c32aa97f52fa1a2e544 could not" in printed
    assert "from the Hugging Face hub (ConnectionError: no route)" in printed
    assert "--from-file test=FILE.parquet" in printed


def test_a_verifier_that_is_not_there_is_said_before_anything_is_loaded(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(registry, "_MODULES", {"code": "rewards.verifiers.code"})
    monkeypatch.setattr(registry, "_VERIFIERS", {})
    assert gsm8k.main(["--out", str(tmp_path)]) == 1
    assert "unknown verifier 'gsm8k'" in capsys.readouterr().err


@pytest.mark.slow
def test_a_limit_draws_the_same_records_from_the_same_seed(tmp_path):
    path = write_lines(tmp_path / "x.jsonl", *(mbpp_record(number) for number in range(11, 41)))
    drawn = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        arguments = ["--out", str(tmp_path / name), "--from-file", f"test={path}", "--limit", "5", "--seed", str(seed)]
        assert mbpp.main(arguments) == 0
        drawn.append([task.id for task in read_tasks(tmp_path / name / "test.jsonl")])
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(drawn[0]) == 5


def test_an_interrupted_run_resumes_with_what_it_has_proved(tmp_path, monkeypatch):
    path = write_lines(
        tmp_path / "x.jsonl", *(mbpp_record(number, text=f"Larger, {number}.") for number in (11, 12, 13))
    )
    arguments = ["--out", str(tmp_path / "out"), "--from-file", f"test={path}"]
    judged: list[str] = []
    error_of = proving._error

    async def broken(task, judge):
        judged.append(task.id)
        if len(judged) == 3:
            raise KeyboardInterrupt
        return await error_of(task, judge)

    monkeypatch.setattr(proving, "_BATCH", 1)
    monkeypatch.setattr(proving, "_error", broken)
    with pytest.raises(KeyboardInterrupt):
        mbpp.main(arguments)
    assert [item.name for item in (tmp_path / "out").iterdir()] == [".proved.jsonl"]
    assert mbpp.main(arguments) == 0
    assert judged == ["mbpp/11", "mbpp/12", "mbpp/13", "mbpp/13"]


def test_splits_of_separate_options_are_all_made_and_none_stays_from_before(tmp_path, capsys):
    for number, name in enumerate(("train", "test")):
        write_lines(tmp_path / f"{name}.jsonl", {"question": f"{number} + 0?", "answer": f"#### {number}"})
    files = [f"{name}={tmp_path / name}.jsonl" for name in ("train", "test")]
    out = tmp_path / "out"
    assert gsm8k.main(["--out", str(out), "--from-file", files[0], "--from-file", files[1]]) == 0
    before = (out / "test.jsonl").read_text()
    assert gsm8k.main(["--out", str(out), "--from-file", files[1]]) == 1
    assert "from another set" in capsys.readouterr().err
    assert (out / "test.jsonl").read_text() == before
    assert gsm8k.main(["--out", str(out), "--from-file", files[0], f"test={tmp_path / 'train.jsonl'}"]) == 1
    assert "the file is already given for the split train" in capsys.readouterr().err
