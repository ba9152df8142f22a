"""Converts a GGUF file into a Hugging Face folder: weights in bfloat16, tokenizer with chat template.

transformers converts weights and vocabulary. Three properties of the tokenizer come from the GGUF header instead,
because transformers 5.9 gets them wrong: the special tokens (it swaps begin and end of a text), how a text is split
(digits of SmolLM) and that decoding leaves spaces before punctuation as they are.
"""

from pathlib import Path
from typing import Any

from data_prep.pretrained import PretrainedError
from data_prep.pretrained.gguf_files import Header

_PROBE = "def f(x):\n    return    x + 12 , 345 . é\n\n\tf( 7)  8 ?"


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
