"""Environments for agents: each action (one assistant turn) gets an observation.

Every trajectory and every replay of its turns gets a new environment, so none carries state of another. An environment
shows only what the prompt may show: visible tests, visible databases. Source of the replay of actions: the
interventions of paper A, with turns as steps.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, TypeAdapter

from rewards.analysis.parsing import parse
from rewards.extraction import extract_block
from rewards.sandbox import AssertCase, Program, StdioCase
from rewards.settings import JudgeSettings
from rewards.verifiers.code import CodeTruth
from rewards.verifiers.programs import sandbox_at
from rewards.verifiers.sql import SqlTruth, SqlValue, results_of
from rewards.verifiers.stdio import StdioTruth

# Key of the Episode, as a dictionary, among the extra fields of an agent's trajectory.
EPISODE = "agent_episode"


@dataclass(frozen=True)
class Episode:
    """An agent's trajectory as the reward manager needs it.

    turns: response tokens [start, end) of each assistant turn. answer: index of the turn that is the answer.
    first_failed: the environment showed that the first action is wrong. failed: the environment could not run, so the
    sample must be masked.
    """

    agent: str
    turns: list[tuple[int, int]]
    answer: int
    first_failed: bool
    failed: bool


@dataclass(frozen=True)
class Observation:
    """The environment's reply to one action.

    text: shown to the agent unless the episode is done. done: the episode is over. valid: the action can be the answer
    (a program that parses, a query that runs). wrong: the verifier is known to reject the action.
    """

    text: str
    done: bool
    valid: bool
    wrong: bool = False


class Environment(ABC):
    """One episode. `feedback` is the template of the text that the agent sees; the environment fills it in.

    answer: index of the action that is the agent's answer so far (the last valid one, else the last one), -1 before
    the first action. first_failed: the first action is known to be wrong.
    """

    verifiers: ClassVar[tuple[str, ...]]  # verifiers whose ground truths it can read
    truths: ClassVar[TypeAdapter[Any]]
    fields: ClassVar[tuple[str, ...]]  # placeholders that the template may use
    first_failed = False

    def __init__(self, truth: BaseModel, settings: JudgeSettings, feedback: str, characters: int = 512):
        self.check_feedback(feedback)
        self.settings = settings
        self.feedback = feedback
        self.characters = characters
        self.played = 0
        self.answer = -1
        self._has_valid = False
        self._read(truth)

    @classmethod
    def check_feedback(cls, feedback: str) -> None:
        """ValueError for a template with a placeholder that this environment does not fill."""
        try:
            feedback.format(**dict.fromkeys(cls.fields, ""))
        except (KeyError, IndexError, ValueError):
            valid = ", ".join(f"{{{name}}}" for name in cls.fields)
            raise ValueError(f"invalid placeholder or brace in feedback {feedback!r}; valid ones: {valid}") from None

    @classmethod
    def check_truth(cls, ground_truth: str) -> None:
        """ValueError for a ground truth (JSON) of another task, or one with nothing visible to the agent."""
        cls(cls.truths.validate_json(ground_truth), JudgeSettings(), "")

    @abstractmethod
    def _read(self, truth: BaseModel) -> None:
        """Take what the agent may see from the ground truth; ValueError if nothing is visible."""

    @abstractmethod
    async def _respond(self, action: str) -> Observation: ...

    async def act(self, action: str) -> Observation:
        """The observation after one action. Errors of the sandbox propagate: the episode is lost, not wrong."""
        observation = await self._respond(action)
        if self.played == 0:
            self.first_failed = observation.wrong
        if observation.valid or not self._has_valid:
            self.answer = self.played
        self._has_valid |= observation.valid
        self.played += 1
        return observation

    def _feedback_text(self, **fields: str) -> str:
        text = self.feedback.format(**{name: fields.get(name, "") for name in self.fields})
        return text if len(text) <= self.characters else text[: self.characters] + "..."


class CodeEnvironment(Environment):
    """Runs the program of an action on the visible tests and reports the first that fails; done when all pass."""

    verifiers = ("code", "stdio")
    truths = TypeAdapter(CodeTruth | StdioTruth)
    fields = ("test", "detail", "program")

    def _read(self, truth: BaseModel) -> None:
        assert isinstance(truth, CodeTruth | StdioTruth)
        self.cases: list[AssertCase | StdioCase]
        self.entry_points = truth.all_entry_points() if isinstance(truth, CodeTruth) else []
        if isinstance(truth, CodeTruth):
            self.shown = [test.removeprefix("assert ") for test in truth.tests[: truth.visible]]
            self.cases = [AssertCase(test) for test in truth.tests[: truth.visible]]
        else:
            self.shown = [f"{case.stdin!r} -> {case.expected!r}" for case in truth.cases[: truth.visible]]
            self.cases = [StdioCase(case.stdin, case.expected, truth.layout) for case in truth.cases[: truth.visible]]
        if not self.cases:
            raise ValueError("no test is visible to the agent: set `visible` in the ground truth")

    async def _respond(self, action: str) -> Observation:
        source = extract_block(action, "python")
        if source is None or parse(source) is None:
            detail = "no program found" if source is None else "syntax error"
            text = self._feedback_text(test=self.shown[0], detail=detail, program=source or "")
            return Observation(text, done=False, valid=False, wrong=True)
        sandbox = sandbox_at(self.settings.sandbox_url, self.settings.sandbox_isolation)
        result = await sandbox.check(
            Program(source),
            self.cases,
            timeout=self.settings.timeout,
            memory_mb=self.settings.memory_mb,
            entry_points=self.entry_points,
        )
        if result.all_passed:
            return Observation("", done=True, valid=True)
        test, case = next(pair for pair in zip(self.shown, result.cases, strict=True) if not pair[1].passed)
        text = self._feedback_text(test=test, detail=case.detail or case.outcome, program=source)
        return Observation(text, done=False, valid=True, wrong=True)


class SqlEnvironment(Environment):
    """Runs the query of an action on the first visible database and shows its rows, or the error.

    Done when the agent repeats the last query that ran: it confirms its answer.
    """

    verifiers = ("sql",)
    truths = TypeAdapter(SqlTruth)
    fields = ("result", "query")

    def _read(self, truth: BaseModel) -> None:
        assert isinstance(truth, SqlTruth)
        if not truth.visible:
            raise ValueError("no database is visible to the agent: set `visible` in the ground truth")
        self.setup, self.engine = truth.databases[0].setup, truth.engine
        self.confirmed: str | None = None

    async def _respond(self, action: str) -> Observation:
        query = extract_block(action, "sql")
        if query is None:
            text = self._feedback_text(result="no query found")
            return Observation(text, done=False, valid=False, wrong=True)
        if query == self.confirmed:
            return Observation("", done=True, valid=True)
        answer = await results_of(query, [self.setup], self.engine, self.settings)
        if "error" in answer:
            text = self._feedback_text(result=f"error: {answer['message']}", query=query)
            return Observation(text, done=False, valid=False, wrong=True)
        self.confirmed = query
        text = self._feedback_text(result=_as_lines(answer["results"][0]), query=query)
        return Observation(text, done=False, valid=True)


def _as_lines(rows: Sequence[Sequence[SqlValue]]) -> str:
    """Rows as comma-separated lines, NULL for None."""
    lines = [",".join("NULL" if value is None else str(value) for value in row) for row in rows]
    return "\n".join(lines) or "no rows"


# Keyed by the `agent_name` of a row.
ENVIRONMENTS: Mapping[str, type[Environment]] = {"code_agent": CodeEnvironment, "sql_agent": SqlEnvironment}


def environment_of(
    agent_name: str, ground_truth: str, settings: JudgeSettings, *, feedback: Mapping[str, str], characters: int = 512
) -> Environment:
    """A fresh environment for a row.

    feedback: templates by agent name. Raises ValueError for an agent without an environment, or a ground truth with
    nothing visible to the agent.
    """
    if agent_name not in ENVIRONMENTS:
        raise ValueError(f"agent '{agent_name}' has no environment; valid: {', '.join(ENVIRONMENTS)}")
    kind = ENVIRONMENTS[agent_name]
    return kind(kind.truths.validate_json(ground_truth), settings, feedback[agent_name], characters)


def of_config(config: Any, agent_name: str, ground_truth: str) -> Environment:
    """`environment_of` with the settings of a run's configuration (groups `agents` and `reward`)."""
    return environment_of(
        agent_name,
        ground_truth,
        JudgeSettings.of_config(config),
        feedback=config.agents.feedback,
        characters=config.agents.observation_characters,
    )


