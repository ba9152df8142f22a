"""Task files: what fits becomes rows; every bad line is named with its number and reason."""

import json
import tracemalloc

import pytest

from data_prep import json_lines, validate
from data_prep.schema import DataFileError, read_rows
from data_prep.tasks import read_tasks, write_task_rows, write_tasks
from tests.data_prep.task_examples import fields, task, write_lines


def test_tasks_survive_their_file(tmp_path):
    tasks = [task(0), task(1, solution=None, notes={"level": 2}, prompt="é漢\n\u2028x")]
    assert write_tasks(tmp_path / "t.jsonl", tasks) == 2
    assert read_tasks(tmp_path / "t.jsonl") == tasks


def test_a_row_says_where_it_comes_from_and_keeps_the_solution_behind(tmp_path):
    write_task_rows(tmp_path / "t.parquet", [task(7, notes={"level": 2})])
    (row,) = read_rows(tmp_path / "t.parquet")
    assert (row.data_source, row.skill, row.prompt[0].content) == ("code", "write", task(7).prompt)
    assert json.loads(row.reward_model.ground_truth) == {"tests": ["assert add7(1, 2) == 3"]}
    assert row.extra_info.model_dump() == {
        **{"split": "train", "index": 0, "id": "own/7", "role": "train", "source": "own"},
        **{"licence": "cc0-1.0", "level": 2},
    }
    assert "return a + b" not in row.model_dump_json()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not JSON: Expecting property name"),
        ("[" * 100_000, "not JSON: "),
        ("[1]", "a JSON object was expected, found list"),
        (b'{"id": "\xff"}', "not UTF-8: byte 8 of the line"),
        (fields(5) | {"prompt": 3}, "field 'prompt': Input should be a valid string (found 3)"),
        ({key: value for key, value in fields(5).items() if key != "licence"} | {"colour": 1}, "field 'colour'"),
        ({key: value for key, value in fields(5).items() if key != "skill"}, "field 'skill': Field required"),
        (fields(5, verifier="nonsense"), "unknown verifier 'nonsense'"),
        (fields(5, ground_truth={}), "ground_truth is not for verifier 'code': field 'tests': Field required"),
        (fields(5, ground_truth={"tests": ["assert ("]}), "ground_truth is not for verifier 'code'"),
        (fields(5, id="humaneval/3"), "humaneval/3 is reserved for testing and can't have the role 'train'"),
        (fields(0), "the id 'own/0' is also in line 1"),
    ],
)
def test_a_bad_line_is_named_and_the_others_count(tmp_path, capsys, line, reason):
    path = write_lines(tmp_path / "t.jsonl", fields(0), "", line, fields(1, role="test"))
    assert validate.main([str(path)]) == 1
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{path}:3: ")
    assert reason in first
    assert last == f"{path}: 2 good tasks (1 test, 1 train), 1 bad rows"
    with pytest.raises(DataFileError, match=r"t\.jsonl:3: "):
        read_tasks(path)


def test_a_line_that_is_too_long_costs_only_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(json_lines, "MAX_LINE_BYTES", 100)
    path = write_lines(tmp_path / "t.jsonl", '{"a": 1}', "x" * 1000, '{"a": 2}', '{"b": "' + "y" * 91 + '"}', "z" * 101)
    lines = list(json_lines.read_lines(path))
    assert [(line.number, line.value is not None) for line in lines] == [
        *((1, True), (2, False), (3, True), (4, True), (5, False))
    ]
    assert lines[1].reason == "the line is longer than 100 bytes"


@pytest.mark.slow
def test_a_gigabyte_without_an_end_of_line_is_not_held_in_memory(tmp_path):
    path = tmp_path / "t.jsonl"
    with path.open("wb") as stream:
        stream.truncate(1 << 30)  # takes no space on the disk
        stream.seek(1 << 30)
        stream.write(b'\n{"a": 1}\n')
    tracemalloc.start()
    try:
        lines = list(json_lines.read_lines(path))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [(line.number, line.value) for line in lines] == [(1, None), (2, {"a": 1})]
    assert peak < (1 << 30) // 4


def test_a_good_file_is_said_to_be_good(tmp_path, capsys):
    path = write_lines(tmp_path / "t.jsonl", fields(0))
    assert validate.main([str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: 1 good tasks (1 train), 0 bad rows\n"


def test_a_file_that_is_not_there_is_one_clear_line(tmp_path, capsys):
    assert validate.main([str(tmp_path / "no.jsonl")]) == 1
    assert "no.jsonl: No such file or directory" in capsys.readouterr().err


def test_a_file_that_breaks_off_while_it_is_written_does_not_appear(tmp_path):
    def tasks():
        yield task(0)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_tasks(tmp_path / "t.jsonl", tasks())
    assert list(tmp_path.iterdir()) == []
