"""Records of a public set, from the Hugging Face hub or from local files with the same columns.

The hub is read at one commit, ``PublicSet.revision``. ``OUT/origin.json`` records the source, and ``OUT/snapshot`` the
records of the hub: ``--from-file SPLIT=OUT/snapshot/SPLIT.parquet`` makes the same tasks from them.
"""

import argparse
import json
import random
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow.lib
import pyarrow.parquet

from data_prep.files import complete_file, file_hash
from data_prep.json_lines import read_array, read_lines
from data_prep.schema import DataFileError
from data_prep.sources.source import Draft, Refusal, command, positive, run

_COMMIT = re.compile("[0-9a-f]{40}")


@dataclass(frozen=True)
class PublicSet:
    """Location and columns of a public set.

    splits: as published. columns: those that are read. revision: the commit of the repository that is read.
    licence: as the card of that commit (for files that are not on the hub: their repository) names it, or `none given`.
    files: path of a split in a repository whose loading script `datasets` refuses. download: how to get a set that is
    not on the hub, which has no repository. read: readers of files by their suffix.
    """

    name: str
    repository: str
    configuration: str | None
    splits: tuple[str, ...]
    columns: tuple[str, ...]
    revision: str
    licence: str
    files: str = ""
    download: str = ""
    read: Mapping[str, Callable[[Path], list[Any]]] = field(default_factory=dict)


# Maps a split and its records to the record numbers of each part of the set; --limit draws from each part.
Parts = Callable[[str, Sequence[Any]], Mapping[str, Sequence[int]]]


def whole_split(split: str, records: Sequence[Any]) -> dict[str, Sequence[int]]:
    """The published split as one part."""
    return {split: range(len(records))}


class Convert(Protocol):
    """Makes the fields of a task from record number `index` of a split; ValueError with the reason if it cannot."""

    def __call__(self, record: dict[str, Any], split: str, index: int) -> dict[str, Any]: ...


def add_options(parser: argparse.ArgumentParser, splits: Sequence[str]) -> None:
    """Add the options of every public set."""
    parser.add_argument("--limit", type=positive, help="records of each split, drawn by --seed (default: all)")
    parser.add_argument("--revision", help="commit of the hub's repository to read (default: the one that is pinned)")
    parser.add_argument(
        "--from-file",
        nargs="+",
        action="extend",
        default=[],
        metavar="SPLIT=FILE",
        help=f"JSONL, JSON or parquet files with the hub's columns, instead of the hub; splits: {', '.join(splits)}",
    )


def make(
    public: PublicSet,
    options: argparse.Namespace,
    convert: Convert,
    verifier: str,
    *,
    module: str | None = None,
    parts: Parts = whole_split,
    refine: Callable[[Iterable[Draft]], Iterable[Draft]] = iter,
    more_files: Collection[Path] = (),
) -> int:
    """Make, prove and write the tasks of a set, then record their origin; returns the exit status.

    verifier: one of those that the tasks need. module: the name of the command, if it differs from the set's. refine:
    a final pass over the drafts. more_files: files beside the records; `convert` may add to them.
    """
    records: dict[str, Any] = {}
    module = module or public.name
    status = run(module, options, (verifier,), lambda: refine(drafts(public, options, convert, parts, records)))
    try:
        return status or _keep_origin(public, options, records, more_files)
    except OSError as error:
        print(f"{command(module)}: {error}", file=sys.stderr)
        return 1


def drafts(
    public: PublicSet, options: argparse.Namespace, convert: Convert, parts: Parts, records: dict[str, Any]
) -> Iterator[Draft]:
    """A draft per requested record, in the published order within each part.

    convert: gets the part as the split of a record. records: filled with the records that were read, by split.
    """
    files = _files(public, options.from_file)
    if not files:
        options.revision = _commit(public, options.revision or public.revision)
    for split in files or public.splits:
        rows = _of_file(files[split], public) if files else _of_hub(public, split, options.revision)
        records[split] = rows
        for part, numbers in parts(split, rows).items():
            if options.limit is not None and options.limit < len(numbers):
                numbers = sorted(random.Random(f"{part}/{options.seed}").sample(numbers, options.limit))
            for index in numbers:
                yield _draft(public, rows[index], part, index, convert)


