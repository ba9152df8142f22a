"""Answers in several turns: with a scripted model, and through `recipe.evaluate` with the real sandbox."""

import json

import pytest

from data_prep.schema import read_rows
from data_prep.sources.agents import for_agent
from data_prep.sources.agents import main as make_rows
from data_prep.tasks import write_task_rows
from recipe.evaluate import main
from recipe.evaluation.collecting import play_episode
from recipe.evaluation.folder import EvaluationFolder
from recipe.evaluation.samples import EPISODE_FAILED, TOO_LONG, Answer
from recipe.settings import SettingsError, read_agents
from tests.recipe.evaluation.conftest import task
from tests.recipe.evaluation.openai_server import Behaviour, serving
from tests.scripted_environment import Scripted

pytestmark = pytest.mark.slow

PROMPT = [{"role": "user", "content": "write"}]


async def played(*texts: str, max_turns: int = 3, tokens: int = 100) -> tuple[Answer, list[list[str]]]:
    """The episode of these turns of ten tokens each, and the messages of each request."""
    asked: list[list[str]] = []

    async def ask(messages, turn, spent):
        if spent >= tokens:
            return None
        asked.append([message["content"] for message in messages])
        finish = TOO_LONG if texts[turn] == "long" else "stop"
        return Answer(texts[turn], 10, finish, 0.1 * (turn + 1), 2.0 * turn, 2.0 * turn + 1)

    agents = read_agents("standard", [f"agents.max_turns={max_turns}"])
    return await play_episode(ask, Scripted(), PROMPT, agents), asked


async def test_each_turn_sees_what_came_of_those_before_and_the_last_valid_one_is_the_answer():
    answer, asked = await played("so-so", "bad", "good")
    assert asked == [["write"], ["write", "so-so", "no so-so"], ["write", "so-so", "no so-so", "bad", "no bad"]]
    assert (answer.text, answer.tokens, answer.first_failed) == ("good", 30, True)
    assert answer.entropy == pytest.approx(0.2)
    assert (answer.started, answer.ended) == (0.0, 5.0)
    assert [message["content"] for message in answer.conversation][-1] == "good"


@pytest.mark.parametrize(
    ("texts", "options", "text", "finish"),
    [
        (["good"], {}, "good", "stop"),
        (["so-so", "bad"], {"max_turns": 2}, "so-so", "stop"),
        (["so-so", "x"], {"tokens": 10}, "so-so", "stop"),  # no token is left for a second turn
        (["so-so", "long"], {}, "so-so", "stop"),
        (["long"], {}, "long", TOO_LONG),
        (["so-so", "crash"], {}, "so-so", EPISODE_FAILED),
    ],
)
async def test_an_episode_ends_when_it_is_solved_cut_or_out_of_room(texts, options, text, finish):
    answer, _ = await played(*texts, **options)
    assert (answer.text, answer.finish) == (text, finish)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nobody"], "agents=nobody"),
        (["standard", "agents.turns=2"], "Could not override 'agents.turns'"),
        (["standard", "agents.max_turns=0"], r"agents\.max_turns: .*greater than or equal to 1"),
    ],
)
def test_settings_of_agents_that_are_none_are_refused(words, message):
    with pytest.raises(SettingsError, match=message):
        read_agents(words[0], words[1:])


def program(operator: str) -> str:
    return f"```python\ndef f(a):\n    return a {operator} 2\n```"


def code_rows(path, count=4):
    tests = [f"assert f({n}) == {2 * n}" for n in (1, 2, 3, 4)]
    fields = {"verifier": "code", "ground_truth": {"tests": tests}, "skill": "write"}
    write_task_rows(path, [task(number, f"double {number}", **fields) for number in range(count)])


def test_an_evaluation_in_several_turns_reports_its_recovery_rate(tmp_path, capsys):
    """Of four problems, one is solved at once, two after a hint, and one never."""
    code_rows(tmp_path / "plain.parquet")
    assert make_rows([str(tmp_path / "plain.parquet"), "--out", str(tmp_path / "own.parquet")]) == 0

    def text(messages):
        number = int(messages[0]["content"].split()[-1])
        fixed = len(messages) > 1 and number != 3
        return program("*" if number == 0 or fixed else "+")

    behaviour, out = Behaviour(text=text), tmp_path / "out"
    command = ["--data", f"own={tmp_path / 'own.parquet'}", "--out", str(out), "--agents", "standard"]
    with serving(behaviour) as url:
        assert main([*command, "agents.max_turns=2", "--url", url]) == 0
    found = EvaluationFolder(out).metrics["own"]
    rates = ("accepted@1", "first_turn_accuracy", "recovery_rate")
    assert [found[name]["estimate"] for name in rates] == [0.75, 0.25, pytest.approx(2 / 3)]
    assert len(behaviour.requests) == 7
    assert "The test `f(1) == 2` fails" in behaviour.requests[-1]["messages"][-1]["content"]
    assert "recovery_rate" in capsys.readouterr().out
    lines = [json.loads(line) for line in (out / "qa_logs/own.jsonl").read_text().splitlines()]
    assert {len(line["conversation"]) for line in lines} == {1, 3, 4}


def test_the_same_rows_are_answered_in_one_turn_where_no_agents_are_asked_for(tmp_path, capsys):
    code_rows(tmp_path / "plain.parquet")
    with serving(Behaviour(text=lambda messages: program("*"))) as url:
        plain = ["--data", str(tmp_path / "plain.parquet"), "--url", url]
        assert main([*plain, "--out", str(tmp_path / "one")]) == 0
        assert main([*plain, "--out", str(tmp_path / "two"), "--agents", "standard"]) == 2
    assert "no row is for an agent" in capsys.readouterr().err
    (found,) = EvaluationFolder(tmp_path / "one").metrics.values()
    assert (found["accepted@1"]["estimate"], found["recovery_rate"]) == (1.0, None)


@pytest.mark.parametrize(
    ("fields", "agent", "visible"),
    [
        ({"verifier": "code", "ground_truth": {"tests": ["assert f(1)"] * 5}}, "code_agent", 2),
        ({"verifier": "code", "ground_truth": {"tests": ["assert f(1)"]}}, "code_agent", 1),
        ({"verifier": "code", "ground_truth": {"tests": ["assert f(1)"] * 5, "visible": 3}}, "code_agent", 3),
        ({"verifier": "stdio", "ground_truth": {"cases": [{"stdin": "", "expected": "1"}] * 4}}, "code_agent", 2),
        ({}, "single_turn_agent", None),
    ],
)
def test_an_agent_sees_what_the_prompt_shows_or_half_of_what_judges_it(tmp_path, fields, agent, visible):
    write_task_rows(tmp_path / "own.parquet", [task(1, **fields)])
    (row,) = map(for_agent, read_rows(tmp_path / "own.parquet"))
    assert row.agent_name == agent
    assert json.loads(row.reward_model.ground_truth).get("visible") == visible


def test_a_file_without_a_problem_for_an_agent_is_refused(tmp_path, capsys):
    write_task_rows(tmp_path / "own.parquet", [task(1)])
    assert make_rows([str(tmp_path / "own.parquet"), "--out", str(tmp_path / "new.parquet")]) == 1
    assert "no row for an agent; agents answer code, sql, stdio" in capsys.readouterr().err
