"""Problems of the skills write, repair and trace: one function each (functions.py), stated in English."""

import random
from collections.abc import Sequence

from data_prep.english.functions import (
    Cases,
    EnglishFunction,
    distinguishing_cases,
    literal,
    random_argument,
    random_function,
)
from data_prep.english.operations import VariableValue
from data_prep.english.problem import Accept, EnglishProblem, Unsuitable, anything, require, sentence
from rewards.verifiers.code import CodeTruth
from rewards.verifiers.trace import TraceTruth

_WRITE = (
    "Write a Python function `{call}` that takes {takes}. It should {chain}.\n\nFor example, {example}.\n\n{only}",
    "I need a Python function called `{name}` for {takes} `{variable}`. It should {chain}.\n\n"
    "Example: {example}.\n\n{only}",
    "Please implement `{call}` in Python. The argument is {takes}.\n\n{steps}\n\nExample: {example}.\n\n{only}",
    'Complete this Python function:\n\n```python\ndef {call}:\n    """{docstring}\n\n    >>> {input}\n    {output}\n'
    '    """\n```\n\n{only}',
    "Can you write a Python function `{call}`? {sentences}\n\nIt must pass this test:\n\n```python\n"
    "assert {input} == {output}\n```\n\n{only}",
)
_WHOLE = (
    "Reply with the complete function and nothing else.",
    "Answer with the code of the whole function only.",
    "Give only the complete function, without an explanation.",
)
_REPAIR = (
    "This Python function should {chain}:\n\n```python\n{bug}\n```\n\nBut {failure}. Fix the function. {only}",
    "My function has a bug. It should take {takes} and {chain}.\n\n```python\n{bug}\n```\n\n{failure}. {only}",
    "Find and fix the bug in this function.\n\n```python\n{documented}\n```\n\n{failure}. {only}",
    "There is one mistake in this code:\n\n```python\n{bug}\n```\n\n{sentences} At the moment {failure}. Please "
    "correct it. {only}",
)
_TRACE = (
    "What does `{call}` return?\n\n```python\n{source}\n```\n\n{form}",
    "Here is a Python function:\n\n```python\n{source}\n```\n\nWork out the result of `{call}`. {form}",
    "Trace this program by hand:\n\n```python\n{source}\n\n\nresult = {call}\n```\n\nWhat is `result`? {form}",
    "Read this code and tell me the value of `{call}`.\n\n```python\n{source}\n```\n\n{form}",
)
_FORM = (
    "Write the value of `{variable}` after each step, one line per step, and the returned value on the last line.",
    "Show the new value of `{variable}` after every step on its own line; the last line is the returned value only.",
)

# A trace is worked out digit by digit.
_LARGEST_TRACED, _LONGEST_TRACED = 400, 28


def write_problem(rng: random.Random, level: int, accept: Accept = anything) -> EnglishProblem:
    """A description with an example; the answer is the function."""
    function, cases = _function(rng, level, accept)
    argument = cases.arguments[0]
    example = f"`{function.call(argument)}` returns `{function.outcome(argument)}`"
    prompt = rng.choice(_WRITE).format(
        **_described(rng, function),
        example=example,
        input=function.call(argument),
        output=function.outcome(argument),
    )
    return _coding_problem("write", level, function, cases, prompt)


def repair_problem(rng: random.Random, level: int, accept: Accept = anything) -> EnglishProblem:
    """A description, the function with one step misread, and a call that shows it; the answer is the function."""
    function, cases = _function(rng, level, accept)
    bug = rng.choice(cases.wrong)
    showing = [one for one in cases.arguments if function.outcome(one) != bug.outcome(one)]
    if not showing:
        raise Unsuitable("no case shows the bug")
    shown = showing[0]
    failure = f"`{function.call(shown)}` {_happens(bug, shown)} instead of `{function.outcome(shown)}`"
    described = _described(rng, function)
    documented = bug.source(described["docstring"])
    template = rng.choice(_REPAIR)
    prompt = template.format(**described, bug=bug.source(), documented=documented, failure=failure)
    ordered = Cases((shown, *(one for one in cases.arguments if one is not shown)), cases.wrong)
    return _coding_problem("repair", level, function, ordered, prompt, first_wrong=bug)


