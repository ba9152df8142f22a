"""The manifest of a made suite: its settings, a digest of the code that made it, and a hash of each file."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from data_prep.files import complete_file, file_hash
from data_prep.made_from import key, sources

MANIFEST = "manifest.json"


def write_manifest(
    out: Path, settings: Mapping[str, Any], sizes: Mapping[str, int], dealt: Mapping[str, Mapping[str, int]]
) -> None:
    """Write manifest.json into `out`. sizes: rows by file. dealt: for each file, rows by skill and level."""
    command = ["data_prep.english", json.dumps(settings, sort_keys=True)]
    record = {
        "suite": "english",
        "settings": settings,
        "made_from": key(command, sources(["data_prep.english.__main__"])),
        "files": {
            split: {"rows": size, "sha256": file_hash(out / f"{split}.parquet"), "problems": dealt[split]}
            for split, size in sizes.items()
        },
    }
    with complete_file(out / MANIFEST) as path:
        path.write_text(json.dumps(record, indent=2) + "\n")
