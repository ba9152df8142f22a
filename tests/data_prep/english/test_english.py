"""The English suite: same seed, same bytes; no problem in two files; reference answers are right, wrong ones wrong."""

import ast
import asyncio
import hashlib
import json
import random

import pytest

from data_prep.english import suite
from data_prep.english.suite import (
    DEFAULT_LEVELS,
    LEVELS,
    MANIFEST,
    SKILLS,
    STANDARD,
    demonstrations,
    extra_info,
    main,
    make,
    parse_levels,
    problems,
    split_of,
)
from data_prep.schema import DataFileError, Demonstration, read_rows
from data_prep.sources.agents import for_agent
from rewards import compute_score

pytestmark = pytest.mark.slow

LOWEST = (1,)
FILES = ("train", "val", "test", "sft_train", "sft_val")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("english")
    sizes = make(out, seed=3, limit=16, demonstration_count=16)
    assert sizes == {"train": 80, "val": 10, "test": 10, "sft_train": 80, "sft_val": 5}
    return out


def read(folder, split):
    return read_rows(folder / f"{split}.parquet", *([Demonstration] if split.startswith("sft") else []))


@pytest.fixture(scope="module")
def drawn():
    return [
        problem
        for skill in SKILLS
        for level in LEVELS
        for problem in problems(skill, "train", seed=7, count=6, levels=(level,))
    ]


def test_the_same_seed_gives_the_same_bytes(folder, tmp_path):
    make(tmp_path, seed=3, limit=16, demonstration_count=16)
    for name in (*(f"{split}.parquet" for split in FILES), MANIFEST):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


def test_another_seed_gives_other_problems():
    first, second = (
        {one.key for one in problems("word", "train", seed=seed, count=40, levels=(1,))} for seed in (0, 1)
    )
    assert len(first & second) < 10


def test_no_problem_is_in_two_files_or_twice_in_one(folder):
    ids = [one.extra_info.id for split in FILES for one in read(folder, split)]
    assert len(ids) == len(set(ids)) == 185


@pytest.mark.parametrize("skill", SKILLS)
def test_a_problem_has_one_split_whatever_the_seed(skill):
    for seed in range(3):
        for one in problems(skill, "val", seed=seed, count=4, levels=LEVELS):
            assert split_of(one.origin) == "val"


def test_the_function_of_a_problem_is_in_one_split_for_all_skills():
    drawn = {
        split: {
            one.origin
            for skill in ("write", "repair", "trace")
            for one in problems(skill, split, seed=0, count=48, levels=LOWEST)
        }
        for split in ("train", "sft_train", "val", "test")
    }
    assert all(len(origins) > 40 for origins in drawn.values())
    assert sum(map(len, drawn.values())) == len(set.union(*drawn.values()))
    written, traced = (next(problems(skill, "val", seed=0, count=1, levels=LOWEST)) for skill in ("write", "trace"))
    assert written.origin == f"function/{written.key}"
    assert traced.key.startswith(f"{traced.origin.removeprefix('function/')}\n")


async def test_reference_answers_earn_everything_and_planted_wrong_ones_fail(drawn):
    rng = random.Random(0)
    truths = [one.truth().model_dump_json() for one in drawn]
    wrong = [rng.choice(one.wrong) for one in drawn]
    right = await asyncio.gather(
        *(compute_score(one.verifier, one.gold, truth) for one, truth in zip(drawn, truths, strict=True))
    )
    assert [one.prompt for one, verdict in zip(drawn, right, strict=True) if verdict["score"] != 1.0] == []
    planted = await asyncio.gather(
        *(compute_score(one.verifier, bad, truth) for one, bad, truth in zip(drawn, wrong, truths, strict=True))
    )
    assert [bad for bad, verdict in zip(wrong, planted, strict=True) if verdict["acc"] != 0.0] == []


async def test_answers_in_a_code_block_count_too(drawn):
    for one in (one for one in drawn if one.level == 2 and one.skill in ("write", "sql", "word")):
        language = "sql" if one.skill == "sql" else "python"
        response = f"Here it is:\n\n```{language}\n{one.gold}\n```\nI hope this helps!"
        assert (await compute_score(one.verifier, response, one.truth().model_dump_json()))["score"] == 1.0
        break


def test_every_problem_has_wrong_answers_that_differ_from_the_right_one(drawn):
    for one in drawn:
        assert one.wrong
        assert one.gold not in one.wrong


def test_programs_are_formatted_as_python_usually_is(drawn):
    for one in (one for one in drawn if one.verifier == "code"):
        tree = ast.parse(one.gold)
        assert isinstance(tree.body[0], ast.FunctionDef)
        assert all(line.startswith("    ") for line in one.gold.splitlines()[1:])
        assert isinstance(tree.body[0].body[-1], ast.Return)


def test_word_programs_have_as_many_dependent_statements_as_the_level_says(drawn):
    bounds = {1: (4, 5), 2: (6, 8), 3: (9, 12)}
    for one in (one for one in drawn if one.skill == "word"):
        (function,) = ast.parse(one.gold).body
        *statements, answer = function.body
        fewest, most = bounds[one.level]
        assert fewest <= len(statements) <= most
        read_names = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
        for statement in statements:
            assert statement.targets[0].id in read_names
        assert answer.value.id == statements[-1].targets[0].id


def test_prompts_and_answers_are_short(drawn):
    for one in drawn:
        assert len(one.prompt) <= 1000, one.prompt
        assert len(one.gold) <= 450, one.gold