def _commit(public: PublicSet, revision: str) -> str:
    """The commit that a revision names now: a branch moves, so its commit is printed and recorded."""
    if not public.repository or _COMMIT.fullmatch(revision):
        return revision
    import huggingface_hub  # as slow as datasets

    try:
        commit = huggingface_hub.HfApi().dataset_info(public.repository, revision=revision).sha
    except Exception as error:  # the hub's client raises errors of many libraries
        raise DataFileError(
            f"the hub did not name the commit of {public.repository} at {revision} ({type(error).__name__}: {error}); "
            "without a network, name the files: --from-file SPLIT=FILE"
        ) from error
    if not commit:
        raise DataFileError(f"the hub has no commit for {public.repository} at {revision}")
    print(f"{public.repository}: {revision} is commit {commit} now")
    return commit


def _keep_origin(
    public: PublicSet, options: argparse.Namespace, records: Mapping[str, Any], more_files: Collection[Path]
) -> int:
    files = _files(public, options.from_file)
    origin: dict[str, Any] = {"licence": public.licence}
    origin |= {split: {"records": len(found)} for split, found in records.items()}
    for split, file in files.items():
        origin[split] |= {"file": str(file), "sha256": file_hash(file)}
    if not files:
        origin |= {"repository": public.repository, "revision": options.revision}
        for split, found in records.items():
            with complete_file(options.out / "snapshot" / f"{split}.parquet") as path:
                found.select_columns(list(public.columns)).to_parquet(path)
                origin[split]["sha256"] = file_hash(path)
    if more_files:
        origin["files"] = {str(file): file_hash(file) for file in sorted(more_files)}
    with complete_file(options.out / "origin.json") as path:
        path.write_text(json.dumps(origin, indent=2) + "\n")
    return 0


def _draft(public: PublicSet, record: Any, split: str, index: int, convert: Convert) -> Draft:
    label = f"{public.name}/{split} record {index}"
    if isinstance(record, str):
        return Refusal(label, record)
    try:
        return convert(record, split, index) | {"licence": public.licence}
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, SyntaxError, RecursionError) as error:
        return Refusal(label, f"{type(error).__name__}: {error}")


def _files(public: PublicSet, texts: Sequence[str]) -> Mapping[str, Path]:
    files: dict[str, Path] = {}
    for text in texts:
        split, _, path = text.partition("=")
        if split not in public.splits or not path:
            raise DataFileError(
                f"--from-file {text}: expected SPLIT=FILE, with SPLIT one of {', '.join(public.splits)}"
            )
        if split in files:
            raise DataFileError(f"--from-file {text}: the split {split} is given twice; join its files into one")
        for other, file in files.items():
            if file.resolve() == Path(path).resolve():
                raise DataFileError(f"--from-file {text}: the file is already given for the split {other}")
        files[split] = Path(path)
    return files


def _of_file(path: Path, public: PublicSet) -> list[dict[str, Any] | str]:
    """The records of a file; for a bad line, the reason instead of a record."""
    records: list[dict[str, Any] | str]
    if path.suffix in public.read:
        records = public.read[path.suffix](path)
    elif path.suffix == ".parquet":
        try:
            records = pyarrow.parquet.read_table(path).to_pylist()
        except (OSError, pyarrow.lib.ArrowException) as error:
            raise DataFileError(f"{path}: not a readable parquet file ({error})") from error
    elif path.suffix == ".json":
        records = read_array(path)
    else:
        records = [line.value or f"line {line.number}: {line.reason or 'an empty object'}" for line in read_lines(path)]
    present = {key for record in records if isinstance(record, dict) for key in record}
    if missing := [column for column in public.columns if column not in present]:
        raise DataFileError(
            f"{path}: the columns {', '.join(missing)} are missing; found: {', '.join(sorted(present)) or 'no records'}"
        )
    return records


def _of_hub(public: PublicSet, split: str, revision: str) -> Any:
    if not public.repository:
        raise DataFileError(f"{public.name} is not on the Hugging Face hub: {public.download}; then --from-file")
    import datasets  # takes seconds to import, and local files do not need it

    try:
        if public.files:
            path = f"hf://datasets/{public.repository}@{revision}/{public.files.format(split=split)}"
            builder = "parquet" if path.endswith(".parquet") else "json"
            rows = datasets.load_dataset(builder, data_files={split: path}, split=split)
        else:
            rows = datasets.load_dataset(public.repository, public.configuration, split=split, revision=revision)
    except Exception as error:  # the hub's client raises errors of many libraries
        raise DataFileError(
            f"the split {split} of {public.repository} at {revision} could not be loaded from the Hugging Face hub "
            f"({type(error).__name__}: {error}); without a network, download it elsewhere and name the files: "
            f"--from-file {split}=FILE.parquet"
        ) from error
    if missing := [column for column in public.columns if column not in rows.column_names]:
        raise DataFileError(f"{public.repository}: the columns {', '.join(missing)} are missing; the set has changed")
    return rows
