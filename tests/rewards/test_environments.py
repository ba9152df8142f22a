"""Environments of agents: observations, end of an episode, the action that is the answer; replay of actions."""

import pytest

from rewards import environments
from rewards.environments import environment_of, first_acceptance, play, recovery
from rewards.sandbox import CaseResult, CheckResult
from rewards.settings import JudgeSettings
from rewards.verifiers.code import CodeTruth
from rewards.verifiers.sql import Database, SqlTruth
from rewards.verifiers.stdio import Printed, StdioTruth

FEEDBACK = {"code_agent": "fix {test}\n{program}", "sql_agent": "{result}"}
CODE = CodeTruth(tests=["assert f(1)==2", "assert f(2)==4", "assert f(3)==6"], visible=2)
RIGHT, HALF, BROKEN = "def f(a):return a*2", "def f(a):return a+1", "def f(a:"
MEANING = {RIGHT: lambda a: a * 2, HALF: lambda a: a + 1}


class Sandbox:
    """Returns prepared results for the programs of this file: only their interpretation is tested here."""

    def __init__(self):
        self.checked = []

    async def check(self, program, cases, **limits):
        self.checked.append((program.code, [case.source for case in cases]))
        results = []
        for case in cases:
            call, _, value = case.source.removeprefix("assert ").partition("==")
            right = MEANING[program.code](int(call[2:-1])) == int(value)
            results.append(CaseResult("passed" if right else "wrong_answer", None if right else "AssertionError"))
        return CheckResult(results)


@pytest.fixture
def sandbox(monkeypatch):
    instance = Sandbox()
    monkeypatch.setattr(environments, "sandbox_at", lambda url, isolation: instance)
    return instance


def code(feedback="fix {test}\n{program}", characters=512, truth=CODE):
    return environment_of(
        "code_agent", truth.model_dump_json(), JudgeSettings(), feedback={"code_agent": feedback}, characters=characters
    )


async def test_the_first_visible_test_that_fails_is_shown_and_no_hidden_one_is_run(sandbox):
    environment = code()
    observation = await environment.act(HALF)
    assert (observation.text, observation.done) == (f"fix f(2)==4\n{HALF}", False)
    assert sandbox.checked == [(HALF, ["assert f(1)==2", "assert f(2)==4"])]
    assert (await environment.act(RIGHT)).done
    assert environment.answer == 1


async def test_unparsable_code_is_reported_without_the_sandbox_and_never_the_answer(sandbox):
    environment = code("{detail}")
    assert (await environment.act(BROKEN)).text == "syntax error"
    assert environment.answer == 0
    await environment.act(HALF)
    await environment.act(BROKEN)
    assert environment.answer == 1
    assert len(sandbox.checked) == 1


async def test_observations_are_truncated_at_the_runs_limit(sandbox):
    assert (await code(characters=5).act(HALF)).text == "fix f..."


async def test_replayed_actions_end_with_the_episode(sandbox):
    assert await play(code(), [HALF, RIGHT, HALF]) == RIGHT
    assert await play(code(), [HALF, BROKEN]) == HALF
    assert await play(code(), []) == ""
    assert [program for program, _ in sandbox.checked] == [HALF, RIGHT, HALF]


@pytest.mark.parametrize(
    ("agent", "truth", "feedback", "message"),
    [
        ("code_agent", CodeTruth(tests=["assert f(1)==2"]), FEEDBACK, "no test is visible"),
        ("sql_agent", SqlTruth(databases=[Database(setup="x", expected=[])]), FEEDBACK, "no database is visible"),
        ("code_agent", CODE, {"code_agent": "{tset}"}, r"valid ones: \{test\}, \{detail\}, \{program\}"),
        ("chat_agent", CODE, FEEDBACK, "valid: code_agent, sql_agent"),
    ],
)
def test_an_invalid_environment_is_refused(agent, truth, feedback, message):
    with pytest.raises(ValueError, match=message):
        environment_of(agent, truth.model_dump_json(), JudgeSettings(), feedback=feedback)


async def test_a_query_shows_its_rows_or_its_error_and_the_same_one_again_ends_the_episode(monkeypatch):
    asked = []

    async def results_of(query, setups, engine, settings):
        asked.append((query, list(setups)))
        if "no" in query:
            return {"error": "syntax", "message": "no such column: no"}
        return {"results": [[[1, None], ["x", 2.5]] if "t" in query else []]}

    monkeypatch.setattr(environments, "results_of", results_of)
    databases = [Database(setup="shown", expected=[]), Database(setup="hidden", expected=[])]
    truth = SqlTruth(databases=databases, visible=1).model_dump_json()
    environment = environment_of("sql_agent", truth, JudgeSettings(), feedback=FEEDBACK)
    assert (await environment.act("SELECT * FROM t")).text == "1,NULL\nx,2.5"
    assert (await environment.act("SELECT no")).text == "error: no such column: no"
    assert environment.answer == 0
    assert (await environment.act("```sql\nSELECT 0\n```")).text == "no rows"
    assert (await environment.act("```python\n1\n```")).text == "no query found"
    assert environment.answer == 2
    assert (await environment.act("SELECT 0")).done
    assert environment.answer == 4
    assert asked == [(query, ["shown"]) for query in ("SELECT * FROM t", "SELECT no", "SELECT 0")]


async def test_a_program_that_reads_and_prints_is_shown_an_input_and_what_was_expected(monkeypatch):
    class Printing:
        async def check(self, program, cases, **limits):
            return CheckResult(
                [CaseResult("passed" if case.expected == program.code else "wrong_answer") for case in cases]
            )

    monkeypatch.setattr(environments, "sandbox_at", lambda url, isolation: Printing())
    cases = [Printed(stdin="1", expected="a"), Printed(stdin="2", expected="b"), Printed(stdin="3", expected="hidden")]
    environment = code("{test}: {detail}", truth=StdioTruth(cases=cases, visible=2))
    assert (await environment.act("a")).text == "'2' -> 'b': wrong_answer"


@pytest.mark.parametrize(("first", "failed"), [(BROKEN, True), (HALF, True), (RIGHT, False)])
async def test_an_environment_remembers_whether_it_showed_the_first_action_to_be_wrong(sandbox, first, failed):
    environment = code()
    await environment.act(first)
    await environment.act(RIGHT)
    assert environment.first_failed == failed


@pytest.mark.parametrize(
    ("first", "failed", "error", "acceptance", "asked"),
    [
        ("x", True, "none", 0.0, []),  # the environment has said so
        ("answer", False, "none", 1.0, []),  # the answer is the first action
        ("x", False, "none", 0.0, ["x"]),
        ("x", False, "infrastructure", None, []),
    ],
)
async def test_the_first_action_is_judged_only_if_its_result_is_unknown(first, failed, error, acceptance, asked):
    seen = []

    async def judge(text):
        seen.append(text)
        return {"acc": 0.0, "error": "wrong_answer"}

    assert await first_acceptance(first, "answer", failed, {"acc": 1.0, "error": error}, judge) == acceptance
    assert seen == asked


def test_the_recovery_rate_is_the_share_of_first_turn_failures_that_end_accepted():
    episodes = [(1.0, 1.0), (0.0, 1.0), (0.0, 0.0), (0.0, 0.0), (None, 1.0), (0.0, None)]
    assert recovery(episodes) == {"first_turn_accuracy": 0.25, "recovery_rate": pytest.approx(1 / 3)}
    assert recovery([(1.0, 1.0)]) == {"first_turn_accuracy": 1.0}
    assert recovery([]) == {}