def test_prompts_show_a_visible_test_and_hide_the_others(drawn):
    for one in (one for one in drawn if one.skill in ("write", "repair")):
        truth = one.truth()
        (call, shown), *hidden = [test.removeprefix("assert ").split(" == ") for test in truth.tests]
        assert truth.visible == 1
        assert call in one.prompt
        assert shown in one.prompt
        assert len(hidden) >= 4
        assert not any(other in one.prompt for other, _ in hidden)


def test_traces_end_with_the_result(drawn):
    for one in (one for one in drawn if one.skill == "trace"):
        last = one.gold.splitlines()[-1]
        assert ast.literal_eval(last) == ast.literal_eval(one.truth().expected)
        assert len(one.gold.splitlines()) >= 2


def test_rows_name_their_skill_level_and_verifier(folder):
    train = read(folder, "train")
    assert {skill: sum(one.skill == skill for one in train) for skill in SKILLS} == dict.fromkeys(STANDARD, 16) | {
        "ledger": 0
    }
    assert [one.extra_info.index for one in train] == list(range(80))
    assert {one.data_source for one in train} == {"code", "trace", "sql"}
    assert {one.extra_info.level for one in train} == {1, 2}
    assert all(one.correct for one in read(folder, "sft_train"))


def test_a_share_of_the_demonstrations_misreads_the_same_problems():
    levels = dict.fromkeys(STANDARD, (1,))
    right = demonstrations("sft_train", levels, seed=3, count=12)
    mixed = demonstrations("sft_train", levels, seed=3, count=12, wrong_share=0.4)
    assert [one.extra_info.id for one in mixed] == [one.extra_info.id for one in right]
    same = [one.messages == its.messages for one, its in zip(right, mixed, strict=True)]
    assert [one.correct for one in mixed] == same
    assert 12 <= sum(same) <= 48  # 36 of 60 are expected
    assert not any(one.correct for one in demonstrations("sft_train", levels, seed=3, count=2, wrong_share=1.0))


def test_rows_become_rows_for_agents(drawn):
    for one in (one for one in drawn if one.skill in ("write", "repair")):
        asked = for_agent(one.row(extra_info(one, "train", 0)))
        assert asked.agent_name == "code_agent"
        assert json.loads(asked.reward_model.ground_truth)["visible"] == 1


def test_the_manifest_describes_the_files(folder):
    manifest = json.loads((folder / MANIFEST).read_text())
    assert manifest["settings"] == {
        "seed": 3, "limit": 16, "demonstrations": 16, "wrong_share": 0.0,
        "levels": {skill: [1, 2] for skill in STANDARD},
    }  # fmt: skip
    for split in FILES:
        entry = manifest["files"][split]
        assert entry["sha256"] == hashlib.sha256((folder / f"{split}.parquet").read_bytes()).hexdigest()
        assert sum(entry["problems"].values()) == entry["rows"] == len(read(folder, split))


def test_levels_are_given_for_all_skills_or_one():
    assert parse_levels([], STANDARD) == DEFAULT_LEVELS
    assert parse_levels(["3", "word=1,2"], ["sql", "word"]) == {"sql": (3,), "word": (1, 2)}
    assert parse_levels(["1", "2"], ["sql"]) == {"sql": (1, 2)}
    assert parse_levels([], ["ledger"]) == {"ledger": (1, 2)}
    assert parse_levels(["1,3"], ["sql"]) == {"sql": (1, 3)}


@pytest.mark.parametrize("text", ["4", "one", "poetry=1", "word=", "word=0", "=1"])
def test_unknown_levels_are_refused_with_the_valid_ones(tmp_path, capsys, text):
    assert main(["--out", str(tmp_path), "--levels", text]) == 1
    printed = capsys.readouterr().err
    assert f"--levels {text}: give levels 1, 2 or 3" in printed
    assert not list(tmp_path.iterdir())


def test_the_command_line_writes_the_files_and_says_so(tmp_path, capsys):
    chosen = ["--skills", "word", "sql", "--levels", "1", "word=3"]
    assert main(["--out", str(tmp_path), "--limit", "4", "--demonstrations", "4", *chosen]) == 0
    printed = capsys.readouterr()
    assert f"{tmp_path}/train.parquet: 8 rows" in printed.out
    assert "making the English suite" in printed.err
    assert {(one.skill, one.extra_info.level) for one in read(tmp_path, "train")} == {("word", 3), ("sql", 1)}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--limit", "0"], "not a positive number"),
        (["--wrong-share", "1.5"], "1.5 is not in [0, 1]"),
        (["--skills", "poetry"], "invalid choice: 'poetry'"),
    ],
)
def test_bad_options_are_refused(tmp_path, capsys, arguments, reason):
    with pytest.raises(SystemExit):
        main(["--out", str(tmp_path), *arguments])
    assert reason in capsys.readouterr().err


def test_an_unwritable_folder_is_one_clear_line(tmp_path, capsys):
    (tmp_path / "file").write_text("x")
    arguments = ["--out", str(tmp_path / "file"), "--limit", "2", "--demonstrations", "2", "--skills", "word"]
    assert main(arguments) == 1
    assert "data_prep.english:" in capsys.readouterr().err


def test_more_problems_than_there_are_are_refused_with_a_way_out(monkeypatch):
    monkeypatch.setattr(suite, "_ATTEMPTS_PER_ROW", 20)
    with pytest.raises(
        DataFileError, match=r"skill 'sql' has only about \d+ problems .* lower the number or add a level"
    ):
        list(problems("sql", "sft_val", seed=0, count=10_000, levels=(2,)))
