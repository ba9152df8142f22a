"""Records of a public set, from the Hugging Face hub or from local files with the same columns."""

import argparse
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow.lib
import pyarrow.parquet

from data_prep.json_lines import read_lines
from data_prep.schema import DataFileError
from data_prep.source import Draft, Refusal, positive


@dataclass(frozen=True)
class PublicSet:
    """Where a set is and what its records hold. splits: as published; columns: those that are read."""

    name: str
    repository: str
    configuration: str | None
    splits: tuple[str, ...]
    columns: tuple[str, ...]


class Convert(Protocol):
    """Makes the fields of a task of the record number `index` of a split; ValueError says why it can't."""

    def __call__(self, record: dict[str, Any], split: str, index: int) -> dict[str, Any]: ...


def add_options(parser: argparse.ArgumentParser, splits: Sequence[str]) -> None:
    """The options of every public set."""
    parser.add_argument("--limit", type=positive, help="records of each split, drawn by --seed (default: all)")
    parser.add_argument(
        "--from-file",
        nargs="+",
        default=[],
        metavar="SPLIT=FILE",
        help=f"JSONL or parquet files with the hub's columns, instead of the hub; splits: {', '.join(splits)}",
    )


def drafts(public: PublicSet, options: argparse.Namespace, convert: Convert) -> Iterator[Draft]:
    """A draft for each record that is asked for, in the published order."""
    files = _files(public, options.from_file)
    for split in files or public.splits:
        found = _of_file(files[split], public.columns) if files else _of_hub(public, split)
        numbers: Sequence[int] = range(len(found))
        if options.limit is not None and options.limit < len(found):
            numbers = sorted(random.Random(f"{split}/{options.seed}").sample(numbers, options.limit))
        for index in numbers:
            yield _draft(public, found[index], split, index, convert)


def _draft(public: PublicSet, record: Any, split: str, index: int, convert: Convert) -> Draft:
    label = f"{public.name}/{split} record {index}"
    if isinstance(record, str):
        return Refusal(label, record)
    try:
        return convert(record, split, index)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, SyntaxError, RecursionError) as error:
        return Refusal(label, f"{type(error).__name__}: {error}")


def _files(public: PublicSet, texts: Sequence[str]) -> Mapping[str, Path]:
    files: dict[str, Path] = {}
    for text in texts:
        split, _, path = text.partition("=")
        if split not in public.splits or not path:
            raise DataFileError(f"--from-file {text}: SPLIT=FILE is asked for, SPLIT one of {', '.join(public.splits)}")
        files[split] = Path(path)
    return files


def _of_file(path: Path, columns: Sequence[str]) -> list[dict[str, Any] | str]:
    """The records of a file; in place of a bad line the reason why it is bad."""
    if path.suffix == ".parquet":
        try:
            records = pyarrow.parquet.read_table(path).to_pylist()
        except (OSError, pyarrow.lib.ArrowException) as error:
            raise DataFileError(f"{path}: not a readable parquet file ({error})") from error
    else:
        records = [line.value or f"line {line.number}: {line.reason or 'an empty object'}" for line in read_lines(path)]
    present = {key for record in records if isinstance(record, dict) for key in record}
    if missing := [column for column in columns if column not in present]:
        raise DataFileError(
            f"{path}: the columns {', '.join(missing)} are missing; found: {', '.join(sorted(present)) or 'no records'}"
        )
    return records


def _of_hub(public: PublicSet, split: str) -> Any:
    import datasets  # takes seconds to import, and files of one's own do not need it

    try:
        found = datasets.load_dataset(public.repository, public.configuration, split=split)
    except Exception as error:  # the hub's client raises errors of many libraries, none of them ours to tell apart
        raise DataFileError(
            f"{public.repository} could not be loaded from the Hugging Face hub ({type(error).__name__}: {error}); "
            f"without a network, download it elsewhere and name the files: --from-file {split}=FILE.parquet"
        ) from error
    if missing := [column for column in public.columns if column not in found.column_names]:
        raise DataFileError(f"{public.repository}: the columns {', '.join(missing)} are missing; the set has changed")
    return found