def trace_problem(rng: random.Random, level: int, accept: Accept = anything) -> EnglishProblem:
    """A function and a call; the answer has the value after each step, and the result on the last line."""
    function = random_function(rng, level)
    argument = random_argument(rng, function.kind, largest=12)
    key = f"{function.key()}\n{literal(argument)}"
    require(accept, _origin(function), key)
    cases = _cases(rng, function)
    result = function.outcome(argument)
    if result.endswith("Error") or not all(map(_is_short, function.states(argument))):
        raise Unsuitable("the values are too long to trace")
    form = rng.choice(_FORM).format(variable=function.variable)
    prompt = rng.choice(_TRACE).format(call=function.call(argument), source=function.source(), form=form)
    others = {_traced(other, argument) for other in cases.wrong if other.outcome(argument) != result} - {""}
    if not others:
        raise Unsuitable("every misreading gives the same result")
    return EnglishProblem(
        skill="trace",
        verifier="trace",
        prompt=prompt,
        gold=_traced(function, argument),
        wrong=tuple(sorted(others)),
        truth=lambda: TraceTruth(expected=repr(function.states(argument)[-1])),
        key=key,
        origin=_origin(function),
        level=level,
    )


def _function(rng: random.Random, level: int, accept: Accept) -> tuple[EnglishFunction, Cases]:
    function = random_function(rng, level)
    require(accept, _origin(function), function.key())
    return function, _cases(rng, function)


def _origin(function: EnglishFunction) -> str:
    """One function's problems of all skills share a split: the answer to one is in the prompts or answers of others."""
    return f"function/{function.key()}"


def _cases(rng: random.Random, function: EnglishFunction) -> Cases:
    cases = distinguishing_cases(rng, function)
    if cases is None:
        raise Unsuitable("a step changes nothing")
    return cases


def _coding_problem(
    skill: str,
    level: int,
    function: EnglishFunction,
    cases: Cases,
    prompt: str,
    first_wrong: EnglishFunction | None = None,
) -> EnglishProblem:
    """The problem whose tests are the cases; the prompt shows the first one."""
    tests = [f"assert {function.call(one)} == {function.outcome(one)}" for one in cases.arguments]
    wrong = dict.fromkeys(other.source() for other in ([first_wrong] if first_wrong else []) + list(cases.wrong))
    return EnglishProblem(
        skill=skill,
        verifier="code",
        prompt=prompt,
        gold=function.source(),
        wrong=tuple(wrong),
        truth=lambda: CodeTruth(tests=tests, visible=1),
        key=function.key(),
        origin=_origin(function),
        level=level,
    )


def _described(rng: random.Random, function: EnglishFunction) -> dict[str, str]:
    """The parts of a description, by the names that the templates use."""
    words = [step.words() for step in function.steps]
    return {
        "name": function.name,
        "variable": function.variable,
        "call": f"{function.name}({function.variable})",
        "takes": function.takes(),
        "chain": _chain(rng, words),
        "sentences": _sentences(words),
        "steps": "\n".join(f"{number}. {sentence(text)}" for number, text in enumerate(words, start=1)),
        "docstring": _sentences(words),
        "only": rng.choice(_WHOLE),
    }


def _chain(rng: random.Random, words: Sequence[str]) -> str:
    *first, last = words
    link = rng.choice((", then ", ", after that ", ", "))
    return f"{link.join(first)}, and {last}"


def _sentences(words: Sequence[str]) -> str:
    first, *middle, last = words
    if not middle:
        return f"{sentence(first)} Then {last}."
    return " ".join([f"First, {first}.", *(f"Then {text}." for text in middle), f"Finally, {last}."])


def _happens(function: EnglishFunction, argument: VariableValue) -> str:
    outcome = function.outcome(argument)
    return f"raises `{outcome}`" if outcome.endswith("Error") else f"returns `{outcome}`"


def _is_short(value: VariableValue) -> bool:
    if isinstance(value, list):
        return len(literal(value)) <= _LONGEST_TRACED and all(map(_is_short, value))
    return abs(value) <= _LARGEST_TRACED if isinstance(value, int) else len(value) <= _LONGEST_TRACED


def _traced(function: EnglishFunction, argument: VariableValue) -> str:
    """The value after each step, then the result; "" if a step fails."""
    try:
        *values, result = function.states(argument)
    except (ValueError, TypeError, IndexError):
        return ""
    return "\n".join([*(f"{function.variable} = {literal(value)}" for value in values), literal(result)])
