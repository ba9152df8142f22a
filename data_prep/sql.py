"""Makes SQL tasks over generated schemas: `python -m data_prep.sql --out DIR [--levels 1 2 3]`.

The prompt shows the tables, not their rows; the answer is one SELECT. It is judged on hidden databases that tell it
from the queries that a misread question gives.
"""

import random
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from data_prep import procedural
from data_prep.hidden_databases import Ambiguous, hidden_databases
from data_prep.source import run, source_parser
from data_prep.sql_questions import KINDS, random_question
from data_prep.sql_schemas import random_schema
from rewards.sql import SqlTruth

LEVELS = tuple(KINDS)


def draw(rng: random.Random, levels: Sequence[int] = LEVELS) -> dict[str, Any]:
    """A random problem of one of these levels."""
    level = rng.choice(levels)
    while True:
        schema = random_schema(rng)
        question = random_question(rng, schema, level)
        try:
            databases = hidden_databases(question.query, question.wrong, partial(schema.setup, rng))
        except Ambiguous:
            continue
        break
    return {
        "skill": "sql",
        "verifier": "sql",
        "prompt": (
            f"These SQLite tables are given:\n```sql\n{schema.tables()}\n```\nWrite one query for {question.words}. "
            "Answer with the query in one SQL code block."
        ),
        "ground_truth": SqlTruth(databases=databases, ordered=question.ordered).model_dump(),
        "solution": question.query,
        "licence": "apache-2.0",
        "notes": {"level": level},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = source_parser("sql", __doc__)
    procedural.add_limit(parser)
    parser.add_argument("--levels", type=int, nargs="+", choices=LEVELS, default=LEVELS)
    options = parser.parse_args(arguments)
    levels = tuple(options.levels)
    return run(
        "sql",
        options.out,
        ("sql",),
        lambda: procedural.drafts("sql", lambda rng: draw(rng, levels), limit=options.limit, seed=options.seed),
    )


if __name__ == "__main__":
    sys.exit(main())
