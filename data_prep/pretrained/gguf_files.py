"""Reads a GGUF file, refuses what could not be converted faithfully, and converts it into a Hugging Face folder.

The header is read before any weight. transformers converts weights and vocabulary. Three properties of the tokenizer
come from the header instead, because transformers 5.9 gets them wrong: the special tokens (it swaps begin and end of a
text), how a text is split (digits of SmolLM) and that decoding leaves spaces before punctuation as they are.
"""

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

_PROBE = "def f(x):\n    return    x + 12 , 345 . é\n\n\tf( 7)  8 ?"


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


def convert(gguf: Path, header: Header, out: Path) -> int:
    """Write the model into the folder `out`; returns the number of parameters. Raises PretrainedError."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    found: dict[str, Any] = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    load: Any = AutoModelForCausalLM.from_pretrained  # its annotations know no loading info
    try:
        tokenizer = with_header(AutoTokenizer.from_pretrained(**found), header)
        model, loaded = load(**found, dtype=torch.bfloat16, output_loading_info=True)
    except PretrainedError:
        raise
    except Exception as error:  # transformers raises errors of many kinds for files it can't convert
        raise PretrainedError(f"{gguf}: transformers could not convert it ({type(error).__name__}: {error})") from error
    _require_all_weights(gguf, loaded)
    model.generation_config.eos_token_id = model.config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = model.config.pad_token_id = tokenizer.pad_token_id
    tokenizer.save_pretrained(out)
    model.save_pretrained(out)
    for file in out.iterdir():
        file.chmod(0o644)
    return int(model.num_parameters())


def _require_all_weights(gguf: Path, loaded: dict[str, Any]) -> None:
    """Raise PretrainedError if the file lacks weights, which transformers makes at random, or has others."""
    wrong = {
        kind: sorted(map(str, loaded.get(f"{kind}_keys") or ())) for kind in ("missing", "unexpected", "mismatched")
    }
    if any(wrong.values()):
        parts = (f"{len(keys)} {kind}, such as {keys[0]}" for kind, keys in wrong.items() if keys)
        raise PretrainedError(
            f"{gguf}: its weights are not those of a whole model of its architecture ({'; '.join(parts)}); take the "
            "model's own Hugging Face folder instead"
        )


def with_header(converted: Any, header: Header) -> Any:
    """The tokenizer with the header's special tokens and way of splitting; raises PretrainedError if texts change."""
    from tokenizers import decoders, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    backend = converted.backend_tokenizer
    if header.tokenizer == "gpt2":
        byte_level: Any = pre_tokenizers.ByteLevel(add_prefix_space=False)
        if header.pre_tokenizer == "smollm":
            byte_level = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
        if header.pre_tokenizer != "qwen2":  # transformers has a converter for Qwen's
            backend.pre_tokenizer = byte_level
        backend.decoder = decoders.ByteLevel()
    names = {role: backend.id_to_token(number) for role, number in header.special.items()}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=names.get("bos"),
        eos_token=names["eos"],
        pad_token=names.get("padding", names["eos"]),
        unk_token=names.get("unknown"),
        clean_up_tokenization_spaces=False,
        model_max_length=header.context or None,
        chat_template=header.chat_template,
    )
    decoded = tokenizer.decode(tokenizer(_PROBE, add_special_tokens=False)["input_ids"])
    if decoded != _PROBE:
        raise PretrainedError(f"the converted tokenizer changes texts: {_PROBE!r} becomes {decoded!r}")
    return tokenizer
