"""The micro model's folder: a byte-level tokenizer that verl and vLLM can use, and a model within its size."""

import unicodedata

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from data_prep.micro import model, suite


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("model")
    assert model.make(out, seed=1) <= 2_000_000
    return out


@pytest.fixture(scope="module")
def tokenizer(folder):
    return AutoTokenizer.from_pretrained(folder)


@pytest.mark.slow
@given(text=st.text(max_size=60).filter(lambda text: "<|" not in text))
@settings(max_examples=200, deadline=None)
def test_text_round_trips_byte_by_byte(tokenizer, text):
    normal = unicodedata.normalize("NFC", text)
    ids = tokenizer.encode(normal)
    assert len(ids) == len(normal.encode())
    assert tokenizer.decode(ids) == normal


def test_the_loaded_tokenizer_is_the_one_that_was_made(tokenizer):
    made = model.make_tokenizer()
    text = "SELECT a\n\tFROM t; é漢🙂<|user|>x"
    assert tokenizer.encode(text) == made.encode(text)
    assert (len(tokenizer), tokenizer.eos_token_id, tokenizer.pad_token_id) == (262, 256, 257)


def test_a_newline_is_one_token(tokenizer):
    assert len(tokenizer.encode("\n")) == 1


def test_the_chat_template_adds_four_tokens_to_a_prompt(tokenizer):
    chat = [{"role": "user", "content": "run f(1)"}]
    ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=True, return_dict=True)["input_ids"]
    assert tokenizer.decode(ids) == "<|user|>run f(1)<|im_end|>\n<|assistant|>"
    assert len(ids) == len("run f(1)") + 4


def test_turns_rendered_one_by_one_are_the_whole_chat(tokenizer):
    chat = [{"role": role, "content": role} for role in ("system", "user", "assistant", "tool", "assistant")]
    whole = tokenizer.apply_chat_template(chat, tokenize=False)
    assert whole == "".join(tokenizer.apply_chat_template([turn], tokenize=False) for turn in chat)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_weights(folder):
    loaded = AutoModelForCausalLM.from_pretrained(folder)
    again, other = (model.make_model(model.make_tokenizer(), seed=seed) for seed in (1, 2))
    assert loaded.config.model_type == "qwen2"
    for name, weight in loaded.state_dict().items():
        assert torch.equal(weight, again.state_dict()[name]), name
    assert not torch.equal(again.model.embed_tokens.weight, other.model.embed_tokens.weight)


def test_a_width_that_does_not_divide_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        model.main(["--out", str(tmp_path), "--hidden", "100", "--heads", "3"])
    assert "--hidden 100 must be a positive multiple of 2 x --heads (6)" in capsys.readouterr().err


@pytest.fixture(scope="module")
def merged(tmp_path_factory):
    """The folder of a model whose tokenizer has merges."""
    folder = tmp_path_factory.mktemp("merged")
    suite.make(folder, limit=5, demonstration_count=64)
    arguments = ["--out", folder / "model", "--merges", "50", "--texts", folder / "sft_train.parquet"]
    assert model.main(list(map(str, arguments))) == 0
    return folder / "model"


@pytest.mark.slow
def test_with_merges_tokens_are_parts_of_words_and_any_text_round_trips(merged):
    tokenizer = AutoTokenizer.from_pretrained(merged)
    program = "def f(a,b):\n a+=8\n return a,b é漢🙂"
    ids = tokenizer.encode(program)
    assert {"def", "\u0120return"} <= set(tokenizer.convert_ids_to_tokens(ids))
    assert tokenizer.decode(ids) == program
    assert len(tokenizer) == 256 + 50 + 7


@pytest.mark.slow
def test_with_merges_the_end_of_a_turn_is_special_and_not_listed_as_in_pretrained_models(merged):
    tokenizer = AutoTokenizer.from_pretrained(merged)
    end = tokenizer.convert_tokens_to_ids(model.END)
    assert end not in tokenizer.all_special_ids
    assert tokenizer.decode([*tokenizer.encode("x"), end], skip_special_tokens=True) == "x"
    assert GenerationConfig.from_pretrained(merged).eos_token_id == end


def test_merges_without_texts_are_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        model.main(["--out", str(tmp_path), "--merges", "10"])
    assert "--merges and --texts require each other" in capsys.readouterr().err
