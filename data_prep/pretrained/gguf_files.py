"""Reads the header of a GGUF file and refuses what could not be converted faithfully, before any weight is read."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_prep.pretrained import PretrainedError

_INSTALL = "bash scripts/setup.sh installs it (extra `gguf` of pyproject.toml)"

# How a byte-level tokenizer splits a text, as `tokenizer.ggml.pre` names it. transformers ignores the name; for others
# than these its result would split texts differently from the model's training. Files without the name, or with
# "default", are older than it: they can be of any model.
PRE_TOKENIZERS = ("smollm", "gpt-2", "qwen2")
# Those that transformers converts and the trainer covers: decoders whose layers all attend.
ARCHITECTURES = ("llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "starcoder2")


@dataclass(frozen=True)
class Header:
    """Facts about a GGUF file.

    special: token ids by role (bos, eos, padding, unknown). files: of the model, this one among them. tokenizer: `gpt2`
    (byte-level) or `llama` (sentencepiece).
    """

    architecture: str
    name: str
    licence: str
    parameters: int
    context: int
    chat_template: str
    tokenizer: str
    pre_tokenizer: str
    special: dict[str, int]
    files: int


def read_header(path: Path) -> Header:
    """The header of a GGUF file that transformers can convert; raises PretrainedError for any other file."""
    if not path.is_file():
        raise PretrainedError(f"{path}: no such file")
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise PretrainedError(f"the package gguf is missing: {_INSTALL}") from error
    try:
        reader: Any = GGUFReader(path)
        fields = dict(reader.fields)
        architecture = str(fields["general.architecture"].contents())
    except Exception as error:  # a damaged file fails in many ways inside the reader
        raise PretrainedError(f"{path}: not a readable GGUF file ({type(error).__name__}: {error})") from error

    def value(key: str, default: Any = "") -> Any:
        return fields[key].contents() if key in fields else default

    roles = ("bos", "eos", "padding", "unknown")
    ids = {role: value(f"tokenizer.ggml.{role}_token_id", None) for role in roles}
    header = Header(
        architecture=architecture,
        name=str(value("general.name", path.stem)),
        licence=str(value("general.license", "not stated")),
        parameters=sum(int(tensor.n_elements) for tensor in reader.tensors),
        context=int(value(f"{architecture}.context_length", 0)),
        chat_template=str(value("tokenizer.chat_template")),
        tokenizer=str(value("tokenizer.ggml.model")),
        pre_tokenizer=str(value("tokenizer.ggml.pre", "default")),
        special={role: int(number) for role, number in ids.items() if number is not None},
        files=int(value("split.count", 1)),
    )
    _require_convertible(path, header)
    return header


def _require_convertible(path: Path, header: Header) -> None:
    instead = "take the model's own Hugging Face folder instead"
    if header.architecture not in ARCHITECTURES:
        raise PretrainedError(
            f"{path}: the GGUF architecture '{header.architecture}' is not converted here, only "
            f"{', '.join(ARCHITECTURES)}; {instead}"
        )
    if header.files > 1:
        raise PretrainedError(f"{path}: one of the {header.files} files of a split model; merge them, or {instead}")
    if not header.chat_template:
        raise PretrainedError(
            f"{path}: its tokenizer has no chat template (tokenizer.chat_template), so it is not an instruct model; "
            "take an instruct version of the model"
        )
    if header.tokenizer not in ("gpt2", "llama") or "eos" not in header.special:
        raise PretrainedError(
            f"{path}: its tokenizer ('{header.tokenizer or 'none'}') is not byte-level BPE (gpt2) or sentencepiece "
            f"(llama) with an end token; {instead}"
        )
    if header.tokenizer == "gpt2" and header.pre_tokenizer not in PRE_TOKENIZERS:
        raise PretrainedError(
            f"{path}: how its tokenizer splits texts ('{header.pre_tokenizer}') is unknown here; known: "
            f"{', '.join(PRE_TOKENIZERS)}; {instead}"
        )
