"""Rows: what fits survives a round trip; what does not is named with file, row and field."""

import pandas as pd
import pytest

from data_prep.schema import DataFileError, Demonstration, ExtraInfo, Message, Row, read_rows, write_rows


def row(**changes):
    fields = {
        "data_source": "trace",
        "prompt": [{"role": "user", "content": "run f(1)"}],
        "ability": "trace",
        "reward_model": {"style": "rule", "ground_truth": '{"expected": "3"}'},
        "skill": "trace",
        "extra_info": {"split": "train", "index": 0, "id": "t/0", "level": 2},
    }
    return fields | changes


def write_raw(path, *records):
    pd.DataFrame(list(records)).to_parquet(path)


def test_a_row_survives_parquet(tmp_path):
    path = tmp_path / "folder" / "train.parquet"
    rows = [Row(**row()), Row(**row(skill="other", agent_name="tool_agent"))]
    assert write_rows(path, rows) == 2
    assert read_rows(path) == rows
    assert [item.name for item in path.parent.iterdir()] == ["train.parquet"]


def test_keys_of_a_source_are_kept_in_extra_info(tmp_path):
    write_rows(tmp_path / "t.parquet", [Row(**row())])
    assert read_rows(tmp_path / "t.parquet")[0].extra_info.model_extra == {"level": 2}


@pytest.mark.parametrize(
    ("change", "field", "reason"),
    [
        ({"data_source": "nonsense"}, "data_source", "valid ones: calls, code, common_neighbours, "),
        ({"prompt": []}, "prompt", "at least 1 item"),
        ({"prompt": [{"role": "robot", "content": "x"}]}, "prompt.0.role", "'system', 'user'"),
        ({"skill": ""}, "skill", "at least 1 character"),
        ({"reward_model": {"style": "rule", "ground_truth": "{}"}}, "reward_model", "not for verifier 'trace'"),
    ],
)
def test_a_row_that_does_not_fit_is_named(tmp_path, change, field, reason):
    path = tmp_path / "bad.parquet"
    write_raw(path, row(), row(**change))
    with pytest.raises(DataFileError) as error:
        read_rows(path)
    assert f"{path}: row 1, field '{field}'" in str(error.value)
    assert reason in str(error.value)


def test_a_column_that_is_not_ours_is_refused(tmp_path):
    write_raw(tmp_path / "bad.parquet", row(colour="red"))
    with pytest.raises(DataFileError, match="row 0, field 'colour': Extra inputs are not permitted"):
        read_rows(tmp_path / "bad.parquet")


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: None, "no such file"),
        (lambda path: path.write_bytes(b"PAR1 not really"), "not a readable parquet file"),
        (lambda path: write_raw(path), "has no rows"),
    ],
)
def test_a_file_without_rows_says_what_to_do(tmp_path, make, reason):
    path = tmp_path / "x.parquet"
    make(path)
    with pytest.raises(DataFileError, match=reason):
        read_rows(path)


def test_nothing_is_written_without_rows(tmp_path):
    with pytest.raises(DataFileError, match="no rows to write"):
        write_rows(tmp_path / "x.parquet", [])
    assert list(tmp_path.iterdir()) == []


def test_a_demonstration_ends_with_the_assistant():
    extra = ExtraInfo(split="sft_train", index=0, id="x")
    messages = [Message(role="user", content="a"), Message(role="user", content="b")]
    with pytest.raises(ValueError, match="role 'assistant'"):
        Demonstration(messages=messages, skill="write", correct=True, extra_info=extra)


def test_a_row_for_an_agent_must_show_it_something():
    hidden = {"style": "rule", "ground_truth": '{"tests": ["assert f(1)==2"]}'}
    agents = row(agent_name="code_agent", data_source="code", reward_model=hidden)
    with pytest.raises(ValueError, match="no test is visible"):
        Row(**agents)
    shown = {"style": "rule", "ground_truth": '{"tests": ["assert f(1)==2"], "visible": 1}'}
    assert Row(**agents | {"reward_model": shown}).agent_name == "code_agent"
