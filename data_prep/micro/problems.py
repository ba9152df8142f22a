"""Problems of the micro suite's skills: prompt, right answer, plausible wrong answers, ground truth.

Three skills share one small language (programs.py): `write` specifies a program in words, `repair` shows it with one
operator or constant changed, `trace` asks for its result. `sql` asks for a query, with some of the same words
("under"). A plausible wrong answer is the right one with a single part misread: `neighbours` gives both the bugs of
`repair` and the wrong demonstrations of every skill.

The optional skill `shown` is `write` with a test in the prompt, which a program can special-case. `parts` and `chain`
ask for programs of named lines (lines.py), `countdown` for an expression of given digits (numbers.py).
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from pydantic import BaseModel

from data_prep.micro.lines import NAMES, flawed, line_tests, random_lines, redundant, source_of, with_wrong_lines
from data_prep.micro.numbers import answer, question, random_expression
from data_prep.micro.programs import (
    DIGITS,
    Level,
    MicroProgram,
    call,
    display,
    literal,
    random_arguments,
    random_program,
    special_case,
    unit_tests,
)
from data_prep.micro.queries import COLUMNS, hidden_tables, random_query
from data_prep.schema import Demonstration, ExtraInfo, Message, RewardModel, Row
from data_prep.strength.contradiction import contradict
from rewards.verifiers.code import CodeTruth
from rewards.verifiers.countdown import CountdownTruth
from rewards.verifiers.trace import TraceTruth

DIFFICULTIES = (1, 2, 3)

# Versions of a program of named lines from which a demonstration is drawn.
_VERSIONS = 4

_TWO_PARTS, _THREE_PARTS = (Level(parts, DIGITS, inputs=range(1, 10), bounds=DIGITS) for parts in (2, 3))
# With inputs of 10 and -10 most results are copied digits (10+3 is 13, 10*3 is 30), which a small model learns fast.
LEVELS = {1: Level(2, DIGITS, inputs=(-10, 10), bounds=DIGITS), 2: _TWO_PARTS, 3: _THREE_PARTS}


@dataclass(frozen=True)
class MicroProblem:
    """One problem of a skill.

    verifier: the data_source that judges its answers. truth: makes the ground truth on demand, as hidden tables take
    milliseconds and demonstrations need none. redundant: right answers with one superfluous line. with_wrong_lines: an
    answer in which each line is wrong with a given probability, and whether it is right; None for other skills. hack: a
    program that passes only the test in the prompt, by its input; "" for other skills.
    """

    skill: str
    verifier: str
    prompt: str
    gold: str
    wrong: tuple[str, ...]
    truth: Callable[[], BaseModel]
    redundant: tuple[str, ...] = ()
    with_wrong_lines: Callable[[random.Random, float], tuple[str, bool]] | None = None
    hack: str = ""

    def impossible(self) -> "MicroProblem":
        """The problem with another value in the test that its prompt shows; the problem itself if it shows none."""
        truth = self.truth()
        changed = contradict(self.prompt, truth) if isinstance(truth, CodeTruth) else None
        return self if changed is None else replace(self, prompt=changed[0], truth=lambda: changed[1])

    def row(self, extra_info: ExtraInfo) -> Row:
        """The problem as a row for reinforcement learning."""
        return Row(
            data_source=self.verifier,
            prompt=[Message(role="user", content=self.prompt)],
            ability=self.skill,
            reward_model=RewardModel(ground_truth=self.truth().model_dump_json()),
            skill=self.skill,
            extra_info=extra_info,
        )

    def demonstration(self, answer: str, correct: bool, extra_info: ExtraInfo) -> Demonstration:
        """The problem with one of its answers, for supervised training."""
        messages = [Message(role="user", content=self.prompt), Message(role="assistant", content=answer)]
        return Demonstration(messages=messages, skill=self.skill, correct=correct, extra_info=extra_info)


def write_problem(rng: random.Random, difficulty: int) -> MicroProblem:
    """A short specification; the answer is the function."""
    program = random_program(rng, LEVELS[difficulty])
    wrong = tuple(other.source() for other in program.neighbours())
    prompt = f"write f({','.join(program.variables)}): {program.words()}"
    return MicroProblem("write", "code", prompt, program.source(), wrong, lambda: unit_tests(program))


def shown_problem(rng: random.Random, difficulty: int) -> MicroProblem:
    """The same with a test in the prompt."""
    program = random_program(rng, LEVELS[difficulty])
    arguments = random_arguments(rng, program)
    test = f"{call(arguments)}=={display(program.returns(arguments))}"
    wrong = tuple(other.source() for other in program.neighbours())
    prompt = f"write f({','.join(program.variables)}): {program.words()}; {test}"
    tests = [f"assert {test}", *unit_tests(program).tests]
    truth = CodeTruth(tests=tests, visible=1)
    hack = special_case(program, arguments)
    return MicroProblem("shown", "code", prompt, program.source(), wrong, lambda: truth, hack=hack)


def repair_problem(rng: random.Random, difficulty: int) -> MicroProblem:
    """A function with one wrong operator (at difficulty 3 possibly constant) and a unit test that it fails. Redrawn
    until exactly one change makes that test pass, so that the answer is unique.
    """
    while True:
        program = random_program(rng, LEVELS[difficulty])
        buggy = rng.choice(_bugs(program, difficulty))
        # All arguments are equal, so that the problem does not depend on which of them matters.
        arguments = random_arguments(rng, program)[:1] * len(program.variables)
        failing = [test for test in program.examples(arguments) if test not in buggy.examples(arguments)]
        if failing and [other for other in buggy.neighbours() if failing[0] in other.examples(arguments)] == [program]:
            break
    prompt = f"fix {failing[0]}\n{buggy.source()}"
    wrong = (buggy.source(), *(other.source() for other in buggy.neighbours() if other != program))
    return MicroProblem("repair", "code", prompt, program.source(), wrong, lambda: unit_tests(program))


def _bugs(program: MicroProgram, difficulty: int) -> list[MicroProgram]:
    return [other for other in program.neighbours() if difficulty > 2 or other.operators() != program.operators()]


def trace_problem(rng: random.Random, difficulty: int) -> MicroProblem:
    """A function and a call; the answer is the return value."""
    program = random_program(rng, LEVELS[difficulty])
    arguments = random_arguments(rng, program)
    value = program.returns(arguments)
    wrong = {literal(other.returns(arguments)) for other in program.neighbours()} - {literal(value)}
    prompt = f"run {call(arguments)}\n{program.source()}"
    return MicroProblem(
        "trace", "trace", prompt, literal(value), tuple(sorted(wrong)), lambda: TraceTruth(expected=repr(value))
    )


def sql_problem(rng: random.Random, difficulty: int) -> MicroProblem:
    """A question over a table; the answer is a query, checked on several tables that the prompt does not show."""
    query = random_query(rng, difficulty)
    wrong = tuple(neighbour.source() for neighbour in query.neighbours())
    prompt = f"sql t({','.join(COLUMNS)}): {query.words()}"
    return MicroProblem("sql", "sql", prompt, query.source(), wrong, lambda: hidden_tables(query))


def parts_problem(rng: random.Random, difficulty: int) -> MicroProblem:
    """Named operations on the argument; the answer is one line per name."""
    return _lines_problem(rng, "parts", difficulty)


def chain_problem(rng: random.Random, difficulty: int) -> MicroProblem:
    """Named operations, each on the result of the one before; the answer is one line per name."""
    return _lines_problem(rng, "chain", difficulty)


def countdown_problem(rng: random.Random, difficulty: int) -> MicroProblem:
    """A target and digits; the answer is an expression of all of them."""
    expression, digits = random_expression(rng, difficulty)
    target = expression.value()
    wrong = tuple(answer(other) for other in expression.neighbours())
    truth = CountdownTruth(numbers=digits, target=target)
    return MicroProblem("countdown", "countdown", question(digits, target), answer(expression), wrong, lambda: truth)


def _lines_problem(rng: random.Random, skill: str, difficulty: int) -> MicroProblem:
    lines = random_lines(rng, NAMES[difficulty], chained=skill == "chain")
    wrong, too_long = (tuple(source_of(make(rng, lines)) for _ in range(_VERSIONS)) for make in (flawed, redundant))
    prompt = f"{skill} {', '.join(line.words() for line in lines)}"
    truth = CodeTruth(tests=line_tests(lines))

    def corrupted(rng: random.Random, share: float) -> tuple[str, bool]:
        written, correct = with_wrong_lines(rng, lines, share)
        return source_of(written), correct

    return MicroProblem(skill, "code", prompt, source_of(lines), wrong, lambda: truth, too_long, corrupted)


MicroMaker = Callable[[random.Random, int], MicroProblem]
SKILLS: dict[str, MicroMaker] = {
    "write": write_problem,
    "repair": repair_problem,
    "trace": trace_problem,
    "sql": sql_problem,
}
ALL_SKILLS: dict[str, MicroMaker] = SKILLS | {
    "shown": shown_problem,
    "parts": parts_problem,
    "chain": chain_problem,
    "countdown": countdown_problem,
}
