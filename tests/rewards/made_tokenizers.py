"""Small tokenizers of every kind that models use, trained on a few lines of text."""

from collections.abc import Callable
from functools import cache
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import ByT5Tokenizer, PreTrainedTokenizerFast

TEXT = [
    "def f(a, b):\n    a += 4\n    return a * b\n", "for i in range(10):\n\tprint(i)\n", "x = [1, 2, 3]\n\n\n",
    "the house is not there , is it ? no !", "don't do what they've said", "été à l'école", "漢字 漢字", "😀 ok 😀",
]  # fmt: skip

END, LISTED, ROLE, ADDED = "<|endoftext|>", "<|pad|>", "<|im_end|>", "<tool>"


def _wrapped(tokenizer: Tokenizer, **options: Any) -> PreTrainedTokenizerFast:
    """As a pretrained model's: special tokens that the tokenizer names and one that it does not, and an added one."""
    options = {"clean_up_tokenization_spaces": False} | options
    return _with_added(
        PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, eos_token=END, pad_token=LISTED, unk_token="<unk>", **options
        )
    )


def _with_added(tokenizer: Any) -> Any:
    tokenizer.add_tokens([AddedToken(ROLE, special=True, normalized=False), AddedToken(ADDED, normalized=False)])
    return tokenizer


def _byte_level(prefix: bool, trim: bool) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix, trim_offsets=trim)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        TEXT, trainers.BpeTrainer(vocab_size=330, initial_alphabet=alphabet, show_progress=False)
    )
    return _wrapped(tokenizer)


def _byte_fallback() -> PreTrainedTokenizerFast:
    """SentencePiece's BPE as in Llama 2: a blank before the text, bytes for characters outside the vocabulary."""
    letters = sorted({letter for text in TEXT for letter in text if letter.isascii() and letter != " "} | {"▁"})
    vocabulary = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *letters]
    merges = [("▁", "a"), ("▁", "t"), ("▁t", "h"), ("▁th", "e"), ("▁", "▁"), ("▁▁", "▁▁"), ("d", "e"), ("o", "t")]
    vocabulary += ["".join(merge) for merge in merges]
    numbered = {piece: index for index, piece in enumerate(vocabulary)}
    model = models.BPE(vocab=numbered, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return _wrapped(tokenizer)


def _unigram() -> PreTrainedTokenizerFast:
    """SentencePiece's Unigram as in T5: unknown characters, such as line breaks, are lost."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    words = [text.replace("\n", " ") for text in TEXT]
    tokenizer.train_from_iterator(
        words, trainers.UnigramTrainer(vocab_size=90, unk_token="<unk>", special_tokens=["<unk>"], show_progress=False)
    )
    return _wrapped(tokenizer)


def _word_piece(clean: bool) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=clean)
    tokenizer.train_from_iterator(
        TEXT, trainers.WordPieceTrainer(vocab_size=150, special_tokens=["<unk>"], show_progress=False)
    )
    return _wrapped(tokenizer, clean_up_tokenization_spaces=clean)


def _words() -> PreTrainedTokenizerFast:
    """Whole words and no decoder, so that blanks stand between all tokens until they are cleaned up."""
    words = sorted({word for text in TEXT for word in text.split()} | {".", "'", "n't", "'s", "'ve", "I", "do", "you"})
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(["<unk>", *words])}, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return _wrapped(tokenizer, clean_up_tokenization_spaces=True)


MAKERS: dict[str, Callable[[], Any]] = {
    "byte-level": lambda: _byte_level(prefix=False, trim=False),
    "byte-level, trimmed offsets": lambda: _byte_level(prefix=False, trim=True),
    "byte-level, a blank before the text": lambda: _byte_level(prefix=True, trim=True),
    "byte fallback": _byte_fallback,
    "unigram": _unigram,
    "word pieces": lambda: _word_piece(clean=False),
    "word pieces, blanks cleaned up": lambda: _word_piece(clean=True),
    "words, blanks cleaned up": _words,
    "bytes in Python": lambda: _with_added(ByT5Tokenizer()),
}


@cache
def made(kind: str) -> Any:
    """The tokenizer of this kind; one for all tests."""
    return MAKERS[kind]()
