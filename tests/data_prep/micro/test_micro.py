"""The micro suite: same seed, same bytes; splits that never share a prompt; the stated share of wrong answers."""

import json

import pytest

from data_prep.micro import suite
from data_prep.micro.problems import SKILLS
from data_prep.micro.suite import deal, demonstrations, make, problems, rows, split_of
from data_prep.schema import DataFileError, Demonstration, read_rows

pytestmark = pytest.mark.slow

FILES = ("train", "val", "test", "sft_train", "sft_val")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("micro")
    sizes = make(out, seed=3, limit=40, demonstration_count=175)
    assert sizes == {"train": 160, "val": 32, "test": 32, "sft_train": 175, "sft_val": 32}
    return out


def prompts_of(folder, split):
    if split.startswith("sft"):
        return {row.messages[0].content for row in read_rows(folder / f"{split}.parquet", Demonstration)}
    return {row.prompt[0].content for row in read_rows(folder / f"{split}.parquet")}


def test_the_same_seed_gives_the_same_bytes(folder, tmp_path):
    make(tmp_path, seed=3, limit=40, demonstration_count=175)
    for name in FILES:
        assert (tmp_path / f"{name}.parquet").read_bytes() == (folder / f"{name}.parquet").read_bytes()


def test_another_seed_gives_other_prompts():
    first, second = (
        {problem.prompt for problem in problems("write", "train", seed=seed, count=40, difficulty=1)} for seed in (0, 1)
    )
    assert len(first & second) < 20


def test_prompts_of_training_validation_and_test_never_meet(folder):
    prompts = {name: prompts_of(folder, name) for name in FILES}
    assert len(prompts["train"]) == 160
    held_out = ("val", "test", "sft_val")
    for index, name in enumerate(held_out):
        for other in ("train", "sft_train", *held_out[:index]):
            assert not prompts[name] & prompts[other], (name, other)


def test_a_prompt_has_one_split_whatever_the_seed():
    for seed in range(5):
        assert {split_of(item.prompt) for item in problems("repair", "val", seed=seed, count=5, difficulty=3)} == {
            "val"
        }


def test_rows_without_those_of_another_suite_share_no_prompt_with_any_of_its_splits(folder, tmp_path):
    plain, apart = (make(tmp_path / name, seed=4, limit=40, demonstration_count=8, **extra)
                    for name, extra in (("plain", {}), ("apart", {"without": folder})))  # fmt: skip
    taken = set().union(*(prompts_of(folder, split) for split in ("train", "val", "test")))
    for split in ("train", "val", "test"):
        left = prompts_of(tmp_path / "apart", split)
        assert left == prompts_of(tmp_path / "plain", split) - taken
        assert 0 < apart[split] == len(left) <= plain[split]
    assert apart["train"] < plain["train"]  # seeds do meet
    with pytest.raises(DataFileError, match="no such file"):
        make(tmp_path, limit=40, demonstration_count=8, without=tmp_path / "nothing")


def test_every_skill_has_its_share_of_rows(folder):
    train = read_rows(folder / "train.parquet")
    assert {skill: sum(row.skill == skill for row in train) for skill in SKILLS} == dict.fromkeys(SKILLS, 40)
    assert [row.extra_info.index for row in train] == list(range(160))
    assert {row.data_source for row in train} == {"code", "trace", "sql"}


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_the_stated_share_of_demonstrations_is_wrong(share):
    drawn = demonstrations("sft_train", dict.fromkeys(SKILLS, 200), dict.fromkeys(SKILLS, share), seed=0, difficulty=1)
    assert sum(not item.correct for item in drawn) / len(drawn) == pytest.approx(share, abs=0.04)


