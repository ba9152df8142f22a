"""Makes SQL tasks over generated schemas: `python -m data_prep.sql --out DIR [--levels 1 2 3] [--engine duckdb]`.

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
from rewards.sql import Engine, SqlTruth

LEVELS = tuple(KINDS)
_NAMES: dict[Engine, str] = {"sqlite": "SQLite", "duckdb": "DuckDB"}


def draw(rng: random.Random, levels: Sequence[int] = LEVELS, engine: Engine = "sqlite") -> dict[str, Any]:
    """A random problem of one of these levels.

    The results expected are those of SQLite, whatever the engine: the queries mean the same to both, and a problem
    where they don't fails its proof (data_prep/source.py) and is refused.
    """
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
            f"These {_NAMES[engine]} tables are given:\n```sql\n{schema.tables()}\n```\nWrite one query for "
            f"{question.words}. Answer with the query in one SQL code block."
        ),
        "ground_truth": SqlTruth(databases=databases, ordered=question.ordered, engine=engine).model_dump(),
        "solution": question.query,
        "licence": "apache-2.0",
        "notes": {"level": level},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = source_parser("sql", __doc__)
    procedural.add_limit(parser)
    parser.add_argument("--levels", type=int, nargs="+", choices=LEVELS, default=LEVELS)
    parser.add_argument("--engine", choices=_NAMES, default="sqlite", help="that runs the queries")
    options = parser.parse_args(arguments)
    one = partial(draw, levels=tuple(options.levels), engine=options.engine)
    return run("sql", options, ("sql",), lambda: procedural.drafts("sql", one, limit=options.limit, seed=options.seed))


if __name__ == "__main__":
    sys.exit(main())
