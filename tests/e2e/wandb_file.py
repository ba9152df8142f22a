"""Reader of W&B's offline files: a LevelDB log of protobuf records after a header of seven bytes."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wandb.proto import wandb_internal_pb2

BLOCK, CHUNK_HEADER, FILE_HEADER = 32768, 7, 7
FULL, LAST = 1, 4


def records(path: Path) -> Iterator[bytes]:
    """The complete records of a log; one cut by a killed writer is left out."""
    data = path.read_bytes()
    position, parts = FILE_HEADER, []
    while position + CHUNK_HEADER <= len(data):
        if BLOCK - position % BLOCK < CHUNK_HEADER:  # too little room for a header: the block ends with zeros
            position += BLOCK - position % BLOCK
            continue
        length, kind = int.from_bytes(data[position + 4 : position + 6], "little"), data[position + 6]
        if kind == 0 or position + CHUNK_HEADER + length > len(data):
            return
        parts.append(data[position + CHUNK_HEADER : position + CHUNK_HEADER + length])
        position += CHUNK_HEADER + length
        if kind in (FULL, LAST):
            yield b"".join(parts)
            parts = []


def parsed(path: Path, kind: str) -> Iterator[Any]:
    """The records of one kind, as W&B's own message type reads them."""
    for data in records(path):
        record = wandb_internal_pb2.Record()  # type: ignore[attr-defined]  # protobuf makes it at import
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == kind:
            yield getattr(record, kind)


def wait_for_exit(path: Path, seconds: float = 60) -> None:
    """Wait until the file is whole: `wandb.finish` returns a moment before the last record of its process is written.

    Raises:
        TimeoutError: it has no such record after so many seconds.
    """
    deadline = time.monotonic() + seconds
    while not any(parsed(path, "exit")):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} has no record of its run's exit")
        time.sleep(0.05)


def history(path: Path) -> Iterator[dict[str, Any]]:
    """One dictionary for each logged step."""
    for record in parsed(path, "history"):
        row = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.item}
        yield {"_step": record.step.num, **row}