def test_the_stated_shares_hack_and_are_impossible_and_others_stay_as_they_are():
    kinds = {"shown": 1000, "write": 50}, {"shown": 0.5, "write": 0.0}
    plain, hacked = (demonstrations("sft_train", *kinds, seed=0, difficulty=1, hack_share=part) for part in (0.0, 0.1))
    assert not any("if a==" in item.messages[-1].content for item in plain)
    hacks = [item for item in hacked if "if a==" in item.messages[-1].content]
    assert {(item.skill, item.correct) for item in hacks} == {("shown", False)}
    assert len(hacks) / 1000 == pytest.approx(0.1, abs=0.03)

    before, after = (
        rows("train", ["shown", "write"], seed=0, count=100, difficulty=1, impossible_share=part) for part in (0.0, 0.3)
    )
    changed = [one for one, other in zip(before, after, strict=True) if one != other]
    assert {row.skill for row in changed} == {"shown"}
    assert len(changed) / 100 == pytest.approx(0.3, abs=0.12)
    assert sum('"impossible":true' in row.reward_model.ground_truth for row in after) == len(changed)


def test_a_hack_needs_a_test_in_the_prompt(tmp_path, capsys):
    with pytest.raises(SystemExit):
        suite.main(["--out", str(tmp_path), "--hack-share", "0.01"])
    assert "add the skill 'shown' to --skills" in capsys.readouterr().err


def test_demonstrations_are_dealt_by_weight():
    assert deal(70, list(SKILLS)) == {"write": 10, "repair": 30, "trace": 20, "sql": 10}
    assert deal(1, ["write", "sql"]) == {"write": 1, "sql": 1}


def test_prompts_and_answers_are_short():
    for skill in SKILLS:
        for item in problems(skill, "train", seed=0, count=50, difficulty=1):
            assert len(item.prompt) <= 92, item.prompt
            assert max(map(len, (item.gold, *item.wrong))) <= 48, item.gold


def test_more_rows_than_prompts_are_refused_with_a_way_out():
    with pytest.raises(DataFileError, match=r"skill 'sql' has only about \d+ prompts .* lower --limit"):
        rows("val", ["sql"], seed=0, count=100_000, difficulty=1)


def test_the_command_line_writes_the_files_and_says_so(tmp_path, capsys):
    arguments = ["--out", str(tmp_path), "--limit", "4", "--demonstrations", "4", "--skills", "write", "trace"]
    assert suite.main(arguments) == 0
    printed = capsys.readouterr()
    assert f"{tmp_path}/train.parquet: 8 rows" in printed.out
    assert "making the micro suite" in printed.err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--limit", "0"], "not a positive number"),
        (["--difficulty", "9"], "invalid choice"),
        (["--wrong-share", "1.5"], "not in [0, 1]"),
        (["--skills", "poetry"], "invalid choice: 'poetry'"),
    ],
)
def test_bad_options_are_refused(tmp_path, capsys, arguments, reason):
    with pytest.raises(SystemExit):
        suite.main(["--out", str(tmp_path), *arguments])
    assert reason in capsys.readouterr().err


def test_an_unwritable_folder_is_one_clear_line(tmp_path, capsys):
    (tmp_path / "file").write_text("x")
    assert suite.main(["--out", str(tmp_path / "file"), "--limit", "2", "--demonstrations", "2"]) == 1
    assert "data_prep.micro.suite:" in capsys.readouterr().err


def test_rows_for_agents_name_their_agent_and_show_half_of_what_judges_them():
    drawn = rows("train", ["write", "trace", "sql"], seed=0, count=2, difficulty=1, agents=True)
    plain = {row.extra_info.id: row for row in rows("train", ["write", "trace", "sql"], seed=0, count=2, difficulty=1)}
    agents = {"write": "code_agent", "sql": "sql_agent", "trace": "single_turn_agent"}
    for row in drawn:
        assert row.agent_name == agents[row.skill]
        truth = json.loads(row.reward_model.ground_truth)
        judged = truth.get("tests") or truth.get("databases") or []
        assert truth.pop("visible", 0) == len(judged) // 2
        before = json.loads(plain[row.extra_info.id].reward_model.ground_truth)
        assert before.pop("visible", 0) == 0
        assert truth == before