async def play(environment: Environment, actions: Sequence[str]) -> str:
    """Replay actions in order until the episode is done; returns the action that is the answer, "" for none."""
    for action in actions:
        if (await environment.act(action)).done:
            break
    return actions[environment.answer] if environment.answer >= 0 else ""


async def first_acceptance(
    first: str,
    answer: str,
    first_failed: bool,
    reward: Mapping[str, Any],
    judge: Callable[[str], Awaitable[Mapping[str, Any]]],
) -> float | None:
    """Whether the verifier accepts the first action of an episode: 1.0 or 0.0, None if it could not be judged.

    reward: the verifier's reward of the answer. The first action is judged only if neither the environment nor the
    verdict on the same text already decides.
    """
    if reward["error"] == "infrastructure":
        return None
    if first_failed:
        return 0.0
    if first != answer:
        reward = await judge(first)
    return None if reward["error"] == "infrastructure" else float(reward["acc"])


def recovery(episodes: Iterable[tuple[float | None, float | None]]) -> dict[str, float]:
    """`first_turn_accuracy`, and `recovery_rate`: the share of first-turn failures whose answer is accepted.

    episodes: acceptance of the first action and of the answer; a pair with None does not count. A rate without
    episodes is left out.
    """
    known = [(first, final) for first, final in episodes if first is not None and final is not None]
    failures = [final for first, final in known if first == 0]
    rates = {"first_turn_accuracy": [first for first, _ in known], "recovery_rate": failures}
    return {name: sum(values) / len(values) for name, values in rates.items() if values}
