"""The tests of a task as a suite: cases for the sandbox, new inputs, and tests made of them. Pure."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from data_prep.strength.arguments import literals, new_arguments
from data_prep.strength.calls import CallForm, assertion_of, expected_literal, read_test
from data_prep.strength.printed_inputs import new_inputs
from data_prep.tasks import Task
from rewards import registry
from rewards.sandbox import AssertCase, Case, StdioCase
from rewards.verifiers.code import CodeTruth
from rewards.verifiers.stdio import StdioTruth

VERIFIERS = ("code", "refactor", "stdio")


@dataclass(frozen=True)
class SuiteInput:
    """An input: an expression to evaluate after `imports`, or the text of standard input."""

    text: str
    form: CallForm | None = None

    @property
    def imports(self) -> str:
        """Import statements that the expression needs."""
        return self.form.imports if self.form else ""


@dataclass(frozen=True)
class NewTest:
    """A test that the solution passes. entry: as the ground truth lists it."""

    case: Case
    entry: Any


class Suite(Protocol):
    """The tests of one task. printed: whether they read standard output rather than call functions."""

    printed: bool
    entry_points: list[str]

    def cases(self) -> list[Case]:
        """All tests, hidden ones included."""

    def constant_answers(self) -> list[str]:
        """Programs that ignore their input and give the answer that a test expects."""

    def new_inputs(self, rng: random.Random, count: int, solution: str) -> list[SuiteInput]:
        """Up to `count` inputs like those of the tests."""

    def known_inputs(self) -> list[SuiteInput]:
        """The inputs of the tests whose outputs show which types there are."""

    def new_test(self, given: SuiteInput, output: str) -> NewTest | None:
        """The test that an input has this output; None if no such test can be written."""


_CONSTANTS = 3


class CallSuite:
    """Unit tests of functions (verifiers `code` and `refactor`)."""

    printed = False

    def __init__(self, truth: CodeTruth) -> None:
        self.tests = truth.tests
        self.entry_points = truth.all_entry_points()
        read = [found for test in self.tests if (found := read_test(test, self.entry_points)) is not None]
        self.rows: dict[tuple[str, int, tuple[str, ...]], list[tuple[Any, ...]]] = {}
        self.forms: dict[tuple[str, int, tuple[str, ...]], dict[str, CallForm]] = {}
        for form, arguments in read:
            key = (form.function, form.arguments, form.keywords)
            self.rows.setdefault(key, []).append(arguments)
            self.forms.setdefault(key, {}).setdefault(form.compared, form)

    def cases(self) -> list[Case]:
        """All tests, hidden ones included."""
        return [AssertCase(test) for test in self.tests]

    def constant_answers(self) -> list[str]:
        """The functions that return the literal of one of the first tests, for suites of a single function."""
        if len(self.entry_points) != 1:
            return []
        literals = dict.fromkeys(filter(None, map(expected_literal, self.tests)))
        head = f"def {self.entry_points[0]}(*arguments, **named):"
        return [f"{head}\n    return {literal}" for literal in list(literals)[:_CONSTANTS]]

    def new_inputs(self, rng: random.Random, count: int, solution: str) -> list[SuiteInput]:
        """Up to `count` calls with new arguments, equally many of each form of test."""
        words = literals(solution)
        inputs: list[SuiteInput] = []
        forms = sum(map(len, self.forms.values()))
        for key, rows in self.rows.items():
            for form in self.forms[key].values():
                share = -(-count // forms)
                inputs += [SuiteInput(form.expression(row), form) for row in new_arguments(rows, rng, share, words)]
        return inputs[:count]

    def known_inputs(self) -> list[SuiteInput]:
        """The calls in the tests."""
        return [
            SuiteInput(form.expression(row), form)
            for key, rows in self.rows.items()
            for form in self.forms[key].values()
            for row in rows
        ]

    def new_test(self, given: SuiteInput, output: str) -> NewTest | None:
        """An assertion on the expression."""
        assert given.form is not None
        source = assertion_of(given.form, given.text, output)
        return None if source is None else NewTest(AssertCase(source), source)


class PrintedSuite:
    """Cases of standard input and output (verifier `stdio`)."""

    printed = True
    entry_points: list[str] = []  # noqa: RUF012  (never changed; a list, as the sandbox takes)

    def __init__(self, truth: StdioTruth) -> None:
        self.truth = truth

    def cases(self) -> list[Case]:
        """All cases, hidden ones included."""
        return [StdioCase(case.stdin, case.expected, layout=self.truth.layout) for case in self.truth.cases]

    def constant_answers(self) -> list[str]:
        """The programs that print what one of the first cases expects."""
        texts = dict.fromkeys(case.expected for case in self.truth.cases)
        return [f"print({text!r})" for text in list(texts)[:_CONSTANTS]]

    def new_inputs(self, rng: random.Random, count: int, solution: str) -> list[SuiteInput]:
        """Up to `count` inputs with other numbers and words."""
        return [SuiteInput(text) for text in new_inputs([case.stdin for case in self.truth.cases], rng, count)]

    def known_inputs(self) -> list[SuiteInput]:
        """None: what is printed is text."""
        return []

    def new_test(self, given: SuiteInput, output: str) -> NewTest | None:
        """A case; None for an input without output."""
        if not output.strip():
            return None
        return NewTest(
            StdioCase(given.text, output, layout=self.truth.layout), {"stdin": given.text, "expected": output}
        )


def suite_of(task: Task) -> Suite:
    """The suite of a task of one of VERIFIERS."""
    truth = registry.get(task.verifier).truth.model_validate(task.ground_truth)
    if isinstance(truth, StdioTruth):
        return PrintedSuite(truth)
    assert isinstance(truth, CodeTruth)
    return CallSuite(truth)


def with_tests(task: Task, entries: Sequence[Any]) -> Task:
    """The task with these hidden tests after its own."""
    field = "cases" if task.verifier == "stdio" else "tests"
    truth = task.ground_truth | {field: [*task.ground_truth[field], *entries]}
    return Task.model_validate(task.model_dump() | {"ground_truth": truth})
