"""Spider and sets in its form: `python -m data_prep.public.spider --out DIR --databases spider/database`.

Questions come from the hub, or from `--from-file train=train_spider.json validation=dev.json`; databases are the local
files ID/*.sqlite, of which ID.sqlite and others, at most `--per-question`, are the hidden ones of a question. Expected
rows are those of the published query, run in the sandbox; questions without any are refused. The questions on a
twentieth of train's databases are dev; `validation` is for testing.
"""

import asyncio
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from functools import cache, partial
from pathlib import Path
from typing import Any

from data_prep.schema import DataFileError
from data_prep.sources import hub
from data_prep.sources.hub import PublicSet
from data_prep.sources.source import judge_of, positive, source_parser
from data_prep.splits import split_by_hash
from rewards.settings import JudgeSettings
from rewards.verifiers.sql import Database, SqlTruth, results_of

PUBLIC = PublicSet(
    "spider",
    "xlangai/spider",
    "spider",
    ("train", "validation"),
    ("db_id", "query", "question"),
    "0c350918f3f29ec754f1181c65cdce76cd6c133c",
    "cc-by-sa-4.0",
)
_SHARES = {"dev": 5, "train": 95}


def parts(split: str, records: Sequence[Any]) -> dict[str, list[int]]:
    """The record numbers of train and dev, or of validation."""
    numbers: dict[str, list[int]] = {"train": [], "dev": []} if split == "train" else {split: []}
    for number, record in enumerate(records):
        held = split == "train" and isinstance(record, dict)
        numbers[split_by_hash(str(record.get("db_id")), _SHARES) if held else split].append(number)
    return numbers


@cache
def read_databases(folder: Path, name: str, count: int, longest: int) -> dict[Path, tuple[str, str]]:
    """For each of the first `count` databases of an ID, what creates its tables, and the script of all of it.

    Files are only read: nothing in them is run. Raises ValueError with the reason if one cannot be used.
    """
    main = folder / name / f"{name}.sqlite"
    if Path(name).name != name or not main.is_file():
        raise ValueError(f"there is no database {main}")
    files = [main, *sorted(path for path in main.parent.glob("*.sqlite") if path != main)]
    return {path: _read(path, longest) for path in files[:count]}


def _read(path: Path, longest: int) -> tuple[str, str]:
    lines, length = [], 0
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
            # Some published texts are not UTF-8.
            connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
            connection.execute("PRAGMA trusted_schema = OFF")
            for line in connection.iterdump():
                lines.append(line)
                length += len(line)
                if length > longest:
                    raise ValueError(f"{path.name} has more than {longest:,} characters; see --max-characters")
    except sqlite3.Error as error:
        raise ValueError(f"{path} is no readable database ({error})") from error
    return "\n".join(line for line in lines if line.startswith("CREATE TABLE")), "\n".join(lines)


def convert(
    record: dict[str, Any],
    split: str,
    index: int,
    *,
    databases: partial[dict[Path, tuple[str, str]]],
    judge: JudgeSettings,
    used: set[Path],
) -> dict[str, Any]:
    """The task of a question. databases: those of an ID. used: gets their files."""
    query, found = record["query"].strip().rstrip(";"), databases(name=record["db_id"])
    tables, scripts = zip(*found.values(), strict=True)
    answer = asyncio.run(results_of(query, scripts, "sqlite", judge))
    if "error" in answer:
        raise ValueError(f"the published query fails: {answer['error']}, {answer['message']}")
    if not any(answer["results"]):
        raise ValueError("the published query returns no rows: any query that returns none would pass")
    used.update(found)
    hidden = [Database(setup=one, expected=rows) for one, rows in zip(scripts, answer["results"], strict=True)]
    return {
        "id": f"spider/{split if split == 'validation' else 'train'}/{index}",
        "source": "spider",
        "split": split,
        "role": "test" if split == "validation" else split,
        "skill": "sql",
        "verifier": "sql",
        "prompt": (
            f"These SQLite tables are given:\n```sql\n{tables[0]}\n```\n{record['question'].strip()} "
            "Answer with one query in one SQL code block."
        ),
        "ground_truth": SqlTruth(databases=hidden, ordered="order by" in " ".join(query.lower().split())).model_dump(),
        "solution": query,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = source_parser("public.spider", __doc__)
    hub.add_options(parser, PUBLIC.splits)
    parser.add_argument("--databases", type=Path, required=True, help="folder of ID/ID.sqlite")
    parser.add_argument("--per-question", type=positive, default=1, help="hidden databases of a question, at most")
    parser.add_argument("--max-characters", type=positive, default=65_536, help="longest script of a database")
    options = parser.parse_args(arguments)
    databases = partial(read_databases, options.databases, count=options.per_question, longest=options.max_characters)
    used: set[Path] = set()
    try:
        converted = partial(convert, databases=databases, judge=judge_of(options), used=used)
    except DataFileError as error:
        parser.error(str(error))
    return hub.make(PUBLIC, options, converted, "sql", module="public.spider", parts=parts, more_files=used)


if __name__ == "__main__":
    sys.exit(main())
