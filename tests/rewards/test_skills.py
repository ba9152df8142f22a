import pytest

from rewards.skills import skill_assigner

ROW = {"skill": "sql", "data_source": "code", "extra_info": {"level": 3}}


@pytest.mark.parametrize(("by", "skill"), [("column", "sql"), ("data_source", "code"), ("function", "level3")])
def test_a_row_gets_its_skill_from_the_configured_source(by: str, skill: str):
    assert skill_assigner(by, "skill", "rewards.skills:level_of")(ROW) == skill


def test_a_row_without_the_column_belongs_to_no_skill():
    with pytest.raises(KeyError, match="topic"):
        skill_assigner("column", "topic", None)(ROW)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (None, "must be package.module:name"),
        ("os.path.join", "must be package.module:name"),
        ("no_such_module:f", "cannot be imported"),
        ("os.path:no_such_name", "cannot be imported"),
        ("os.path:sep", "is not a function"),
    ],
)
def test_a_missing_function_is_refused(name: str | None, message: str):
    with pytest.raises(ValueError, match=message):
        skill_assigner("function", "skill", name)
