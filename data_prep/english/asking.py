"""Problems of the skills sql, word and ledger."""

import random
import re
from collections.abc import Callable
from functools import cache, partial

from data_prep.english.problem import Accept, EnglishProblem, Unsuitable, anything, require
from data_prep.english.stories import EnglishStory, random_ledger, random_story
from data_prep.sources.sql import Schema, hidden_databases, random_question, random_schema
from rewards.verifiers.code import CodeTruth
from rewards.verifiers.sql import SqlTruth

_SQL = (
    "I have a SQLite database with these tables:\n\n```sql\n{tables}\n```\n\nWrite a query for {words}. {only}",
    "Given this schema:\n\n```sql\n{tables}\n```\n\nHow do I get {words}? {only}",
    "```sql\n{tables}\n```\n\nPlease write one SQL query for these tables: {words}. {only}",
    "My database looks like this:\n\n```sql\n{tables}\n```\n\nI need {words}. {only}",
)
_QUERY = ("Reply with the SQL query only.", "Answer with one query and nothing else.", "Give only the query.")
_WORD = (
    "{story}\n\nWrite a Python function `solution()` that computes the answer step by step and returns it. {only}",
    "Solve this problem with a Python function `solution()`, one statement per step:\n\n{story}\n\n{only}",
    "{story} Answer with a Python function `solution()` that returns the result. {only}",
    "Here is a word problem:\n\n{story}\n\nPlease write a short Python function `solution()` that works it out. {only}",
)
_LEDGER = (
    "{story}\n\nWrite a Python function `solution()` that returns the list `{name}`: at first and after each "
    "change. {only}",
    "Follow this story with a Python function `solution()`, one statement per change:\n\n{story}\n\nIt returns the "
    "list `{name}`, from the start to the end. {only}",
    "{story} Answer with a Python function `solution()` that returns every value of `{name}` in a list. {only}",
    "Here is a story:\n\n{story}\n\nPlease write a short Python function `solution()` that keeps a list `{name}` of "
    "the number at first and after each change, and returns it. {only}",
)
_CODE = ("Reply with the code only.", "Give only the function.", "Write nothing but the code.")


def sql_problem(rng: random.Random, level: int, accept: Accept = anything) -> EnglishProblem:
    """A question over a small schema; the answer is a query, checked on databases that the prompt does not show."""
    schema = random_schema(rng)
    question = random_question(rng, schema, level)
    origin = f"sql/{question.query}"
    require(accept, origin, question.query)
    words = re.sub(r"\ba (?=[aeiou])", "an ", question.words)
    prompt = rng.choice(_SQL).format(tables=schema.tables(), words=words, only=rng.choice(_QUERY))
    wrong = tuple(dict.fromkeys((*question.wrong, *_off_by_one(question.query))))
    return EnglishProblem(
        skill="sql",
        verifier="sql",
        prompt=prompt,
        gold=f"{question.query};",
        wrong=wrong,
        truth=partial(_databases, question.query, wrong, schema, question.ordered),
        key=question.query,
        origin=origin,
        level=level,
    )


def word_problem(rng: random.Random, level: int, accept: Accept = anything) -> EnglishProblem:
    """A story with a question; the answer is a program whose statements depend on each other."""
    story = _wanted(random_story(rng, level), accept)
    answer = story.value()
    wrong = {other.program() for other in story.neighbours() if other.value() != answer}
    prompt = rng.choice(_WORD).format(story=story.text(), only=rng.choice(_CODE))
    return _of_story("word", story, level, prompt, story.program(), wrong, _answer)


def ledger_problem(rng: random.Random, level: int, accept: Accept = anything) -> EnglishProblem:
    """A story; the answer is a program that returns the quantity after each event, and each has its own test.

    So a test tells about one statement, and a lost statement does not cost those before it.
    """
    story = _wanted(random_ledger(rng, level), accept)
    values = story.values()
    wrong = {other.ledger() for other in story.neighbours() if other.values() != values}
    prompt = rng.choice(_LEDGER).format(story=story.sentences(), name=story.domain.variable, only=rng.choice(_CODE))
    return _of_story("ledger", story, level, prompt, story.ledger(), wrong, quantities)


def _wanted(story: EnglishStory | None, accept: Accept) -> EnglishStory:
    if story is None:
        raise Unsuitable("the numbers make no sense")
    require(accept, _origin(story), story.key())
    return story


def _origin(story: EnglishStory) -> str:
    return f"word/{story.key()}"  # of both skills, whose arithmetic is the same


def _of_story(
    skill: str,
    story: EnglishStory,
    level: int,
    prompt: str,
    gold: str,
    wrong: set[str],
    truth: Callable[[EnglishStory], CodeTruth],
) -> EnglishProblem:
    return EnglishProblem(
        skill=skill, verifier="code", prompt=prompt, gold=gold, wrong=tuple(sorted(wrong)), truth=partial(truth, story),
        key=story.key(), origin=_origin(story), level=level,
    )  # fmt: skip


def _off_by_one(query: str) -> list[str]:
    """The query with the last number in it one larger and one smaller."""
    *_, last = [None, *re.finditer(r"(?:[<>=]|LIMIT) (\d+)", query)]
    if last is None:
        return []
    return [f"{query[: last.start(1)]}{int(last[1]) + change}{query[last.end(1) :]}" for change in (1, -1)]


@cache
def _databases(query: str, wrong: tuple[str, ...], schema: Schema, ordered: bool) -> SqlTruth:
    """Hidden databases that distinguish the query from the wrong ones; the same for the same query."""
    rng = random.Random(query)
    return SqlTruth(databases=hidden_databases(query, wrong, partial(schema.setup, rng)), ordered=ordered)


def _answer(story: EnglishStory) -> CodeTruth:
    return CodeTruth(tests=[f"assert solution() == {story.value()}"])


def quantities(story: EnglishStory) -> CodeTruth:
    """A test for each quantity of a ledger; the last one refuses further entries."""
    *others, last = story.values()
    tests = [f"assert solution()[{place}] == {value}" for place, value in enumerate(others)]
    return CodeTruth(tests=[*tests, f"assert solution()[{len(others)}:] == [{last}]"])
