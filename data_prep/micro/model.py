"""The micro model: a byte-level tokenizer and a small Qwen2 model with random weights, as a Hugging Face folder.

`python -m data_prep.micro.model --out DIR [--seed S]`. Every byte is one token, so any text round-trips and lengths in
tokens are lengths in bytes; chat roles are single special tokens. `--merges N --texts PARQUET` instead makes a
tokenizer like those of pretrained models, with subword tokens learned from demonstrations.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd
import torch
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer

from data_prep.sources.source import positive

PAD, END, END_OF_TEXT = "<|pad|>", "<|im_end|>", "<|endoftext|>"
ROLES = ("system", "user", "assistant", "tool")

# verl's Qwen chat builder expects `<|im_end|>` and a newline between turns.
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message.role + '|>' + message.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


Merge = tuple[str, str]


def make_tokenizer(max_length: int = 512, merges: Sequence[Merge] = ()) -> Qwen2Tokenizer:
    """A byte-level BPE: 256 bytes and the results of the merges, then pad, end of turn and one token per role.

    With merges it resembles the tokenizers of pretrained models: the end of a turn and the roles are special tokens
    that are missing from `all_special_ids`, and the end-of-sequence token is a different one, which no answer has.

    It is a Qwen2Tokenizer because transformers loads that class for every Qwen2 model folder, even if the folder names
    another. Like every Qwen tokenizer it normalises text to NFC, so round trips are exact for text in NFC.
    """
    symbols = dict.fromkeys([*sorted(pre_tokenizers.ByteLevel.alphabet()), *map("".join, merges)])
    tokenizer = Qwen2Tokenizer(
        vocab={symbol: index for index, symbol in enumerate(symbols)},
        merges=list(merges),  # type: ignore[arg-type]  # annotated as strings, but pairs are accepted
        unk_token=PAD,  # never used: no byte is unknown
        eos_token=END_OF_TEXT if merges else END,
        pad_token=PAD,
        chat_template=CHAT_TEMPLATE,
        model_max_length=max_length,
        clean_up_tokenization_spaces=False,
        padding_side="left",
    )
    roles = [f"<|{role}|>" for role in ROLES]
    if merges:
        tokenizer.add_tokens([AddedToken(token, special=True, normalized=False) for token in (END, *roles)])
    else:
        tokenizer.add_special_tokens({"additional_special_tokens": roles})
    return tokenizer


def learn_merges(texts: Iterable[str], count: int) -> list[Merge]:
    """At most `count` merges of byte-level BPE for these texts, the most frequent first."""
    made = make_tokenizer().backend_tokenizer
    learner = Tokenizer(models.BPE())
    learner.normalizer, learner.pre_tokenizer = made.normalizer, made.pre_tokenizer
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=len(alphabet) + count, initial_alphabet=alphabet, min_frequency=2, show_progress=False
    )
    learner.train_from_iterator(texts, trainer)
    return [(left, right) for left, right in json.loads(learner.to_str())["model"]["merges"]]


def texts_of(demonstrations: Path) -> list[str]:
    """The message contents in a parquet file of conversations (column `messages`)."""
    return [turn["content"] for turns in pd.read_parquet(demonstrations)["messages"] for turn in turns]


def make_model(
    tokenizer: Qwen2Tokenizer,
    *,
    seed: int = 0,
    hidden: int = 160,
    layers: int = 2,
    heads: int = 5,  # head size 32: vLLM on CPU supports only some sizes (not 40)
    max_length: int = 512,
) -> Qwen2ForCausalLM:
    """A Qwen2 model in float32 with random weights; the same seed gives the same weights."""
    config = Qwen2Config(
        vocab_size=-(-len(tokenizer) // 8) * 8,
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=max_length,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        initializer_range=hidden**-0.5,  # the default 0.02 is for wide models; a narrow one then starts on a plateau
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.convert_tokens_to_ids(END),  # the token at which an engine stops
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Qwen2ForCausalLM(config)


def make(
    out: Path,
    *,
    seed: int = 0,
    hidden: int = 160,
    layers: int = 2,
    heads: int = 5,
    max_length: int = 512,
    merges: Sequence[Merge] = (),
) -> int:
    """Write tokenizer and model into `out`; returns the number of parameters. merges: as in `make_tokenizer`."""
    tokenizer = make_tokenizer(max_length, merges)
    model = make_model(tokenizer, seed=seed, hidden=hidden, layers=layers, heads=heads, max_length=max_length)
    tokenizer.save_pretrained(out)
    model.save_pretrained(out)
    return model.num_parameters()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m data_prep.micro.model", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--hidden", type=int, default=160, help="width, a multiple of 2 x heads")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--heads", type=int, default=5)
    parser.add_argument("--max-length", type=positive, default=512, help="tokens of prompt and answer together")
    parser.add_argument("--merges", type=positive, default=0, help="number of byte merges to learn (needs --texts)")
    parser.add_argument("--texts", type=Path, help="parquet of demonstrations that --merges learns from")
    options = parser.parse_args(arguments)
    if bool(options.merges) != bool(options.texts):
        parser.error("--merges and --texts require each other: give both or neither")
    if min(options.hidden, options.layers, options.heads) < 1 or options.hidden % (2 * options.heads):
        parser.error(f"--hidden {options.hidden} must be a positive multiple of 2 x --heads ({2 * options.heads})")
    try:
        merges = learn_merges(texts_of(options.texts), options.merges) if options.merges else []
        size = make(
            options.out, seed=options.seed, hidden=options.hidden, layers=options.layers, heads=options.heads,
            max_length=options.max_length, merges=merges,
        )  # fmt: skip
    except OSError as error:
        print(f"data_prep.micro.model: {error}", file=sys.stderr)
        return 1
    print(f"{options.out}: {size:,} parameters, {len(make_tokenizer(merges=merges))} tokens")
    return 0


if __name__ == "__main__":
    sys.exit(main())
